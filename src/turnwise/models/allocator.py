"""Makes the C library keep freed memory for reuse."""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
KEPT_BYTES = 32 << 20
"""Freed blocks below this size are kept; glibc's own largest threshold."""


def keep_freed_memory() -> bool:
    """Make this process reuse freed blocks below `KEPT_BYTES` instead of returning them to the kernel.

    Return whether this is in effect. By default glibc returns the end of the heap whenever more than some MiB of it are
    free, which is after every layer's temporaries; each page then costs a page fault and 4096 zeros when the next layer
    needs it. The peak of memory does not change; freed memory stays with the process. Does nothing with another C
    library, or if the environment (`MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_MAX_`,
    `GLIBC_TUNABLES`) sets this.
    """
    set_by_user = [
        name for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_") if name in os.environ
    ]
    if set_by_user or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # 1 is success; -1 is no limit.
    settings = ((_M_MMAP_THRESHOLD, KEPT_BYTES), (_M_TRIM_THRESHOLD, -1), (_M_ARENA_MAX, 1))
    accepted = [mallopt(name, value) for name, value in settings]
    return all(accepted)
