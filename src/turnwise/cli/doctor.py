"""`turnwise doctor`: show versions, cores, memory, accelerators and optional extras of this machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterable
from typing import Any

from turnwise import __version__
from turnwise.core.errors import ConfigError
from turnwise.core.packages import OFFERED, find_version
from turnwise.core.programs import SystemProgram, list_programs

_PACKAGES = ("torch", "transformers", "tokenizers", "renderers", "bm25s", "numpy", "pydantic")
_DEVELOPMENT = "dev"
"""The extra for work on Turnwise itself."""


def examine() -> dict[str, Any]:
    """Return the findings by name, in the order they are printed. Imports torch."""
    import torch

    from turnwise.models.machine_memory import read_cpu_memory_size

    findings: dict[str, Any] = {
        "python": platform.python_version() + ("" if sys.version_info >= (3, 11) else " (3.11 or newer is needed)")
    }
    for package in _PACKAGES:
        try:
            findings[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            findings[package] = "missing; install with pip install -e ."
    for package in ("turnwise-sandbox", *OFFERED):
        findings[package] = describe_package(package)
    findings["cores"] = os.cpu_count() or 1
    findings["memory"] = f"{read_cpu_memory_size() / 2**30:.1f} GiB"
    findings["free disk here"] = f"{shutil.disk_usage('.').free / 2**30:.1f} GiB"
    findings["gpu"] = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else "none (model.device=auto is the CPU; the tiny recipes need no GPU)"
    )
    findings["matrix multiply, 1 thread"] = f"{_gflops(torch, 1):.0f} GFLOP/s"
    findings["matrix multiply, all cores"] = f"{_gflops(torch, os.cpu_count() or 1):.0f} GFLOP/s"
    extras = find_extras(importlib.metadata.requires("turnwise") or ())
    installed = [name for name, missing in extras.items() if not missing]
    findings["optional extras"] = ", ".join(installed) or "none (the tiny search recipe needs none)"
    lacking = [f"{name} ({', '.join(missing)})" for name, missing in extras.items() if missing]
    findings["not installed"] = ", ".join(lacking) or "none"
    try:
        findings |= describe_programs(list_programs())
    except ConfigError as error:
        findings["programs"] = str(error)
    return findings


def describe_package(package: str) -> str:
    """The version of one of Turnwise's packages, and what is wrong with it."""
    version = find_version(package)
    if not version:
        return f"not installed; pip install {package}"
    if version != __version__:
        return f"{version}, and Turnwise is {__version__}: pip install {package}=={__version__}"
    return version


def describe_programs(programs: Iterable[SystemProgram]) -> dict[str, str]:
    """The programs that environments start, by whether this machine has them."""
    paths = {program: shutil.which(program.command) for program in programs}
    lacking = [
        f"{each.command} ({each.used_by}; apt-get install {each.package})" for each, at in paths.items() if at is None
    ]
    return {
        "programs": ", ".join(each.command for each, at in paths.items() if at is not None) or "none",
        "programs missing": ", ".join(lacking) or "none",
    }


def find_extras(requirements: Iterable[str]) -> dict[str, list[str]]:
    """Every optional extra in a package's requirements ("peft>=0.20; extra == 'lora'"), with its packages that are
    missing here; in alphabetical order, without the extra for development."""
    missing: dict[str, list[str]] = {}
    for text in requirements:
        package, extra = re.match(r"[\w.-]+", text), re.search(r"""extra\s*==\s*['"]([\w.-]+)['"]""", text)
        if package is not None and extra is not None and extra[1] != _DEVELOPMENT:
            missing.setdefault(extra[1], [])
            missing[extra[1]] += _list_missing(text)
    return dict(sorted(missing.items()))


def _list_missing(text: str) -> list[str]:
    """The package of a requirement if it is not installed; of one with extras ("turnwise-adapters[gymnasium]") what
    those require and is not installed."""
    package = re.match(r"[\w.-]+", text)
    assert package is not None
    if not find_version(package[0]):
        return [package[0]]
    extras = re.match(r"[\w.-]+\[([^\]]*)\]", text)
    if extras is None:
        return []
    lacking = find_extras(importlib.metadata.requires(package[0]) or ())
    return [name for extra in extras[1].split(",") for name in lacking.get(extra.strip(), [])]


def examine_model(name: str, dtype: str) -> dict[str, Any]:
    """Load a model and return how it computes, by name, in the order of printing.

    Raises ConfigError if it cannot be loaded, or if neither path computes it."""
    from turnwise.config.catalog import find_model
    from turnwise.engines.check import check_steps
    from turnwise.models.build import DTYPES, load_model, num_parameters
    from turnwise.models.paths import find_path

    if dtype not in DTYPES:
        raise ConfigError(f"--dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}")
    model = check_steps(load_model(find_model(name), dtype=dtype))
    path = find_path(model)
    findings: dict[str, Any] = {
        "model": f"{type(model).__name__}, {num_parameters(model):,} parameters in {dtype}",
        "path": path.describe(),
    }
    if path.kind == "generic":
        findings["trains"] = "rows of similar length, padded" if path.pads else "rows of the same length"
        findings["samples"] = path.describe_sampling()
    findings |= {f"gap, {way}": f"{gap:.2g} nats" for way, gap in path.gaps.items()}
    return findings


def _gflops(torch: Any, threads: int) -> float:
    """Measure float32 matrix products of the size of a small model's training step for a quarter of a second."""
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
