"""Single-thread executors for arithmetic, each with its own number of torch threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import torch


def set_threads(num_threads: int) -> None:
    """Set the number of threads that torch may use on the calling thread; 0 means all cores."""
    torch.set_num_threads(num_threads or os.cpu_count() or 1)


def build_executor(num_threads: int, name: str) -> ThreadPoolExecutor:
    """Build an executor with one thread, in which torch computes with `num_threads` threads (0: one per core).

    torch keeps the number per thread, as OpenMP and MKL do. A thread that has not yet used its number gets the last one
    set in any thread, so the calling thread uses its own here.
    """
    torch.get_num_threads()
    return ThreadPoolExecutor(1, thread_name_prefix=name, initializer=set_threads, initargs=(num_threads,))


def leave_cores_to_executors() -> None:
    """Make torch compute on one core in the calling thread.

    Each thread that computes on several cores has helpers of its own. If there are more helpers than cores, OpenMP puts
    them to sleep between operations, and a step of small operations takes a fifth longer.
    """
    set_threads(1)
