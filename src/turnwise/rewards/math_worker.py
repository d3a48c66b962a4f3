"""The process that compares mathematical answers: one JSON request per line in, one JSON answer per line out.

It runs parsers that may hang or take all memory, so it limits itself before it reads anything, and the kernel ends it
when a request takes too long (an alarm without a handler), whether or not its owner still lives. Importing the library,
seconds on a busy machine, is no part of a request's time. `math_verifier` starts it; nothing imports it.

    {"limits": {"memory_bytes": 2147483648, "timeout_s": 10}}                      first line
    {"answer": "0.5", "golds": ["\\\\frac{1}{2}"]}                                 equal to a gold answer?
    {"answer": "42", "dataset": "chain_sum", "entry": "{...}"}                     right for reasoning-gym?
    {"correct": true} or {"error": "..."}                                          what comes back
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from turnwise.core.errors import RewardError, TurnwiseError, boundary


def compare(answer: str, golds: list[str]) -> bool:
    """Whether math-verify finds the answer equal to one of the gold answers.

    An answer it cannot read is wrong. Raises RewardError for a gold answer that it cannot read.
    """
    math_verify = importlib.import_module("math_verify")
    written = math_verify.parse(f"\\boxed{{{answer}}}", parsing_timeout=None)
    for gold in golds:
        expected = math_verify.parse(f"\\boxed{{{gold}}}", parsing_timeout=None)
        if not expected:
            raise RewardError(f"gold answer {gold[:200]!r} is nothing math-verify can read; correct the data")
        if written and math_verify.verify(expected, written, timeout_seconds=None):
            return True
    return False


def score(answer: str, dataset: str, entry: str) -> bool:
    """Whether a reasoning-gym data set's own scorer gives the answer full marks. The entry is a Python literal: JSON
    would make lists of tuples and texts of numbers that are keys, and some scorers tell them apart."""
    scorer = importlib.import_module("reasoning_gym").get_score_answer_fn(dataset)
    return float(scorer(answer, ast.literal_eval(entry))) >= 1.0


def answer_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to one request: `correct`, or `error` in words."""
    try:
        with boundary(RewardError, "the comparison raised"):
            if "dataset" in request:
                return {"correct": score(request["answer"], request["dataset"], request["entry"])}
            return {"correct": bool(compare(request["answer"], request["golds"]))}
    except TurnwiseError as error:
        return {"error": str(error)}


@contextmanager
def alarm(timeout_s: float) -> Iterator[None]:
    """The kernel ends this process when the body takes longer: the signal keeps its default action."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def take_stdout() -> TextIO:
    """Standard output for this protocol alone: what libraries print from now on goes nowhere."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return channel


def serve() -> None:
    """Answer requests until standard input ends."""
    channel = take_stdout()
    limits = json.loads(sys.stdin.readline() or "null")
    if limits is None:
        return
    memory = limits["limits"]["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    for line in sys.stdin:
        request = json.loads(line)
        with suppress(Exception):  # the reply will say why
            importlib.import_module("reasoning_gym" if "dataset" in request else "math_verify")
        with alarm(limits["limits"]["timeout_s"]):
            reply = answer_request(request)
        channel.write(json.dumps(reply) + "\n")
        channel.flush()


if __name__ == "__main__":
    serve()
