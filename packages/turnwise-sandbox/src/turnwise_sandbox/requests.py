"""Turns a Program and its Limits into the messages for a cell. Pure functions, apart from filling a memfd."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import PurePosixPath
from typing import NamedTuple

from turnwise_sandbox import wire
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel.files import split_path
from turnwise_sandbox.types import Limits, Network, Profile, Program


class CellKey(NamedTuple):
    """The properties of a cell. Programs with the same key can use one cell after each other."""

    profile: str
    network: Network
    disk_bytes: int
    num_files: int
    memory_bytes: int
    num_pids: int
    visible: tuple[str, ...] = ()


CELL_PIDS = 2
"""Processes of a cell besides its program's: the cell itself, and the intermediate one of a session's fork."""

MAX_CODE_BYTES = 64 << 20
MAX_PATH_CHARS = 512

_BOUNDS: dict[str, tuple[int, int]] = {
    "wall_s": (0, 1_000_000),
    "cpu_s": (1, 1_000_000),
    "memory_bytes": (16 << 20, 1 << 50),  # with less an interpreter can start, but does nothing useful
    "output_bytes": (0, 1 << 40),
    "num_pids": (1, 1 << 20),
    "disk_bytes": (0, 1 << 50),
    "num_files": (0, 1 << 40),
}
"""Smallest and largest value of each limit; 0 itself is refused."""

_LIBRARIES: dict[Profile, bytes] = {
    "sympy": rb"(?:sympy|mpmath)",
    "openai": rb"openai",
    "pytest": rb"(?:pytest|unittest)",
    "numpy": rb"numpy",
}
"""What a program imports that runs in each interpreter; the first that fits is taken."""
_IMPORTS = {
    profile: re.compile(rb"^\s*(?:from|import)\s+(?:[\w.]+\s*,\s*)*" + names + rb"\b", re.MULTILINE)
    for profile, names in _LIBRARIES.items()
}


def to_bytes(code: str | bytes) -> bytes:
    """Source text as bytes. Lone surrogates become bytes that Python's decoder refuses inside the sandbox."""
    return code if isinstance(code, bytes) else code.encode("utf-8", "surrogatepass")


def choose_profile(program: Program) -> Profile:
    """The preloaded interpreter for a program: its `profile`, or for "auto" the one that preloads the libraries that
    the program imports and this machine has. Only speed depends on it."""
    if program.profile != "auto":
        return program.profile
    sources = [to_bytes(program.code), *(content for name, content in program.files.items() if name.endswith(".py"))]
    for name, pattern in _IMPORTS.items():
        if any(pattern.search(source) for source in sources) and is_installed(name):
            return "numpy_random" if name == "numpy" and any(b"random" in source for source in sources) else name
    return "std"


@functools.cache
def is_installed(library: str) -> bool:
    """Whether this interpreter finds the library."""
    return importlib.util.find_spec(library) is not None


def check_path(path: str) -> str:
    """The normalized path. Raises SandboxError for one that is not relative or leaves its folder."""
    pure = PurePosixPath(path)
    try:
        if len(path) > MAX_PATH_CHARS or path.endswith(("/", "/.")):  # these ends name a folder
            raise ValueError
        path.encode()  # raises for lone surrogates, which cannot be sent
        split_path(str(pure))
    except ValueError:
        raise SandboxError(
            f"{path[:80]!r} is not a path inside the sandbox's folder; use a relative one without '..'"
        ) from None
    return str(pure)


def check_limits(limits: Limits) -> None:
    """Raise SandboxError, naming the limit, for a value that is not positive or that no kernel can set."""
    for name, (least, most) in _BOUNDS.items():
        value = getattr(limits, name)
        if not (value is None and name == "cpu_s") and not (value > 0 and least <= value <= most):
            raise SandboxError(
                f"limit {name} is {value}; it must be {f'at least {least}' if least else 'positive'} and at most {most}"
            )


def build_payload(program: Program) -> tuple[int, int]:
    """The memfd that a program reads, and its size. Raises SandboxError if code and files are too large."""
    source = to_bytes(program.code)
    total = len(source) + sum(len(content) for content in program.files.values())
    if total > MAX_CODE_BYTES:
        raise SandboxError(f"code and files have {total} bytes; at most {MAX_CODE_BYTES} are allowed")
    files = {check_path(name): content for name, content in program.files.items()}
    parts = wire.pack_payload(source, files, language=program.language, seed=program.seed)
    return wire.to_memfd(parts), sum(map(len, parts))


def build_rlimits(key: CellKey, *, has_cgroup: bool) -> dict[str, int]:
    """Limits of each process in a cell. A cgroup counts the memory of all processes together; the limit per process
    then only turns a hopeless allocation into a MemoryError. RLIMIT_AS is not used: it also counts reserved memory."""
    return {
        "data_bytes": key.memory_bytes * (2 if has_cgroup else 1),
        "num_pids": key.num_pids + CELL_PIDS,
        "file_bytes": key.disk_bytes,
        "open_files": 1024,
    }


def build_run(program: Program, limits: Limits, *, payload_bytes: int, has_peer: bool) -> bytes:
    """The message to a slot cell about one program."""
    flags = (wire.HAS_STDIN if program.stdin else 0) | (wire.HAS_PEER if has_peer else 0)
    cpu_s = int(limits.wall_s) + 1 if limits.cpu_s is None else limits.cpu_s
    outputs = "\0".join(check_path(path) for path in program.outputs).encode()
    return wire.RUN.pack(b"R", limits.wall_s, cpu_s, flags, payload_bytes) + outputs
