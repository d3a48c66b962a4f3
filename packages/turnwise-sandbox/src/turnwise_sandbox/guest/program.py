"""Runs one Python program in a forked interpreter, as `python FILE` would.

It runs inside the sandbox, in a process that ends with the program; nothing that it reports is trusted.
"""

from __future__ import annotations

import _random
import atexit
import builtins
import contextlib
import io
import itertools
import linecache
import os
import random
import signal
import sys
import threading
import traceback
import types
from typing import Any

FILENAME = "<program>"

_GUEST = os.path.dirname(__file__) + os.sep


class _Entropy:
    """Seeded replacements for the kernel's random bytes and the default seed of `numpy.random.default_rng()`."""

    def __init__(self) -> None:
        self.restart(0)

    def restart(self, seed: int) -> None:
        """Begin the streams of `seed` from their start."""
        self.seed = seed
        self._stream: random.Random | None = None  # made at the first use: few programs need it
        self._draws = itertools.count()

    def bytes(self, size: int, /) -> bytes:
        """Replaces `os.urandom`."""
        if self._stream is None:
            self._stream = random.Random(~self.seed)
        return self._stream.randbytes(size)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find `numpy.random` as usual, and seed it after a program has loaded it."""
        if name != "numpy.random":
            return None
        sys.meta_path.remove(self)
        spec: Any = next(
            first for finder in sys.meta_path if (first := finder.find_spec(name, path, target)) is not None
        )
        load = spec.loader.exec_module

        def load_and_seed(module: Any) -> None:
            load(module)
            self.hook_numpy(module)
            module.seed(legacy_seed(self.seed))

        spec.loader.exec_module = load_and_seed
        return spec

    def hook_numpy(self, numpy_random: Any) -> None:
        """Let `default_rng()` without a seed take its seed from this object."""
        default_rng, seed_sequence = numpy_random.default_rng, numpy_random.SeedSequence

        def seeded_default_rng(seed: Any = None) -> Any:
            return default_rng(seed_sequence([self.seed, next(self._draws)]) if seed is None else seed)

        seeded_default_rng.__doc__ = default_rng.__doc__
        numpy_random.default_rng = seeded_default_rng


class _SeededWhenUsed(types.ModuleType):
    """A numpy module whose global generator is seeded when a program first reads an attribute. Seeding touches dozens
    of pages, which each forked program would have to copy, and most programs never draw a number."""

    def __getattribute__(self, name: str) -> Any:
        for module in _numpy_random:
            module.__class__ = types.ModuleType
        _numpy_random[0].seed(legacy_seed(_entropy.seed))
        return getattr(self, name)


_entropy = _Entropy()
_numpy_random: list[Any] = []
"""`numpy.random` and its module with the global generator; empty if `numpy.random` is not preloaded."""


def install_entropy() -> None:
    """Replace every source of randomness by streams of the program's seed. Call once per zygote, after preloading."""
    os.urandom = random._urandom = _entropy.bytes  # type: ignore[attr-defined]
    plain_seed = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        plain_seed(self, int.from_bytes(_entropy.bytes(16)) if a is None else a, version)

    random.Random.seed = seed  # type: ignore[assignment]
    random.seed = random._inst.seed  # type: ignore[attr-defined]
    if "numpy.random" in sys.modules:
        _numpy_random.extend(sys.modules[name] for name in ("numpy.random", "numpy.random.mtrand"))
        _entropy.hook_numpy(_numpy_random[0])
    else:
        sys.meta_path.insert(0, _entropy)


def seed_everything(seed: int) -> None:
    """Make `random`, numpy's generators, `uuid`, `secrets` and `os.urandom` functions of `seed`, also when they are
    imported later.

    A forked interpreter would otherwise continue its parent's streams, and every execution would draw the same numbers.
    Hashes of strings do not depend on the seed."""
    seed %= 2**64
    _entropy.restart(seed)
    _random.Random.seed(random._inst, seed)  # type: ignore[attr-defined]
    for module in _numpy_random:
        module.__class__ = _SeededWhenUsed


def legacy_seed(seed: int) -> int:
    """A 32-bit seed for numpy's legacy generator: `seed` itself if it fits, else a multiplicative hash of its 64 bits.

    numpy also takes a list of numbers, but seeding from a list touches dozens of pages more."""
    return seed if seed < 2**32 else (seed * 0x9E3779B97F4A7C15) % 2**64 >> 32


def write_files(files: list[tuple[str, bytes]]) -> None:
    """Write files below the current folder, making their folders."""
    for name, content in files:
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(name, "wb") as file:
            file.write(content)


def open_streams() -> None:
    """Open UTF-8 streams on descriptors 0, 1 and 2. Call once per zygote: opening them in each program costs page
    faults."""
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8", "replace"
    )
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8", "backslashreplace"
    )
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "utf-8", "backslashreplace", line_buffering=True
    )


def flush_at_limits() -> None:
    """Let a program write what its streams hold when its time is over: at SIGXCPU, which the kernel sends for processor
    time and the cell for real time. Call once per zygote: forks inherit it, and what they execute does not."""
    signal.signal(signal.SIGXCPU, _flush_and_end)


def _flush_and_end(number: int, frame: object) -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(BaseException):  # closed, replaced, or in the middle of a write
            stream.flush()  # type: ignore[union-attr]
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def run_python(source: bytes, name: str = FILENAME) -> int:
    """Execute `source` as `__main__` and return its exit status. Prints the traceback of what it raises.

    Runs exit handlers and waits for non-daemon threads, as the interpreter does at its end.
    """
    status = execute_as_main(source, name)
    try:
        if threading.active_count() > 1:
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:  # the interpreter also prints what an exit handler raises, and continues
        traceback.print_exc()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            status = status or 120  # the status of Python when its last flush fails
    if sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__:
        for original in (sys.__stdout__, sys.__stderr__):  # Python closes these after the flush, without a status
            with contextlib.suppress(OSError, ValueError, AttributeError):
                original.flush()  # type: ignore[union-attr]
    return status


class _Main(types.ModuleType):
    """`__main__` of a program without a file. The file is written when its path is requested, because multiprocessing
    passes the path to processes that it starts by "spawn" and "forkserver"."""

    def __getattr__(self, name: str) -> str:
        if name != "__file__" or not _sources:
            raise AttributeError(f"module '__main__' has no attribute {name!r}")
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), ".main.py")
        try:
            with open(path, "wb") as file:
                file.write(_sources[-1])
        except OSError as cause:
            raise AttributeError(f"module '__main__' has no file: {cause}") from None
        return path


_sources: list[bytes] = []
"""The text of the program that runs."""


def execute_as_main(source: bytes, name: str) -> int:
    """Execute `source` as a new `__main__` and return the exit status it asks for."""
    main = sys.modules["__main__"] = _Main("__main__")
    _sources[:] = [source]
    main.__dict__["__builtins__"] = builtins
    sys.argv = [name]
    return _execute(source, name, main.__dict__)


def _execute(source: bytes, name: str, namespace: dict[str, Any]) -> int:
    try:
        code = compile(source, name, "exec", dont_inherit=True)
        exec(code, namespace)
    except SystemExit as leave:
        return exit_status(leave.code)
    except BaseException as error:
        print_error(error, source, name)
        return 1
    return 0


def exit_status(code: object) -> int:
    """The exit status for `sys.exit(code)`. Prints a `code` that is neither a number nor None."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{code}\n")
    return 1


def print_error(error: BaseException, source: bytes, name: str) -> str:
    """Print the traceback without the frames of this module; returns its last line. Never raises."""
    try:
        text = source.decode("utf-8", "replace")
        linecache.cache[name] = (len(text), None, io.StringIO(text, newline=None).readlines(), name)
        report = traceback.TracebackException.from_exception(error)
        report.stack = traceback.StackSummary.from_list(
            [frame for frame in report.stack if not frame.filename.startswith(_GUEST)]
        )
        sys.stderr.write("".join(report.format()))
        sys.stderr.flush()
        return "".join(traceback.format_exception_only(type(error), error)).strip().rsplit("\n", 1)[-1][:2000]
    except BaseException:  # a hostile __str__ or a closed stderr; the exit status reports the error anyway
        return type(error).__name__


def warm_up(source: str) -> None:
    """Run trusted `source` without output, and format a traceback, so that what programs do first is loaded."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, FILENAME, "exec"), namespace)
        try:
            raise ValueError("warm")
        except ValueError as error:
            print_error(error, source.encode(), FILENAME)
    linecache.clearcache()
