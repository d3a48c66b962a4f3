"""Boxed answers: what is extracted, which whole numbers agree, ReTool's two rules, and comparisons that hang."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import RewardError
from turnwise.core.types import Message, ToolCall, text_message
from turnwise.rewards.boxes import extract_boxed
from turnwise.rewards.math_answer import compute_retool_reward, final_boxed, parse_integer
from turnwise.rewards.math_spelling import says_nothing
from turnwise.rewards.math_verifier import MathVerifier


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{ 7 }.", "7"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{2} and \boxed{3}", "2, 3"),
        (r"$\boxed{2}, \boxed{3}$", "2, 3"),
        (r"$x = \boxed{2}$ or $x = \boxed{3}$.", "2, 3"),
        (r"\boxed{2}\text{ and }\boxed{3}", "2, 3"),
        (r"\boxed{2} and again \boxed{2} and \boxed{3}", "2, 3"),
        ("\\boxed{2}\n\\boxed{2}", "2"),
        (r"\boxed{2}, so the answer is \boxed{3}", "3"),
        (r"$\boxed 2$", "2"),
        (r"$\boxed 25$ is it", "25"),
        (r"$\boxed \frac12 + x$.", r"\frac12 + x"),
        (r"so \boxed 9 as $x$ says", "9"),
        (r"so \boxed 9.", "9"),
        (r"it costs $5, so \boxed 9 is right", "9"),
        (r"\boxed -3", "-3"),
        (r"\boxed1,000", "1,000"),
        (r"\boxed\frac{1}{2}", r"\frac{1}{2}"),
        (r"\boxed", None),
        (r"put it into \boxed", None),
        (r"\boxedarray{3}", None),
        (r"\boxed{4} by \boxed", "4"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{2}}", r"\boxed{2}"),
        (r"\boxed {3}", "3"),
        (r"\fbox{4}", "4"),
        (r"\boxed{a \} b}", r"a \} b"),
        (r"\boxed{5} and \boxed{6", "5"),
        (r"\boxed{ \boxed{8}", "8"),
        (r"\boxed{}", ""),
        ("boxed{9}", None),
        ("", None),
        ("\\", None),
        # A box without braces holds no other one; with braces it does, and what it holds is no second part.
        (r"\boxed\boxed{2}", "2"),
        (r"\boxed{\boxed 2}", r"\boxed 2"),
        (r"\boxed\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed \fbox 2", "2"),
        (r"$\boxed\boxed{2}$", "2"),
        (r"$\boxed 2, \boxed{3}$", "2, 3"),
        (r"\boxed x\boxed{3}", "x, 3"),
        (r"\boxed\boxedness", r"\boxedness"),
    ],
)
def test_the_last_balanced_box(text: str, answer: str | None) -> None:
    assert extract_boxed(text) == answer


@given(
    before=st.text(st.characters(exclude_characters="\\")),
    answer=st.text(st.characters(exclude_characters="\\{}")),
    after=st.text("ab {}"),
)
def test_a_box_comes_back_from_any_text(before: str, answer: str, after: str) -> None:
    assert extract_boxed(f"{before}\\boxed{{{answer}}}{after}") == answer.strip()


def test_many_open_boxes_take_no_time_that_matters() -> None:
    assert extract_boxed("\\boxed{" * 100_000) is None
    assert extract_boxed("$" + "\\boxed 1 x " * 50_000) == "1"
    assert extract_boxed("\\boxed{1}" + " " * 60 + "x\\boxed{2}" * 50_000) == "2"


def test_only_the_last_reply_answers_and_only_without_a_call() -> None:
    call = ToolCall(id="c", name="python", arguments="{}")
    boxed = text_message("assistant", r"\boxed{1}")
    calling = Message(role="assistant", content=boxed.content, tool_calls=(call,))
    thinking = Message(role="assistant", content=(), reasoning=r"\boxed{1}")
    assert final_boxed([calling, boxed]) == "1"
    assert [
        final_boxed(replies)
        for replies in ([], [calling], [boxed, calling], [thinking], [boxed, text_message("assistant", "1")])
    ] == [None] * 5


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("72", 72),
        (" 72 ", 72),
        ("+072", 72),
        ("-5", -5),
        ("$1,234$", 1234),
        (r"1\,234", 1234),
        ("1,234,567", 1234567),
        ("12,34", None),
        ("10, 100", None),
        ("5 7", None),
        ("1 234", None),
        ("7.", 7),
        (r"\$1,234", 1234),
        ("1{,}234", 1234),
        (r"10,\!000", 10000),
        ("- 5", -5),
        ("−5", -5),
        ("1,2", None),
        ("3.0", None),
        ("", None),
        ("-", None),
        ("٧", None),
        ("²", None),
        ("1_000", None),
        ("9" * 1000, int("9" * 1000)),
        ("9" * 1001, None),
    ],
)
def test_plain_whole_numbers(text: str, number: int | None) -> None:
    assert parse_integer(text) == number


@given(st.integers())
def test_a_number_comes_back_however_it_is_grouped(number: int) -> None:
    assert parse_integer(f"{number:,}") == parse_integer(f" ${number}$ ") == number


def test_retools_rules_by_hand() -> None:
    def wrong(num_replies: int) -> float:
        return compute_retool_reward(correct=False, num_replies=num_replies, rule="verl")

    # Messages: 2, 4, 6, 8, 10, 12 -> -1 + 0.05 * (0, 2, 4, 6, 8, 10), never above -0.6.
    assert [wrong(count) for count in (1, 2, 3, 4, 5, 6)] == pytest.approx([-1.0, -0.9, -0.8, -0.7, -0.6, -0.6])
    assert compute_retool_reward(correct=False, num_replies=4, rule="sign") == -1.0
    assert (
        compute_retool_reward(correct=True, num_replies=4, rule="sign")
        == compute_retool_reward(correct=True, num_replies=9, rule="verl")
        == 1.0
    )
    with pytest.raises(ValueError, match="num_replies=0"):
        wrong(0)


# ------------------------------------------------------------------------------------------------ comparing


def children() -> set[int]:
    """Process ids of this process's children."""

    def read() -> Iterator[int]:
        for path in Path("/proc/self/task").glob("*/children"):
            yield from map(int, path.read_text().split())

    return set(read())


def test_whole_numbers_need_no_process() -> None:
    before = children()
    verifier = MathVerifier()
    assert verifier.verify("1,250", ["7", "1250"])
    assert not verifier.verify("1251", ["7", "1250"])
    assert not verifier.verify("", ["1250"])
    assert not verifier.verify("1" * 5000 + "x", ["1250"])  # longer than any answer
    assert children() <= before, "other tests' processes may end meanwhile, none may be new"


def test_a_worker_that_cannot_live_is_an_error_not_a_verdict() -> None:
    before = children()
    verifier = MathVerifier(memory_bytes=1 << 20)
    with pytest.raises(RewardError):
        verifier.verify("x+1", ["1+x"])
    del verifier
    gc.collect()
    assert children() <= before, "other tests' processes may end meanwhile, none may be new"


def test_importing_the_library_takes_no_time_of_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "import time\ntime.sleep(1.2)\ndef get_score_answer_fn(name): return lambda *_: time.sleep({}) or 1.0\n"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "reasoning_gym.py").write_text(slow.format(0))
    assert MathVerifier(timeout_s=1.0).score("1", "any", {})
    (tmp_path / "reasoning_gym.py").write_text(slow.format(5))
    with pytest.raises(RewardError, match=r"took longer than 1 s"):
        MathVerifier(timeout_s=1.0).score("1", "any", {})


@pytest.fixture(scope="module")
def verifier() -> MathVerifier:
    pytest.importorskip("math_verify")
    return MathVerifier(num_workers=1, timeout_s=3.0)


@pytest.mark.parametrize(
    ("answer", "gold", "agree"),
    [
        ("0.5", r"\frac{1}{2}", True),
        (r"\frac12", "0.5", True),
        ("x^2+2x+1", "(x+1)^2", True),
        ("(1,2)", "(1, 2)", True),
        (r"\{2,1\}", r"\{1,2\}", True),
        ("3.0", "3", True),
        ("3.1", "3", False),
        ("{", "3", False),
        ("print(3)", "4", False),
        (r"\text{east}", r"\text{east}", True),
        (r"\frac{1}{2006!}", r"\frac{1}{2004!}", False),
        (r"\frac{1}{3 \cdot 2^{2006}}", r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}", False),
        ("e^{-60}", "e^{-50}", False),
        (r"\frac{x}{10^{31}}", r"\frac{x}{10^{30}}", False),
        ("0.0000008", "0.0000012", False),
        ("0", r"\sqrt{2}\cdot\sqrt{2}-2", True),
        ("0.333333", r"\frac{1}{3}", True),
        ("8.02e-13", "7.95e-13", False),
        ("7.95e-13", "0.000000000000795", True),
        ("0.0000000000001", "0", False),
        ("0.30000000000000004", "0.3", True),
        (r"\{3.0000001, 1\}", r"\{1, 3\}", False),
        ("12 m", "12 cm", False),
        ("12", "12 cm", True),
        ("18 dollars", "18", True),
        ("50", r"50\%", True),
        ("0.5", r"50\%", True),
        ("5", r"50\%", False),
        ("1e10", "10000000000", True),
        ("x<3", r"(-\infty,3)", True),
        ("x-1<2", r"(-\infty,3)", False),
        ("y = -1/2*x + 3/4", "2x+4y-3=0", True),
        ("5 7", "12", False),
        ("x=2 or x=3", "2, 3", True),
        ("2", "2, 3", False),
        ("7.", "7", True),
        (r"\sin 30^\circ", r"\frac{1}{2}", True),
        (r"\sin 31^\circ", r"\frac{1}{2}", False),
        ("12", r"\textbf{(D)}\ 12", True),  # what the letter stands for
        ("13", r"\textbf{(D)}\ 12", False),
    ],
)
def test_what_math_verify_finds_equal(verifier: MathVerifier, answer: str, gold: str, agree: bool) -> None:
    assert verifier.verify(answer, [gold]) is agree


def test_the_check_at_start_passes_and_any_gold_counts(verifier: MathVerifier) -> None:
    verifier.check()
    assert verifier.verify("0.25", ["7", r"\frac{1}{4}"])
    with pytest.raises(RewardError, match=r"math-verify cannot read the gold answer '\$\$'"):
        verifier.verify("x", ["$$"])


@pytest.mark.parametrize(
    "gold", ["$", "...", "{}", r"\text{ }", r"\boxed{", r"3\boxed{}", "}3", '"', r"\$", r"\left\right"]
)
def test_a_gold_answer_that_cannot_be_read_can_be_told_by_its_text(verifier: MathVerifier, gold: str) -> None:
    with pytest.raises(RewardError, match="math-verify cannot read"):
        verifier.verify("x/3", [gold])
    assert says_nothing(gold)


@pytest.mark.parametrize("gold", ["7", r"\{\}", r"\emptyset", "()", "-", r"\text{no}", r"\boxed{3", "3}", "1/", "x="])
def test_a_gold_answer_that_is_odd_can_still_be_compared(verifier: MathVerifier, gold: str) -> None:
    assert not verifier.verify("x/3", [gold])
    assert not says_nothing(gold)


def test_a_comparison_that_hangs_is_ended_and_the_next_one_works(verifier: MathVerifier) -> None:
    before = children()
    with pytest.raises(RewardError, match=r"'9\^\{9\^\{9\^9\}\}' took longer than 3 s"):
        verifier.verify("9^{9^{9^9}}", ["3"])
    assert verifier.verify("0.5", [r"\frac{1}{2}"])
    assert len(children() - {os.getpid()}) <= max(1, len(before))  # the one that hung is gone
