"""Measure how often judges of programs are right: ours, and the published rules of LiveCodeBench, APPS and TACO.

    python benchmarks/judges.py [--pairs 2900] [--seed 0] [--real 29]

Compares `--pairs` generated pairs of printed text and expected text, and as many of a call's result and expected value,
whose truth is known (`judge_pairs.py`). The other rules are written here after what their evaluators document and do;
APPS' are also those of verl's `prime_code`. `--real` pairs of either form go through the sandbox as well, where our
verdict must be the same. packages/turnwise-worlds/docs/coding_judges.md says for each difference which rule we chose.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pickle
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise_sandbox.grading.cases import is_close
from turnwise_sandbox.types import Limits
from turnwise_worlds.coding.judge import CallRule, Test, judge_call, run_tests
from turnwise_worlds.coding.runners import WRITER

sys.path.insert(0, str(Path(__file__).parent))
from judge_pairs import Pair, build_call_pairs, build_text_pairs

Judge = Callable[[Any, Any], bool]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2900)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", type=int, default=29)
    arguments = parser.parse_args()
    for form, pairs, judges in (
        ("printed text", build_text_pairs(arguments.pairs, arguments.seed), TEXT_JUDGES),
        ("result of a call", build_call_pairs(arguments.pairs, arguments.seed), CALL_JUDGES),
    ):
        verdicts = {name: [judge_safely(judge, pair) for pair in pairs] for name, judge in judges.items()}
        print("\n".join(show_totals(form, pairs, verdicts)), end="\n\n")
        print("\n".join(show_kinds(form, pairs, verdicts)), end="\n\n")
        print(run_for_real(form, pairs[: arguments.real], verdicts["ours"][: arguments.real]), end="\n\n")


def judge_safely(judge: Judge, pair: Pair) -> bool:
    """A judge's verdict; False if it fails, as the evaluators count it."""
    try:
        return bool(judge(pair.given, pair.wanted))
    except (ValueError, TypeError, KeyError, IndexError, ArithmeticError):
        return False


def show_totals(form: str, pairs: Sequence[Pair], verdicts: dict[str, list[bool]]) -> list[str]:
    """A table with one row per judge."""
    lines = [f"| {form} | pairs | right | false positives | false negatives |", "|---|---|---|---|---|"]
    for name, passed in verdicts.items():
        positives = sum(verdict and not pair.is_right for verdict, pair in zip(passed, pairs, strict=True))
        negatives = sum(pair.is_right and not verdict for verdict, pair in zip(passed, pairs, strict=True))
        share = 1 - (positives + negatives) / len(pairs)
        lines.append(f"| {name} | {len(pairs)} | {share:.1%} | {positives} | {negatives} |")
    return lines


def show_kinds(form: str, pairs: Sequence[Pair], verdicts: dict[str, list[bool]]) -> list[str]:
    """A table with the share passed in every kind on which some judge is wrong."""
    lines = [f"| {form}: share passed | truth | {' | '.join(verdicts)} |", "|---|---|" + "---|" * len(verdicts)]
    for kind in dict.fromkeys(pair.kind for pair in pairs):
        chosen = [number for number, pair in enumerate(pairs) if pair.kind == kind]
        truth = sum(pairs[number].is_right for number in chosen) / len(chosen)
        shares = [sum(passed[number] for number in chosen) / len(chosen) for passed in verdicts.values()]
        if any(passed[number] != pairs[number].is_right for passed in verdicts.values() for number in chosen):
            lines.append(f"| {kind} | {truth:.2f} | {' | '.join(f'{share:.2f}' for share in shares)} |")
    return lines


def run_for_real(form: str, pairs: Sequence[Pair], expected: Sequence[bool]) -> str:
    """The number of verdicts through the sandbox that agree with the rules."""

    async def run() -> int:
        sandbox = SharedSandbox(load_sandbox("local", {}))
        return sum(
            [await _is_judged(sandbox, form, pair) == verdict for pair, verdict in zip(pairs, expected, strict=True)]
        )

    return f"{form}: {asyncio.run(run())} of {len(pairs)} verdicts are the same through the sandbox"


async def _is_judged(sandbox: SharedSandbox, form: str, pair: Pair) -> bool:
    """Whether a program with the pair's result passes its test in the sandbox."""
    is_text = form == "printed text"
    test, rules = (Test(input="", output=pair.wanted), []) if is_text else read_wanted(pair.wanted)
    outcomes = await run_tests(
        sandbox,
        f"import pickle\ndef f(): return pickle.loads({pickle.dumps(pair.given)!r})\n"
        + "print(f(), end='')\n" * is_text,
        [test],
        form="stdin" if is_text else "functional",
        entry="" if is_text else "f",
        limits=Limits(wall_s=10.0),
        seed=0,
        rules=rules,
    )
    return outcomes[0].how == "passed"


# ------------------------------------------------------------------------------------------------ ours


def read_wanted(wanted: Any) -> tuple[Test, list[CallRule]]:
    """The test as in a row of TACO: an output that is a list of one is wrapped."""
    if isinstance(wanted, list) and len(wanted) == 1:
        return Test(input=[], output=wanted[0]), ["wrapped"]
    return Test(input=[], output=wanted), []


def judge_text(given: str, wanted: str) -> bool:
    """Our verdict on a printed text."""
    return is_close(given.encode(), wanted.encode())


def judge_value(given: Any, wanted: Any) -> bool:
    """Our verdict on a result, written as the runner in the sandbox writes it."""
    test, rules = read_wanted(wanted)
    value = json.loads(json.dumps(given, default=_WRITER["write"]))
    return judge_call(["gave", value], test, rules).how == "passed"


_WRITER: dict[str, Any] = {}
exec(WRITER, _WRITER)


# ------------------------------------------------------------------------------------------------ LiveCodeBench


def judge_lines(given: str, wanted: str) -> bool:
    """LiveCodeBench: both stripped and split into equally many lines, which are equal when stripped or the same decimal
    numbers."""
    lines = [[line.strip() for line in text.strip().split("\n")] for text in (given, wanted)]
    return len(lines[0]) == len(lines[1]) and all(
        a == b or _decimals(a) == _decimals(b) for a, b in zip(*lines, strict=True)
    )


def _decimals(line: str) -> list[Decimal]:
    """The numbers in a line. Raises ValueError for any other word."""
    try:
        return [Decimal(word) for word in line.split()]
    except InvalidOperation:
        raise ValueError(line) from None


def judge_equal(given: Any, wanted: Any) -> bool:
    """Equal as Python values, an outer tuple counting as a list."""
    return bool((list(given) if isinstance(given, tuple) else given) == wanted)


# ------------------------------------------------------------------------------------------------ APPS and TACO


def judge_sets_of_words(given: str, wanted: str) -> bool:
    """APPS: lines equal except for spaces and empty ones, or one number per line within numpy's tolerance, or else
    equal sets of the lines' sets of words, finally rounded to three digits."""
    output = given.splitlines()
    if given.strip() == wanted.strip() or "\n".join(map(str.strip, output)).strip() == wanted.strip():
        return True
    expected = [line.strip() for line in wanted.split("\n") if line]
    filled = [line for line in output if line]
    if expected in (output, filled) or _all_close(filled, expected):
        return True
    words = [set(line.split()) for line in filled if line.split()]
    return _same_sets(words, [set(line.split()) for line in expected])


def judge_sets_of_characters(given: str, wanted: str) -> bool:
    """TACO: the same rules on the output as one text, whose "lines" are then its characters and whose "words" of a
    line the characters of a word."""
    if given.strip() == wanted.strip():
        return True
    expected = [line.strip() for line in wanted.split("\n") if line]
    if _all_close(given, expected):
        return True
    return _same_sets([set(word) for word in set(given.split())], [set(line.split()) for line in expected])


def _all_close(given: Sequence[str], wanted: Sequence[str]) -> bool:
    try:
        actual, expected = ([float(line) for line in lines] for lines in (given, wanted))
    except ValueError:
        return False
    return len(actual) == len(expected) and bool(np.allclose(actual, expected))


def _same_sets(given: list[set[str]], wanted: list[set[str]]) -> bool:
    if {*map(frozenset, given)} == {*map(frozenset, wanted)}:
        return True
    try:
        rounded = [{frozenset(round(float(word), 3) for word in line) for line in part} for part in (given, wanted)]
    except ValueError:
        return False
    return rounded[0] == rounded[1]


def judge_first(given: Any, wanted: Any) -> bool:
    """APPS and TACO: the output or its first element, an outer tuple counting as a list, inner ones in the element."""
    value = list(given) if isinstance(given, tuple) else given
    if isinstance(wanted, dict) and all(key.lstrip("-").isdigit() for key in wanted):
        wanted = [{int(key): each for key, each in wanted.items()}]
    if judge_equal(value, wanted):
        return True
    if not isinstance(wanted, list) or not wanted:
        return False
    if judge_equal(value, wanted[0]):
        return True
    is_inner = isinstance(value, list) and value and isinstance(value[0], tuple)
    return bool(is_inner and [list(row) for row in value] == wanted[0])


TEXT_JUDGES: dict[str, Judge] = {
    "ours": judge_text,
    "LiveCodeBench": judge_lines,
    "APPS, prime_code": judge_sets_of_words,
    "TACO": judge_sets_of_characters,
}
CALL_JUDGES: dict[str, Judge] = {"ours": judge_value, "LiveCodeBench": judge_equal, "APPS, TACO": judge_first}

if __name__ == "__main__":
    main()
