"""What the text of two mathematical answers decides, and what is written alike before anything is parsed."""

from __future__ import annotations

import pytest

from turnwise.rewards.math_spelling import decide, drop_label, drop_words, is_bounded, spell
from turnwise.rewards.units import drop_unit, read_unit


@pytest.mark.parametrize(
    ("answer", "spelled"),
    [
        ("7.", "7"),
        ("$7$.", "7"),
        ("**73**", "73"),
        (r"\boxed{5}", "5"),
        ("{5}", "5"),
        ("{1,2}", "{1,2}"),
        ("x**2", "x^2"),
        ("\\sqrt(2)", r"\sqrt{2}"),
        ("\u221a(x+1)", r"\sqrt{x+1}"),
        ("1\\,234.5", "1234.5"),
        ("9{,}500", "9500"),
        ("10,\\!000", "10000"),
        ("2.5e-3", r"2.5 \times 10^{-3}"),
        ("5 1/2", r"5\frac{1}{2}"),
        ("5 7", "5, 7"),
        ("5 -7", "5, -7"),
        (r"\frac 3 4", r"\frac 3 4"),
        (r"\log_2 8", r"\log_2 8"),
        (r"\left[1,2\right)", "[1,2)"),
        (r"\leftarrow", r"\leftarrow"),
        ("\u221290\u00b0", r"-90^\circ"),
        ("2\u00bd", r"2\frac{1}{2}"),
        (r"\text{13}", "13"),
        (r"x \in (3,\infty)", r"(3,\infty)"),
        ("$$", ""),
        (r"\varnothing", r"\emptyset"),
        (r"\sin 30^\circ", r"\sin\frac{30\pi}{180}"),
        (r"2\cos(-7.5^{\circ})", r"2\cos\frac{-7.5\pi}{180}"),
    ],
)
def test_spelling(answer: str, spelled: str) -> None:
    assert spell(answer) == spelled
    assert spell(spelled) == spelled


@pytest.mark.parametrize(
    ("answer", "gold", "verdict"),
    [
        ("(1, 2)", "(1,2)", True),
        ("", "3", False),
        ("seat", "east", False),
        (r"\text{East}", "east", True),
        ("yes", "Yes", True),
        ("no", "yes", False),
        (r"\text{no}", r"\text{on}", False),
        ("AB", "BA", None),  # a product
        ("(B) 5", "B", True),
        (r"\textbf{(B)}\ 5", r"\text{(B)}", True),
        ("C. 5", "B", False),
        ("D", r"\textbf{(D)}\ 12", True),  # the letter alone, of a gold answer with what it stands for
        ("C", r"\textbf{(D)}\ 12", False),
        (r"\textbf{(C)}\ 12", r"\textbf{(D)}\ 12", False),
        ("D", "D. 12", True),
        (r"\text{Option D}", "D", True),
        ("Choice (C)", "D", False),
        ("a", "(a)(b+1)", None),  # a product
        ("A", "(A) 5, (B) 7", None),  # two parts
        (r"\text{B and C}", "C, B", True),
        ("A, C", r"\text{B,C}", False),
        (r"\forall x>0, f(x) = 0", "f(x) = 0", False),
        (r"1, 3, 5, \ldots, 2n-1", r"1, 2, \ldots, n", False),
        (r"1, 2, \dots, n", r"1, 2, \ldots, n", True),
        ("12:00", "1:00", False),
        ("03:45", "3:45", True),
        ("3:45", r"3:45\text{ p.m.}", True),
        ("3:45 AM", r"3:45\text{ p.m.}", False),
        ("3:4", "6:8", None),  # a ratio
        ("101_3", "101_2", False),
        (r"11_{\text{two}}", "11_2", None),
        ("101_2", "101", None),
        ("12 m", "12 cm", False),
        ("12 centimeters", "12 cm", None),
        ("12", "12 cm", None),
        (r"3\text{ cm}^3", r"3\text{ cm}^2", False),
        ("5 cents", r"\$5", False),
        ("(2,1)", r"\{1,2\}", False),
        (r"\{1,2\}", "(1,2)", False),
        ("x-5=0", "x=5", False),
        ("x=5", "x=5.0", None),
        ("5", "x=5", None),
        ("2+3", "5", False),
        ("x=2+3", "5", False),
        (r"2 \cdot 3", "6", False),
        ("2*3^2", "18", False),
        ("10/2", "5", None),
        (r"5 \times 10^{2}", "500", None),
        ("2^{10}", "1024", None),
        ("-5", "5", None),
        (r"2\sqrt{3}+1", r"1+2\sqrt{3}", None),
        ("2+3", "x", None),
    ],
)
def test_what_text_decides(answer: str, gold: str, verdict: bool | None) -> None:
    assert decide(answer, gold) is verdict


@pytest.mark.parametrize(
    ("answer", "value", "unit"),
    [
        ("12 cm", "12", "cm"),
        (r"12\text{ cm}", "12", "cm"),
        (r"\frac{1}{2}\text{ hours}", r"\frac{1}{2}", "h"),
        (r"6\pi\text{ cm}^{3}", r"6\pi", "cm^3"),
        ("3 square feet", "3", "ft^2"),
        (r"5\text{ km/h}", "5", "km/h"),
        ("5 miles per hour", "5", "mi/h"),
        (r"90^{\circ}", "90", "degree"),
        (r"\$18", "18", "dollar"),
    ],
)
def test_units(answer: str, value: str, unit: str) -> None:
    assert read_unit(answer) == (value, unit)
    assert drop_unit(answer) == (value if unit != "km/h" or "text" in answer else answer)


def test_what_is_no_unit_stays() -> None:
    assert [read_unit(text) for text in ("12", "x", "min", r"12\text{ apples}", "")] == [None] * 5
    assert drop_unit("12 m") == "12 m", "a variable, for all that is known"
    assert drop_words("18 dollars") == "18"
    assert [drop_words(text) for text in ("18 x", "x apples", "18", "dollars 18")] == [
        "18 x",
        "x apples",
        "18",
        "dollars 18",
    ]


def test_an_inequality_that_only_bounds_a_variable() -> None:
    assert all(map(is_bounded, ("x < 3", r"3 \le x", r"-1 < x \leq \frac{1}{2}", r"x > -\infty")))
    assert not any(map(is_bounded, ("x - 1 < 2", "2x < 6", "x < y", "x", "3", "x^2 < 9")))


@pytest.mark.parametrize(
    ("answer", "spelled"),
    [
        (r"0.\overline{3}", r"\frac{1}{3}"),
        (r"-0.1\bar 6", r"-\frac{1}{6}"),  # (16 - 1) / 90
        (r"0.\dot{1}4285\dot{7}", r"\frac{1}{7}"),  # 142857 / 999999
        (r".\overline{9}", "1"),
        (r"4.\overline{6}, 0.5", r"\frac{14}{3}, 0.5"),  # (46 - 4) / 9
        (r"\overline{AB}", r"\overline{AB}"),
        (r"0.\overline{3}4", r"0.\overline{3}4"),
    ],
)
def test_digits_that_repeat_without_end_are_a_fraction(answer: str, spelled: str) -> None:
    assert spell(answer) == spelled
    assert spell(spelled) == spelled


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\textbf{(D)}\ 12", "12"),
        (r"\textbf{(D) }12", "12"),
        (r"\text{(B)}\frac{1}{2}", r"\frac{1}{2}"),
        ("D. 12", "12"),
        ("(A) 5, (B) 7", None),
        ("(A)(B)", None),
        ("(a)(b)", None),
        ("D", None),
    ],
)
def test_what_a_lettered_choice_stands_for(text: str, value: str | None) -> None:
    assert drop_label(text) == value
