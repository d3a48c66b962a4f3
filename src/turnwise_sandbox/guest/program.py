"""Runs one Python program in a forked interpreter as `python FILE` would. The one place that executes code.

It runs inside the sandbox, in the process that is thrown away afterwards; nothing it reports is trusted.
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
import sys
import threading
import traceback
import types
from typing import Any

FILENAME = "<program>"

_GUEST = os.path.dirname(__file__) + os.sep


class _Entropy:
    """Stands in for the kernel's random bytes, `numpy.random.default_rng()` and whatever else would differ from run to
    run."""

    def __init__(self) -> None:
        self.restart(0)

    def restart(self, seed: int) -> None:
        """Begin the streams of `seed`, whatever was drawn before."""
        self.seed = seed
        self._stream: random.Random | None = None  # made when bytes are wanted: few programs need it
        self._draws = itertools.count()

    def bytes(self, size: int, /) -> bytes:
        """As `os.urandom`."""
        if self._stream is None:
            self._stream = random.Random(~self.seed)
        return self._stream.randbytes(size)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Finds `numpy.random` as usual, and seeds it when a program has loaded it. Importing it from here would load
        numpy twice."""
        if name != "numpy.random":
            return None
        sys.meta_path.remove(self)
        spec: Any = next(
            found for finder in sys.meta_path if (found := finder.find_spec(name, path, target)) is not None
        )
        load = spec.loader.exec_module

        def load_and_seed(module: Any) -> None:
            load(module)
            self.hook_numpy(module)
            module.seed(legacy_seed(self.seed))

        spec.loader.exec_module = load_and_seed
        return spec

    def hook_numpy(self, numpy_random: Any) -> None:
        """Let `default_rng()` draw its seed from here."""
        default_rng, seed_sequence = numpy_random.default_rng, numpy_random.SeedSequence

        def seeded_default_rng(seed: Any = None) -> Any:
            return default_rng(seed_sequence([self.seed, next(self._draws)]) if seed is None else seed)

        seeded_default_rng.__doc__ = default_rng.__doc__
        numpy_random.default_rng = seeded_default_rng


class _SeededWhenUsed(types.ModuleType):
    """A module of numpy's global generator, until a program looks into it. Seeding touches dozens of pages, each of
    which a forked program has to copy, and most programs never draw a number."""

    def __getattribute__(self, name: str) -> Any:
        for module in _numpy_random:
            module.__class__ = types.ModuleType
        _numpy_random[0].seed(legacy_seed(_entropy.seed))
        return getattr(self, name)


_entropy = _Entropy()
_numpy_random: list[Any] = []
"""`numpy.random`, and the module of it that holds the global generator; empty as long as numpy is not preloaded."""


def install_entropy() -> None:
    """Replace every source of randomness by streams of the program's seed. Once per zygote, after preloading."""
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
    """Make `random`, numpy's generators, `uuid`, `secrets` and `os.urandom` functions of `seed`, loaded or not.

    A forked interpreter would otherwise continue its parent's streams: every execution would draw the same numbers.
    String hashes are the same in all of them."""
    seed %= 2**64
    _entropy.restart(seed)
    _random.Random.seed(random._inst, seed)  # type: ignore[attr-defined]
    for module in _numpy_random:
        module.__class__ = _SeededWhenUsed


def legacy_seed(seed: int) -> int:
    """The 32 bits that numpy's legacy generator takes as a number: `seed` itself where it fits, else a multiplicative
    hash of its 64.

    numpy also takes lists, but seeding from one touches dozens of pages more, each of which a forked program has to
    copy."""
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
    """UTF-8 streams on descriptors 0, 1 and 2, whatever these are. Once per zygote: making them anew costs page
    faults."""
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(
        io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8", "replace"
    )  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8", "backslashreplace"
    )  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "utf-8", "backslashreplace", line_buffering=True
    )


def run_python(source: bytes, name: str = FILENAME) -> int:
    """Execute `source` as `__main__` and return its exit status. Prints the traceback of what it raises.

    Runs exit handlers and waits for non-daemon threads, like the interpreter's own shutdown.
    """
    status = execute_as_main(source, name)
    try:
        if threading.active_count() > 1:
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:  # an exit handler may raise anything; the interpreter prints it and goes on
        traceback.print_exc()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            status = status or 120  # what python answers when its last flush fails
    return status


def execute_as_main(source: bytes, name: str) -> int:
    """Execute `source` as a new `__main__` and return the exit status it asks for."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
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
    """The process status that `sys.exit(code)` means; other objects than numbers are printed."""
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
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        report = traceback.TracebackException.from_exception(error)
        report.stack = traceback.StackSummary.from_list(
            [frame for frame in report.stack if not frame.filename.startswith(_GUEST)]
        )
        sys.stderr.write("".join(report.format()))
        sys.stderr.flush()
        return "".join(traceback.format_exception_only(type(error), error)).strip().rsplit("\n", 1)[-1][:2000]
    except BaseException:  # a hostile __str__, a closed stderr: the status already tells
        return type(error).__name__


def warm_up(source: str) -> None:
    """Run `source` of our own with its output thrown away, and format a traceback: what programs do first is then
    loaded."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, FILENAME, "exec"), namespace)
        try:
            raise ValueError("warm")
        except ValueError as error:
            print_error(error, source.encode(), FILENAME)
    linecache.clearcache()
