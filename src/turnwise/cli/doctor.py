"""What this machine can do: versions, cores, memory, accelerators, optional extras."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import time
from typing import Any

_PACKAGES = ("torch", "transformers", "tokenizers", "renderers", "bm25s", "numpy", "pydantic")
_EXTRAS = ("ray", "vllm", "wandb", "tensorboard")


def examine() -> dict[str, Any]:
    """Findings by name, in the order a person reads them. Imports torch."""
    import torch

    findings: dict[str, Any] = {
        "python": platform.python_version() + ("" if sys.version_info >= (3, 11) else " (3.11 or newer is needed)")
    }
    for package in _PACKAGES:
        try:
            findings[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            findings[package] = "missing; install with pip install -e ."
    findings["cores"] = os.cpu_count() or 1
    findings["memory"] = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    findings["free disk here"] = f"{shutil.disk_usage('.').free / 2**30:.1f} GiB"
    findings["gpu"] = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else "none (model.device=auto is the CPU; the tiny recipes need no GPU)"
    )
    findings["matrix multiply, 1 thread"] = f"{_gflops(torch, 1):.0f} GFLOP/s"
    findings["matrix multiply, all cores"] = f"{_gflops(torch, os.cpu_count() or 1):.0f} GFLOP/s"
    present = [name for name in _EXTRAS if importlib.util.find_spec(name)]
    findings["optional extras"] = ", ".join(present) or "none (nothing here needs them)"
    return findings


def _gflops(torch: Any, threads: int) -> float:
    """Float32 matrix multiplication of the size a small model's training step uses, for about a quarter of a second."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a, b = torch.randn(4096, 256), torch.randn(256, 256)
    a @ b
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < 0.25:
        a @ b
        count += 1
    seconds = time.perf_counter() - started
    torch.set_num_threads(before)
    return float(count * 2 * 4096 * 256 * 256 / seconds / 1e9)
