"""Executors of one thread for arithmetic, each with its own number of torch threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import torch


def build_executor(num_threads: int, name: str) -> ThreadPoolExecutor:
    """One thread in which torch computes with `num_threads` threads (0 is one per core).

    torch keeps the number per thread, as OpenMP and MKL do. A thread that never used its number takes the last one set
    anywhere, so the calling thread uses its own here.
    """
    torch.get_num_threads()
    return ThreadPoolExecutor(
        1, thread_name_prefix=name, initializer=torch.set_num_threads, initargs=(num_threads or os.cpu_count() or 1,)
    )
