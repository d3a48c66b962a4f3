"""From a Program and its Limits to what a cell is told. Pure, apart from filling a memfd."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from turnwise.core.errors import SandboxError
from turnwise.sandbox import wire
from turnwise.sandbox.kernel.files import split_path
from turnwise.sandbox.types import Limits, Profile, Program

MAX_CODE_BYTES = 64 << 20
MAX_PATH_CHARS = 512

_SYMPY = re.compile(rb"^\s*(?:from|import)\s+(?:[\w.]+\s*,\s*)*(?:sympy|mpmath)\b", re.MULTILINE)
_NUMPY = re.compile(rb"^\s*(?:from|import)\s+(?:[\w.]+\s*,\s*)*numpy\b", re.MULTILINE)
_PYTEST = re.compile(rb"^\s*(?:from|import)\s+(?:[\w.]+\s*,\s*)*(?:pytest|unittest)\b", re.MULTILINE)


def to_bytes(code: str | bytes) -> bytes:
    """Source as bytes; lone surrogates become what Python's own decoder will refuse, inside the sandbox."""
    return code if isinstance(code, bytes) else code.encode("utf-8", "surrogatepass")


def choose_profile(profile: Profile, source: bytes) -> str:
    """The preloaded interpreter for `source`: as named, or by a scan of its import lines. Only speed depends on it."""
    if profile != "auto":
        return profile
    for name, pattern in (("sympy", _SYMPY), ("pytest", _PYTEST), ("numpy", _NUMPY)):
        if pattern.search(source):
            return name
    return "std"


def check_path(path: str) -> str:
    """A relative path that stays where it is. Raises SandboxError naming it."""
    pure = PurePosixPath(path)
    try:
        if len(path) > MAX_PATH_CHARS:
            raise ValueError
        split_path(str(pure))
    except ValueError:
        raise SandboxError(f"{path[:80]!r} is not a path inside the sandbox's folder; give a relative one without '..'") from None
    return str(pure)


def check_limits(limits: Limits) -> None:
    """Raises SandboxError naming the limit that makes no sense."""
    for name in ("wall_s", "memory_bytes", "output_bytes", "num_pids", "disk_bytes", "num_files"):
        value = getattr(limits, name)
        if not value > 0 or value != value or value == float("inf"):
            raise SandboxError(f"limit {name} is {value}; it must be positive and finite")
    if limits.cpu_s is not None and limits.cpu_s < 1:
        raise SandboxError(f"limit cpu_s is {limits.cpu_s}; it must be at least 1 second, or None")


def build_payload(source: bytes, files: Mapping[str, bytes], **header: Any) -> int:
    """The memfd a program reads: code, files, and what concerns them. Raises SandboxError for code that is too large."""
    total = len(source) + sum(len(content) for content in files.values())
    if total > MAX_CODE_BYTES:
        raise SandboxError(f"code and files hold {total} bytes; at most {MAX_CODE_BYTES} can be handed in")
    names = [check_path(name) for name in files]
    return wire.to_memfd(wire.pack_payload({**header, "files": names}, [source, *files.values()]))


def build_rlimits(limits: Limits, *, has_cgroup: bool, live: bool = False) -> dict[str, int | None]:
    """Per-process limits. A live process may go on for any number of calls, so its processor time is bounded only where asked. With a cgroup, memory is counted for all processes together, and the per-process limit only turns
    a hopeless allocation into a MemoryError; RLIMIT_AS would also count what threads and allocators merely reserve."""
    default_cpu_s = None if live else int(limits.wall_s) + 1
    return {
        "cpu_s": default_cpu_s if limits.cpu_s is None else limits.cpu_s,
        "data_bytes": limits.memory_bytes * (2 if has_cgroup else 1),
        "num_pids": limits.num_pids,
        "file_bytes": limits.disk_bytes,
        "open_files": 1024,
    }


def build_run(program: Program, limits: Limits, *, has_cgroup: bool) -> dict[str, Any]:
    """What a slot cell is told about one program."""
    return {
        "op": "run",
        "wall_s": limits.wall_s,
        "stdin": bool(program.stdin),
        "outputs": [check_path(path) for path in program.outputs],
        "rlimits": build_rlimits(limits, has_cgroup=has_cgroup),
    }


def build_program_payload(program: Program) -> int:
    """The memfd of a one-shot program."""
    return build_payload(to_bytes(program.code), program.files, language=program.language, seed=program.seed, name="<program>")
