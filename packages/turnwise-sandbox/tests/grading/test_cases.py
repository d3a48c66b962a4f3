"""Programs graded by their output."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_sandbox.grading.cases import Case, grade_cases, is_close, is_exact, is_same_tokens
from turnwise_sandbox.types import Limits, Program

CASES = (Case(stdin=b"2\n", expected=b"4\n"), Case(stdin=b"0.1\n", expected=b"0.2\n"))


def outcomes(sandbox: Any, code: str, comparison: Any = "tokens", cases: tuple[Case, ...] = CASES) -> list[str | None]:
    limits = Limits(wall_s=1 if "while True" in code else 60)
    graded = asyncio.run(grade_cases(sandbox, Program(code=code), cases, limits=limits, comparison=comparison))
    assert all(outcome.passed == (outcome.reason is None) for outcome in graded)
    return [outcome.reason for outcome in graded]


def test_a_right_program_passes_and_the_comparison_decides_how_right(sandbox: Any) -> None:
    doubling = "x = float(input()); print(int(2 * x) if x == 2 else 2 * x + 1e-9)"
    assert outcomes(sandbox, doubling, "floats") == [None, None]
    assert outcomes(sandbox, doubling, "tokens") == [None, "printed something else than expected"]
    assert outcomes(sandbox, "print(' 4  ')", "tokens", CASES[:1]) == [None]
    assert outcomes(sandbox, "print(' 4  ')", "exact", CASES[:1]) == ["printed something else than expected"]


def test_a_program_that_does_not_end_well_fails_whatever_it_printed(sandbox: Any) -> None:
    ends = {
        "import sys; print(4); sys.exit(1)": "ended with status 1, signal None",
        "import os; print(4, flush=True); os.kill(os.getpid(), 9)": "ended with status None, signal 9",
        "print(4, flush=True)\nwhile True: pass": "hit its wall limit",
        "print(4); print(' ' * (1 << 20))": "printed too much",
        "import os; os._exit(0)": "printed something else than expected",
        "print('PASS')": "printed something else than expected",
    }
    assert {code: outcomes(sandbox, code, "tokens", CASES[:1])[0] for code in ends} == ends


def test_nothing_to_compare_is_refused(sandbox: Any) -> None:
    with pytest.raises(ValueError, match="no cases"):
        asyncio.run(grade_cases(sandbox, Program(code=""), ()))
    with pytest.raises(ValueError, match="unknown comparison"):
        asyncio.run(grade_cases(sandbox, Program(code=""), CASES, comparison="same"))  # type: ignore[arg-type]


def test_comparisons() -> None:
    assert is_exact(b"a\n", b"a\n")
    assert not is_exact(b"a", b"a\n")
    assert is_same_tokens(b"1\t2\r\n3", b"1 2 3\n")
    assert not is_same_tokens(b"12 3", b"1 23")
    assert is_close(b"nan inf", b"nan inf")
    assert not is_close(b"1", b"1 1")
    assert not is_close(b"yes", b"1")


@pytest.mark.parametrize(
    ("actual", "expected", "close"),
    [
        (b"1234567891", b"1234567890", False),
        (b"101", b"00101", False),
        (b"+5", b"5", False),
        (b"-0", b"0", False),
        (b"9" * 5000, b"9" * 5000, True),
        (b"9" * 5000, b"9" * 4999 + b"8", False),
        (b"9" * 5000 + b".0", b"9" * 5000, True),
        (b"3.0", b"3", True),
        (b"2.9999999", b"3", True),  # 1e-7
        (b"3.000002", b"3", False),
        (b"1000000.5", b"1000000", False),  # 0.5: half of one, however large the number
        (b"1e18", b"1000000000000000000", True),
        (b"500000000500000000.0", b"500000000500000001", False),  # what a division of floats loses
        (b"3", b"3.0", True),
        (b"1000000.5", b"1000000.0", True),  # 0.5 <= 1e-6 * 1e6 = 1
        (b"1000002", b"1000000.0", False),  # 2 > 1
        (b"1000002.0", b"1000000.0", False),
        (b"0.0000009", b"0.0", True),
        (b"0.000002", b"0.0", False),
        (b"-0.0", b"0.0", True),
        (b".5", b"0.5", True),
        (b"5.", b"5.0", True),
        (b"1_000.0", b"1000.0", False),
        (b"0x10", b"16.0", False),
        (b"nan", b"1.0", False),
        (b"inf", b"1.0", False),
        (b"1.0", b"inf", False),
        (b"1e999999999999999999999", b"1.0", False),
        (b"1e-400", b"0.0", True),
        (b"1e400", b"2e400", False),
        (b"\xd9\xa3.0", b"3.0", False),  # an Arabic three
    ],
)
def test_which_numbers_are_close(actual: bytes, expected: bytes, close: bool) -> None:
    assert is_close(actual, expected) is close


@given(st.lists(st.text("ab 1.\n", max_size=5), max_size=5))
def test_exact_implies_tokens_implies_floats(lines: list[str]) -> None:
    content = "\n".join(lines).encode()
    assert is_exact(content, content)
    assert is_same_tokens(content, content)
    assert is_close(content, content)
