r"""Pairs of an answer and its gold answer with truth known by construction, on which graders are tried: mathematics.

Both are the content of `\boxed{}`.
"""

from __future__ import annotations

from fractions import Fraction
from math import factorial
from random import Random

from turnwise.rewards.answer_pairs import Maker, decimal, whole

_NAMES = "abcnxyz"


def _fraction(random: Random) -> Fraction:
    """A fraction in lowest terms that is not a whole number."""
    while (value := Fraction(random.randint(-20, 20), random.randint(2, 15))).denominator == 1:
        pass
    return value


def _latex(value: Fraction) -> str:
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _pair(text: str) -> Maker:
    """Answer and gold answer from one template "answer ~ gold", with A and B two different small numbers and X a
    name."""

    def maker(random: Random) -> tuple[str, str]:
        a = random.randint(2, 9)
        b = random.choice([n for n in range(2, 13) if n != a])
        answer, gold = text.replace("A", str(a)).replace("B", str(b)).replace("X", random.choice(_NAMES)).split(" ~ ")
        return answer, gold

    return maker


def _of_fraction(random: Random, style: str) -> tuple[str, str]:
    value = _fraction(random)
    if style == "slash":
        return f"{value.numerator}/{value.denominator}", _latex(value)
    return _latex(value).replace("frac", "dfrac"), _latex(value)


def _upside_down(random: Random) -> tuple[str, str]:
    while abs((value := _fraction(random)).numerator) == value.denominator or not value:
        pass
    return _latex(1 / value), _latex(value)


def _unreduced(random: Random) -> tuple[str, str]:
    value, times = _fraction(random), random.randint(2, 5)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator) * times}}}{{{value.denominator * times}}}", _latex(value)


def _decimal_of_fraction(random: Random) -> tuple[str, str]:
    value = Fraction(random.choice([n for n in range(-99, 100) if n % 2]), random.choice([4, 8, 20, 40]))
    return f"{float(value):.6f}".rstrip("0"), _latex(value)


def _rounded(random: Random, digits: int) -> tuple[str, str]:
    number = random.choice([3, 7, 9, 11, 13])
    return f"{1 / number:.{digits}f}", rf"\frac{{1}}{{{number}}}"


def _mixed(random: Random, style: str) -> tuple[str, str]:
    base, value = random.randint(1, 9), Fraction(random.randint(1, 4), 5)
    part = f" {value.numerator}/{value.denominator}" if style == "slash" else _latex(value)
    return f"{base}{part}", _latex(base + value)


def _grouped(random: Random) -> tuple[str, str]:
    value = whole(random, 1_000, 9_999_999)
    return f"{value:,}".replace(",", random.choice([",", "{,}", r"\,", r",\!"])), str(value)


def _scientific(random: Random) -> tuple[str, str]:
    a, power = random.randint(1, 9), random.randint(3, 9)
    return random.choice([f"{a}e{power}", rf"{a} \times 10^{{{power}}}", rf"{a}\cdot 10^{power}"]), str(a * 10**power)


def _shuffled(random: Random, style: str) -> tuple[str, str]:
    values = random.sample(range(-9, 20), 3)
    gold = ", ".join(map(str, values))
    first, *rest = sorted(values, key=lambda value: (value == values[0], value))
    answer = ", ".join(map(str, [first, *rest]))
    if style == "set":
        return rf"\{{{answer}\}}", rf"\{{{gold}\}}"
    if style == "tuple":
        return f"({answer})", f"({gold})"
    return answer, gold


def _expanded(random: Random) -> tuple[str, str]:
    a, b = random.randint(1, 9), random.randint(1, 9)
    return f"x^2+{a + b}x+{a * b}", f"(x+{a})(x+{b})"


def _expanded_wrong(random: Random) -> tuple[str, str]:
    a, b = random.randint(1, 9), random.randint(1, 9)
    return f"x^2+{a + b}x+{a * b + 1}", f"(x+{a})(x+{b})"


def _root(random: Random) -> tuple[str, str]:
    a, b = random.randint(2, 6), random.choice([2, 3, 5, 7])
    return random.choice([rf"\sqrt{{{a * a * b}}}", rf"{a}\sqrt({b})", f"{a}√{b}"]), rf"{a}\sqrt{{{b}}}"


def _interval(random: Random) -> tuple[str, str]:
    a = random.randint(-9, 9)
    return random.choice([(f"x < {a}", rf"(-\infty, {a})"), (rf"x \ge {a}", rf"[{a}, \infty)")])


def _tiny(random: Random, of: str) -> tuple[str, str]:
    n = random.randint(60, 400)
    if of == "factorial":
        return rf"\frac{{1}}{{{n + 2}!}}", rf"\frac{{1}}{{{n}!}}"
    if of == "exponential":
        return f"e^{{-{n + 3}}}", f"e^{{-{n}}}"
    if of == "coefficient":
        return rf"\frac{{x}}{{10^{{{n + 1}}}}}", rf"\frac{{x}}{{10^{{{n}}}}}"
    return rf"\frac{{1}}{{3 \cdot 2^{{{n}}}}}", rf"\frac{{2^{{{n - 1}}}+1}}{{3 \cdot 2^{{{n}}}}}"


def _small_decimals(random: Random) -> tuple[str, str]:
    a, b = random.sample(range(51, 149), 2)
    return f"0.00000{a:03d}", f"0.00000{b:03d}"


def _anagram(random: Random) -> tuple[str, str]:
    one, other = random.choice([("east", "seat"), ("even", "neve"), ("south", "shout"), ("Monday", "dynamo")])
    return random.choice([one, rf"\text{{{one}}}"]), random.choice([other, rf"\text{{{other}}}"])


def _words(random: Random) -> tuple[str, str]:
    word = random.choice(["east", "even", "no solution", "Monday", "isosceles", "True"])
    return random.choice([word, word.upper(), rf"\text{{{word}}}"]), rf"\text{{{word}}}"


def _units(random: Random) -> tuple[str, str]:
    one, other = random.sample(["cm", "m", "km", "mm", "ft", "inches", "kg", "hours", "minutes", "days"], 2)
    a = whole(random, 2, 90)
    return random.choice([rf"{a}\text{{ {one}}}", f"{a} {one}"]), rf"{a}\text{{ {other}}}"


def _same_units(random: Random) -> tuple[str, str]:
    spellings = ("cm", "centimeters"), ("m", "meters"), ("ft", "feet"), ("h", "hours"), ("in", "inches")
    one, other = random.sample(random.choice(spellings), 2)
    a = whole(random, 2, 90)
    return rf"{a}\text{{ {one}}}", rf"{a}\text{{ {other}}}"


def _joined(random: Random) -> tuple[str, str]:
    a, b = whole(random, 10, 99), whole(random, 100, 999)
    return random.choice([f"{a}, {b}", f"{a} {b}"]), f"{a}{b}"


def _summed(random: Random) -> tuple[str, str]:
    a, b = random.randint(1, 9), random.randint(1, 9)
    return f"{a} {b}", str(a + b)


def _uncomputed(random: Random) -> tuple[str, str]:
    a, b = whole(random, 11, 99), whole(random, 11, 99)
    return random.choice([(f"{a}+{b}", str(a + b)), (rf"{a} \times {b}", str(a * b)), (f"{a}*{b}", str(a * b))])


def _percent(random: Random) -> tuple[str, str]:
    a = whole(random, 1, 99)
    return random.choice([rf"{a}\%", f"{a / 100:g}"]), rf"{a}\%"


def _off_by_one(random: Random) -> tuple[str, str]:
    a = whole(random, 10**5, 10**9)
    return str(a + random.choice([-1, 1])), str(a)


def _times(random: Random) -> tuple[str, str]:
    hours, minutes = random.sample(range(1, 13), 2)
    return f"{hours}:00", f"{minutes}:00"


def _matrix(random: Random, transposed: bool) -> tuple[str, str]:
    a, b, c, d = random.sample(range(-9, 10), 4)
    gold = rf"\begin{{pmatrix}}{a}&{b}\\{c}&{d}\end{{pmatrix}}"
    answer = rf"\begin{{bmatrix}}{a}&{c}\\{b}&{d}\end{{bmatrix}}" if transposed else gold.replace("pmatrix", "bmatrix")
    return answer, gold


def _solution(random: Random) -> tuple[str, str]:
    a = random.randint(1, 20)
    return f"x-{a}=0", f"x={a}"


RIGHT: dict[str, Maker] = {
    "same text": lambda random: (decimal(random),) * 2,
    "whole number, grouped": _grouped,
    "whole number, full stop": lambda random: (f"{(a := whole(random))}.", str(a)),
    "whole number as a decimal": lambda random: (f"{(a := whole(random))}.0", str(a)),
    "minus sign of typography": lambda random: (f"\u2212{(a := decimal(random))}", f"-{a}"),
    "scientific": _scientific,
    "fraction with a slash": lambda random: _of_fraction(random, "slash"),
    "fraction in display style": lambda random: _of_fraction(random, "display"),
    "fraction, unreduced": _unreduced,
    "fraction as a decimal": _decimal_of_fraction,
    "mixed number": lambda random: _mixed(random, "latex"),
    "mixed number with a slash": lambda random: _mixed(random, "slash"),
    "percent": _percent,
    "dollars": lambda random: (rf"\${(a := whole(random))}", str(a)),
    "what was counted": lambda random: (f"{(a := whole(random))} {random.choice(['apples', 'dollars'])}", str(a)),
    "unit skipped": lambda random: (str(a := whole(random)), rf"{a}\text{{ cm}}"),
    "unit spelled out": _same_units,
    "degrees": lambda random: (f"{(a := whole(random, 1, 180))}°", rf"{a}^\circ"),
    "variable named": lambda random: (f"x = {(a := whole(random))}", str(a)),
    "list in another order": lambda random: _shuffled(random, "list"),
    "set in another order": lambda random: _shuffled(random, "set"),
    "list with and": _pair("B and A ~ A, B"),
    "list with names": _pair("x = A or x = B ~ A, B"),
    "plus or minus": _pair(r"A, -A ~ \pm A"),
    "expanded product": _expanded,
    "root": _root,
    "power in Python's way": _pair("Ax**B ~ Ax^{B}"),
    "pi": _pair("Api ~ A\\pi"),
    "logarithm": _pair(r"\ln(A^B) ~ B\ln A"),
    "trigonometric identity": _pair(r"1-\cos^2 x ~ \sin^2 x"),
    "interval as an inequality": _interval,
    "union in another order": _pair(r"(20,30)\cup(A,1B) ~ (A,1B)\cup(20,30)"),
    "equation of a line": _pair("y = Ax - B ~ Ax - y = B"),
    "matrix in other brackets": lambda random: _matrix(random, False),
    "word": _words,
    "letter of a choice": _pair(r"\textbf{(C)}\ A ~ \text{(C)}"),
    "choice with a point": _pair("D. A ~ D"),
    "base": _pair("101101_{2} ~ 101101_2"),
    "rounding noise": lambda random: (repr((a := random.randint(1, 9)) * 0.1 + 1e-16), f"0.{a}"),
    "six digits of a fraction": lambda random: _rounded(random, 6),
    "bold": lambda random: (f"**{(a := whole(random))}**", str(a)),
}
"""Answers that are equal to the gold answer."""

WRONG: dict[str, Maker] = {
    "number off by one": _off_by_one,
    "sign lost": lambda random: ((a := decimal(random)), f"-{a}"),
    "point lost": lambda random: ((a := decimal(random)).replace(".", ""), a),
    "numbers joined": _joined,
    "numbers added": _summed,
    "sum or product, not computed": _uncomputed,
    "one of two solutions": _pair("A ~ A, B"),
    "one too many": _pair("A, B, 15 ~ A, B"),
    "one of plus and minus": _pair(r"A ~ \pm A"),
    "tuple in another order": lambda random: _shuffled(random, "tuple"),
    "tuple, for a set": _pair(r"(A, B) ~ \{A, B\}"),
    "open, for closed": _pair("(A, 2B) ~ [A, 2B]"),
    "fraction upside down": _upside_down,
    "rounded too early": lambda random: _rounded(random, 2),
    "tiny factorials": lambda random: _tiny(random, "factorial"),
    "tiny exponentials": lambda random: _tiny(random, "exponential"),
    "tiny powers": lambda random: _tiny(random, "power"),
    "tiny coefficients": lambda random: _tiny(random, "coefficient"),
    "small decimals": _small_decimals,
    "large roots": lambda random: (f"10^{{{(n := random.randint(15, 40))}}}", rf"\sqrt{{10^{{{2 * n}}}+1}}"),
    "large factorials": lambda random: (str(factorial(n := random.randint(12, 20)) + 1), f"{n}!"),
    "another unit": _units,
    "another power of a unit": _pair(r"A\text{ cm}^2 ~ A\text{ cm}^3"),
    "another base": _pair("1011_A ~ 1011_B"),
    "of time": _times,
    "another sequence with dots": _pair(r"1, A, \ldots, n ~ 1, B, \ldots, n"),
    "anagram": _anagram,
    "another word": _pair(r"\text{yes} ~ \text{no}"),
    "another letter": _pair(r"(C) A ~ \text{(D)}"),
    "another variable": _pair("Ax+B ~ Ay+B"),
    "another coefficient": _expanded_wrong,
    "another line": _pair("y = Ax + 1 ~ y = Bx + 1"),
    "equation, for its solution": _solution,
    "matrix transposed": lambda random: _matrix(random, True),
    "repeated root": _pair("A ~ A, A"),
    "capital of a variable": _pair("N ~ n"),
    "nothing": lambda random: ("", str(whole(random))),
}
"""Answers that are not equal to it."""
