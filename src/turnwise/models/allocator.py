"""How the C library keeps memory that was freed."""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
KEPT_BYTES = 32 << 20
"""Freed blocks below this size are kept: the size up to which glibc, left alone, learns to keep them."""


def keep_freed_memory() -> bool:
    """Let this process reuse freed blocks below `KEPT_BYTES` instead of handing them back and asking again. True when
    that is set.

    glibc returns the end of the heap whenever more than some MiB of it are free, which is after every layer's
    temporaries; each page then costs a page fault and 4096 zeros when the next layer wants it again. All threads share
    one heap: a thread's own would be returned whenever it shrinks below 64 MiB. The peak of memory stays what it is;
    what is free below it stays with the process. Does nothing where the C library is another one, or where the
    environment (`MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_MAX_`, `MALLOC_ARENA_MAX`,
    `GLIBC_TUNABLES`) already says what it should do."""
    variables = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_ARENA_MAX")
    chosen = [name for name in variables if name in os.environ]
    if chosen or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # 1 is success; -1 is no limit.
    settings = ((_M_MMAP_THRESHOLD, KEPT_BYTES), (_M_TRIM_THRESHOLD, -1), (_M_ARENA_MAX, 1))
    accepted = [mallopt(name, value) for name, value in settings]
    return all(accepted)
