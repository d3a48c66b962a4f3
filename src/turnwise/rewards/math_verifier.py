"""Compares mathematical answers safely: in persistent worker processes with limits, killed and replaced when one hangs.

`verify` blocks and may be called from any thread. This module talks to `math_worker` and decides when to give up on it;
the worker decides whether two answers are equal: by their text (`math_spelling`), by math-verify and by their values
(`math_values`), or by the scorer of a reasoning-gym data set.
"""

from __future__ import annotations

import contextlib
import json
import queue
import select
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from turnwise.core.errors import ConfigError, RewardError
from turnwise.rewards.math_answer import parse_integer

_MAX_CHARS = 2_000
"""Maximum length of an answer; a longer one is wrong and never parsed."""

_MAX_REQUESTS = 5_000
"""Number of requests after which a worker is replaced: the libraries' caches only grow."""

_GRACE_S = 60.0
"""Maximum seconds for a worker to start: a process, and the import of a library that takes seconds on a busy
machine."""

_CHECKS = (
    (r"\frac{1}{2}", "0.5", True),
    ("12", "13", False),
    ("(1,2)", "(1, 2)", True),
    ("x+1", "1+x", True),
    ("3", "", False),
    ("7", "7.", True),
    (r"\frac{1}{2004!}", r"\frac{1}{2006!}", False),
    (r"12\text{ cm}", r"12\text{ m}", False),
    ("12", "5 7", False),
    (r"(-\infty, 3)", "x < 3", True),
)
"""(gold, answer, whether they agree): checks at start that comparison works with the installed math-verify."""


def to_plain(value: Any) -> Any:
    """Return the same mappings, lists, tuples and sets, with numpy's texts and numbers converted to Python's, so that
    `repr` writes a literal."""
    if isinstance(value, Mapping):
        return {to_plain(key): to_plain(each) for key, each in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(to_plain(each) for each in value)
    return value.item() if isinstance(value, np.generic) else value


class ComparisonRaised(RewardError):
    """What compares raised an exception: it, or the answer, is at fault; the process goes on."""


class MathVerifier:
    """Runs up to `num_workers` comparisons at a time, each for at most `timeout_s`.

    Workers start on first use, which does not count towards `timeout_s`, and end with this object.
    """

    def __init__(self, *, num_workers: int = 2, timeout_s: float = 10.0, memory_bytes: int = 2 << 30) -> None:
        """`memory_bytes` is the maximum address space of one worker."""
        self._timeout_s = timeout_s
        self._limits = {"limits": {"memory_bytes": memory_bytes, "timeout_s": timeout_s}}
        self._places: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(num_workers):
            self._places.put(None)

    def verify(self, answer: str, golds: Sequence[str]) -> bool:
        """Whether an answer equals one of the gold answers.

        Two plain whole numbers are compared here, everything else in a worker (docs/graders.md says what counts as
        equal).

        Raises RewardError: the comparison took longer than `timeout_s`, ran out of memory, or a gold answer cannot be
        read.
        """
        number = parse_integer(answer)
        numbers = [parse_integer(gold) for gold in golds]
        if number is not None and None not in numbers:
            return number in numbers
        return 0 < len(answer) <= _MAX_CHARS and self._ask({"answer": answer, "golds": list(golds)})

    def score(self, answer: str, dataset: str, entry: Mapping[str, Any]) -> bool:
        """Whether a reasoning-gym data set's own scorer gives the answer full marks. The entry is sent as a Python
        literal.

        Raises RewardError as `verify` does, and ComparisonRaised if the scorer raises or the entry is not a literal.
        """
        return self._ask({"answer": answer, "dataset": dataset, "entry": repr(to_plain(entry))})

    def check(self) -> None:
        """Compare a few answers whose outcome is known.

        Raises ConfigError if math-verify is missing, RewardError if an outcome is wrong.
        """
        if find_spec("math_verify") is None:
            raise ConfigError(
                'comparing all kinds of answers needs math-verify; install it with: pip install "turnwise[math]"'
            )
        for gold, answer, agree in _CHECKS:
            if self.verify(answer, [gold]) != agree:
                raise RewardError(
                    f"math-verify finds {answer!r} {'different from' if agree else 'equal to'} {gold!r}; install "
                    "another version"
                )

    def _ask(self, request: Mapping[str, Any]) -> bool:
        worker = self._places.get()
        try:
            if worker is None or worker.num_requests >= _MAX_REQUESTS:
                worker = _Worker(self._limits)
            reply = worker.ask(request, self._timeout_s)
            if reply is None:
                worker = None
        except BaseException:
            worker = None
            raise
        finally:
            self._places.put(worker)
        if reply is None:
            shown = repr(request["answer"])[:200]
            raise RewardError(
                f"comparing the answer {shown} took longer than {self._timeout_s:g} s or killed its process"
            )
        if "error" in reply:
            raise ComparisonRaised(str(reply["error"]))
        return bool(reply["correct"])


class _Worker:
    """One process. One request at a time."""

    def __init__(self, limits: Mapping[str, Any]) -> None:
        # -P keeps the current folder off the import path, so that no file there can stand in for a library.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "turnwise.rewards.math_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._kill = weakref.finalize(self, _end, self._process)
        self.num_requests = 0
        with contextlib.suppress(BrokenPipeError):
            self._send(limits)

    def _send(self, data: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(data).encode() + b"\n")
        self._process.stdin.flush()

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """Return the reply; None if none arrived in time or the process ended, which it has in both cases
        afterwards."""
        assert self._process.stdout is not None
        self.num_requests += 1
        # The worker's own alarm counts from when it has read the request and imported its library; this one is later,
        # so that the worker's end is noticed as such.
        deadline = time.monotonic() + timeout_s + _GRACE_S
        poll = select.poll()  # select() cannot watch descriptors above 1023
        poll.register(self._process.stdout, select.POLLIN)
        line = b""
        try:
            self._send(request)
            while not line.endswith(b"\n"):
                ready = poll.poll(max(0.0, 1000 * (deadline - time.monotonic())))
                piece = self._process.stdout.read1(65536) if ready else b""  # type: ignore[attr-defined]
                if not piece:
                    self._kill()
                    return None
                line += piece
        except BrokenPipeError:
            self._kill()
            return None
        reply: dict[str, Any] = json.loads(line)
        return reply


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill and reap, and close the pipes."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
