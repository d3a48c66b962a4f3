"""Executors of one thread for arithmetic, each with its own number of torch threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import torch


def build_executor(num_threads: int, name: str) -> ThreadPoolExecutor:
    """One thread in which torch computes with `num_threads` threads (0 is one per core).

    torch keeps the number per thread (OpenMP, MKL and oneDNN do): that of every thread that has asked for its own stays.
    A thread that never asked takes the last number set anywhere, so the calling thread asks here.
    """
    torch.get_num_threads()
    return ThreadPoolExecutor(
        1, thread_name_prefix=name, initializer=torch.set_num_threads, initargs=(num_threads or os.cpu_count() or 1,)
    )
