"""What the backends that start an ordinary interpreter share: environment, limits as shell text, signs of a limit.

Such interpreters are not preloaded, so a seed affects `hash` and `random` of Python programs only; numpy's generators
start from the system's entropy."""

from __future__ import annotations

from pathlib import PurePosixPath

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.types import Limit, Limits

SOURCE_NAMES = {"python": "main.py", "bash": "main.sh"}
INTERPRETERS = {"python": "python3", "bash": "bash"}
MAX_SIGNAL = 64


def check_path(path: str) -> str:
    """The normalized path. Raises SandboxError for one that is not relative or leaves its folder."""
    parts = PurePosixPath(path).parts
    surrogate = any("\ud800" <= char <= "\udfff" for char in path)  # cannot be sent as UTF-8
    if not parts or path.startswith("/") or ".." in parts or "\0" in path or "\n" in path or surrogate:
        raise SandboxError(
            f"file path {path!r} must be relative, stay below the program's folder and contain no NUL, newline or "
            "surrogate"
        )
    return str(PurePosixPath(path))


def encode_code(code: str | bytes) -> bytes:
    """Source text as bytes. Lone surrogates become bytes that the interpreter refuses."""
    return code if isinstance(code, bytes) else code.encode("utf-8", "surrogatepass")


def seeding_module(seed: int) -> bytes:
    """The source of a `sitecustomize` module that seeds `random`; Python imports it before the program."""
    # `random.seed` ignores the sign of an integer.
    return f"import random\nrandom.seed({seed % 2**64})\n".encode()


def build_environment(seed: int, folder: str, seed_folder: str) -> dict[str, str]:
    """The whole environment of a program, without the host's variables. `seed_folder` holds `seeding_module`."""
    return {
        "HOME": folder,
        "TMPDIR": "/tmp",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": str(seed % 2**32),
        "PYTHONPATH": seed_folder,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def limit_commands(limits: Limits) -> str:
    """POSIX shell text that lowers the process's limits: processor time, data, file size, processes, no core files.

    Memory is RLIMIT_DATA (private writable pages of each process), because an address-space limit also counts reserved
    memory. dash names the process limit `-p`, which means something else to bash, hence the order."""
    cpu_s = limits.cpu_s if limits.cpu_s is not None else int(limits.wall_s) + 1
    return (
        f"ulimit -c 0; ulimit -t {max(1, cpu_s)}; ulimit -d {limits.memory_bytes // 1024}; "
        f"ulimit -f {max(1, limits.disk_bytes // 512)}; "
        f"ulimit -u {limits.num_pids} 2>/dev/null || ulimit -p {limits.num_pids} 2>/dev/null || :"
    )


def split_status(status: int) -> tuple[int | None, int | None]:
    """Exit code and signal from a shell's status, which is 128 + signal for a killed program. A program that exits with
    such a status looks killed; the status cannot distinguish the two."""
    if 128 < status <= 128 + MAX_SIGNAL:
        return None, status - 128
    return status, None


def guess_limit(*, signal: int | None, stderr: bytes) -> Limit | None:
    """The limit behind a failure, from the signal and the end of stderr; None if they name none."""
    if signal == 24:  # SIGXCPU
        return "cpu"
    if signal == 25:  # SIGXFSZ
        return "disk"
    tail = stderr[-400:]
    symptoms: tuple[tuple[Limit, tuple[bytes, ...]], ...] = (
        ("memory", (b"MemoryError", b"Cannot allocate memory")),
        ("disk", (b"No space left on device", b"File too large")),
        ("pids", (b"Resource temporarily unavailable", b"can't start new thread")),
    )
    return next((limit for limit, texts in symptoms if any(text in tail for text in texts)), None)
