"""The process that compares mathematical answers: one JSON request per line in, one JSON answer per line out.

It runs parsers that may hang or take all memory, so it limits itself before it reads anything, and the kernel ends it
when a request takes too long (an alarm without a handler), whether or not its owner is still alive. Importing the
library, seconds on a busy machine, does not count towards a request's time. `math_verifier` starts it; nothing imports
it.

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
from turnwise.rewards.math_spelling import decide, drop_label, drop_words, is_bounded, spell
from turnwise.rewards.math_values import have_equal_values
from turnwise.rewards.units import drop_unit


def compare(answer: str, golds: list[str]) -> bool:
    """Whether an answer equals one of the gold answers: by its text if that decides (`math_spelling.decide`), else if
    math-verify finds them equal and their values agree (`math_values`).

    An answer that cannot be read is wrong. Raises RewardError for a gold answer that cannot be read.
    """
    written = spell(answer)
    return any(_equals(written, spell(gold), gold) for gold in golds)


def _equals(answer: str, gold: str, given: str) -> bool:
    """Compare with one gold answer; `given` is the gold answer as written in the data."""
    if gold and (verdict := decide(answer, gold)) is not None:
        return verdict
    gold = drop_label(gold) or gold
    math_verify = importlib.import_module("math_verify")
    expected, written = (
        math_verify.parse(f"\\boxed{{{drop_words(drop_unit(text))}}}", parsing_timeout=None) for text in (gold, answer)
    )
    if not expected:
        raise RewardError(f"math-verify cannot read the gold answer {given[:200]!r}; correct the data")
    # An interval may be written as an inequality, but not as the one that was to be solved.
    if not written or not math_verify.verify(
        expected, written, timeout_seconds=None, allow_set_relation_comp=is_bounded(answer)
    ):
        return False
    # A proportion may be written in percent, with or without the sign: 50%, 50 and 0.5 are one answer.
    return "%" in gold + answer or "percent" in gold + answer or have_equal_values(expected[0], written[0])


def score(answer: str, dataset: str, entry: str) -> bool:
    """Whether a reasoning-gym data set's own scorer gives the answer full marks. The entry is a Python literal: JSON
    would turn tuples into lists and numeric keys into texts, and some scorers distinguish them."""
    scorer = importlib.import_module("reasoning_gym").get_score_answer_fn(dataset)
    return float(scorer(answer, ast.literal_eval(entry))) >= 1.0


def answer_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply to one request: `correct`, or `error` in words."""
    try:
        with boundary(RewardError, "the comparison raised"):
            if "dataset" in request:
                return {"correct": score(request["answer"], request["dataset"], request["entry"])}
            return {"correct": bool(compare(request["answer"], request["golds"]))}
    except TurnwiseError as error:
        return {"error": str(error)}


@contextmanager
def alarm(timeout_s: float) -> Iterator[None]:
    """Let the kernel end this process when the body takes longer: the signal keeps its default action."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def take_stdout() -> TextIO:
    """Reserve standard output for this protocol: what libraries print from now on is discarded."""
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
