r"""Treats mathematical answers as text, before they are parsed: unifies spellings with the same meaning, and decides
the cases that text alone settles. Pure functions.

math-verify reads a word as a product of letters ("east" is "seat"), drops units, bases and dots, adds up adjacent
numbers ("5 7" is 12), and evaluates what the task asked to evaluate (2+3 is 5). `decide` settles these cases.
"""

from __future__ import annotations

import re
from fractions import Fraction

from turnwise.rewards.units import read_unit

_SIGNS = str.maketrans(
    {
        "\u2212": "-",
        "\u2013": "-",
        "\u00d7": r"\times ",
        "\u22c5": r"\cdot ",
        "\u00b7": r"\cdot ",
        "\u00f7": r"\div ",
        "\u2264": r"\le ",
        "\u2265": r"\ge ",
        "\u2260": r"\ne ",
        "\u00b1": r"\pm ",
        "\u221e": r"\infty ",
        "\u03c0": r"\pi ",
        "\u00b0": r"^\circ ",
        "\u222a": r"\cup ",
        "\u2208": r"\in ",
        "\u00bd": r"\frac{1}{2}",
        "\u00bc": r"\frac{1}{4}",
        "\u00be": r"\frac{3}{4}",
        "\u2153": r"\frac{1}{3}",
        "\u2154": r"\frac{2}{3}",
        "\u00b2": "^2",
        "\u00b3": "^3",
        "\u2026": r"\ldots ",
        "\u00a0": " ",
        "\u202f": r"\,",
        "\u2009": r"\,",
    }
)
_DEGREES = r"([-+]?\d+(?:\.\d+)?)\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))"
_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|displaystyle|limits)(?![A-Za-z])\s*", ""),
        (r"\\[dt]frac", r"\\frac"),
        (r"\A\*\*(.*)\*\*\Z", r"\1"),
        (r"\A(?:\\(?:boxed|fbox)\s*)?\{([^{},]*)\}\Z", r"\1"),
        (r"\*\*", "^"),
        (r"\u221a\s*(?:\(([^()]*)\)|(\w+))", r"\\sqrt{\1\2}"),
        (r"\\?\bsqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi "),
        (r"(?<=\d)(?:\{,\}|,?\\[,;!]|,?\\ )(?=\d{3}(?!\d))", ""),
        (r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?!\w)", r"\1 \\times 10^{\2}"),
        (r"10\^\{\+", "10^{"),
        (r"(?<![\d.,/}])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.])", r"\1\\frac{\2}{\3}"),
        (r"\\mathrm\{e\}", "e"),
        (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
        # math-verify takes the argument of a function for radians, with or without the sign
        (rf"\\(sin|cos|tan|cot|sec|csc)\s*(?:{_DEGREES}|\(\s*{_DEGREES}\s*\))", r"\\\1\\frac{\2\3\\pi}{180}"),
        (r"\\text\{\s*([-+\d.,/]+)\s*\}", r"\1"),
        (r"\A[A-Za-z]\s*\\in\s*(?=[\[(\\])", ""),
    )
)
_PERIOD = re.compile(
    r"""(?<![\d.,])(?P<whole>\d{0,40})\.(?P<fixed>\d{0,40})
        (?:\\(?:overline|bar|overbar)\s*(?:\{\s*(?P<period>\d{1,40})\s*\}|(?P<one>\d))
        |\\dot\s*\{?(?P<first>\d)\}?(?:(?P<middle>\d{0,40})\\dot\s*\{?(?P<last>\d)\}?)?)(?![\d.\\])""",
    re.VERBOSE,
)
"""A decimal number whose repeating digits are marked by a bar or by dots."""
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_]+(?:[\s'-]+[^\W\d_]+)*")
_SHORT_WORDS = frozenset({"yes", "no", "odd", "even", "all", "none", "true", "false", "and", "or"})
_PLAIN = r"[-+]?\s*(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(_PLAIN)
_SCIENTIFIC = re.compile(rf"{_PLAIN}\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{{[-+]?\d+\}}|\d)")
_FACTOR = rf"(?:{_PLAIN}(?:\^\s*(?:\{{[-+]?\d+\}}|\d))?|\\frac\{{\d+\}}\{{\d+\}}|\([-+]?\d+\))"
_UNCOMPUTED = re.compile(rf"{_FACTOR}(?:(?:[-+*/]|\\times|\\cdot|\\div){_FACTOR})+")
"""Matched without spaces, so that there is only one way to match it."""
_FRACTION = re.compile(rf"{_PLAIN}\s*/\s*\d+")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_NOTHING = re.compile(
    r"""(?:\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname|boxed|fbox|q?quad)(?![A-Za-z])
        |\\[,;:!\ \\$]|[\s{}$.,;"'`~])*""",
    re.VERBOSE,
)
"""Spaces, dollar signs, braces, sentence endings, and commands that only affect how a text looks."""
_EMPTY_BOX = re.compile(r"""\\boxed\s*\{[\s{$.,;"'`~]*(?:\}|\Z)""")
_ROW = re.compile(r"[-+\d.,/\s]+")
"""Numbers side by side."""
_COUNTED = re.compile(rf"({_PLAIN})\s+[^\W\d_]{{2,}}(?:\s+[^\W\d_]+)*")
_DOTS = re.compile(r"\\[lcd]?dots\w*|\.\.\.")
_TIME = re.compile(r"\d{1,2}:[0-5]\d(?::[0-5]\d)?(?:\s*(?:\\text\{)?\s*([apAP])\.?\s*[mM]\.?\s*\}?)?")
_BASE = re.compile(r"([0-9A-Fa-f]+(?:\.[0-9A-Fa-f]+)?)_(?:\{(?:\\text\{)?\s*(\w+)\s*\}?\}|(\d+))")
_BASE_NAMES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9"}
_CHOICE = re.compile(r"\(([A-Ja-j])\)(?:[.:]?\s*\S.*)?|([A-Ja-j])[.):](?:\s+\S.*)?|([A-Ja-j])", re.DOTALL)
"""A letter of several choices, and what may follow it."""
_NAMED_CHOICE = re.compile(r"\A\s*(?:option|choice|answer):?\s+(?=\(?[A-J]\b)", re.IGNORECASE)
"""A word before the letter of a choice."""
_LABELLED = re.compile(r"\(?([A-J])(?:\)[.:]?|[.:])(?:\s+|(?<=\))(?=\d))(?P<value>(?!.*\([A-J]\))\S.*)", re.DOTALL)
"""A capital letter of one choice before what it stands for."""
_CHOICES = re.compile(r"\(?[A-J]\)?(?:\s*(?:,|;|&|and)\s*\(?[A-J]\)?)+")
_QUANTIFIER = re.compile(r"\\(?:forall|exists)")
_BOUND = r"(?:[-+\d.,/(){}\s^]|\\(?:frac|sqrt|pi|infty)(?![A-Za-z]))+"
_RELATION = r"(?:<=?|>=?|\\(?:l|g)(?:e|t|eq|eqslant)(?![A-Za-z]))"
_BOUNDED = re.compile(rf"(?:{_BOUND}{_RELATION})?\s*[A-Za-z]\s*{_RELATION}{_BOUND}|{_BOUND}{_RELATION}\s*[A-Za-z]\s*")
_SOLVED = re.compile(rf"([A-Za-z])\s*=\s*(?:{_PLAIN}|-?\\frac\{{\d+\}}\{{\d+\}}|{_PLAIN}/\d+)")


def spell(answer: str) -> str:
    """Return the answer in the spelling that the rest of the comparison expects: LaTeX, without what only ends a
    sentence."""
    text = _trim(answer.translate(_SIGNS))
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _PERIOD.sub(_write_period, text)
    if _ROW.fullmatch(text):
        text = re.sub(r"(?<=\d)\s+(?=[-+.\d])", ", ", text)
    return text.strip()


def _write_period(match: re.Match[str]) -> str:
    """Write a decimal number whose last digits repeat without end as the fraction that it equals."""
    start = match["whole"] + match["fixed"]
    period = match["period"] or match["one"] or match["first"] + (match["middle"] or "") + (match["last"] or "")
    value = Fraction(int(start + period) - int(start or "0"), 10 ** len(match["fixed"]) * (10 ** len(period) - 1))
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}" if value.denominator > 1 else str(value.numerator)


def _trim(text: str) -> str:
    """Return the text without surrounding spaces and dollar signs, and without the mark that ends its sentence or
    line."""
    text = text.strip(" \t\n").lstrip("$")
    while text[-1:] in set("$.,; \t\n") or text.endswith("\\\\"):
        if text.endswith("\\\\"):
            text = text[:-2]
        elif text[-2:-1] == "\\":
            break
        else:
            text = text[:-1]
    return text.lstrip()


def decide(answer: str, gold: str) -> bool | None:
    """Whether two spelled answers are equal, if their text alone decides it; None if it does not.

    True: the same text, the same words. False: other words, another unit, base or time of day, a sequence whose dots
    hide other members, a set for an ordered tuple, an equation where its solution is asked for, a sum or product where
    its value is asked for.
    """
    one, other = _squeeze(answer), _squeeze(gold)
    if one == other:
        return bool(one)
    if not one or not other:
        return False
    if (same_names := _compare_names(answer, gold)) is not None:
        return same_names
    if _DOTS.search(answer) or _DOTS.search(gold):
        return _DOTS.sub("...", one) == _DOTS.sub("...", other)
    if _TIME.fullmatch(answer) and _TIME.fullmatch(gold) and (len(one) > 4 or len(other) > 4):
        (when, half), (due, due_half) = _read_time(answer), _read_time(gold)
        return when == due and (half == due_half or not half or not due_half)
    if _QUANTIFIER.findall(answer) != _QUANTIFIER.findall(gold):
        return False
    if _differ_in_base(answer, gold) or _differ_in_unit(answer, gold):
        return False
    if {one[:1], other[:1]} == {"(", "\\"} and {one[:2], other[:2]} & {r"\{"} and "," in one:
        return False
    if _is_restated(one, other) or (_NUMBER.fullmatch(gold) and _is_uncomputed(one)):
        return False
    return None


def says_nothing(answer: str) -> bool:
    """Whether an answer is only marks and spaces: as a gold answer it cannot be compared with anything."""
    written = spell(answer)
    depth = 0
    for match in _BRACE.finditer(written):  # what follows an excess closing brace is outside the box that is compared
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth < 0:
            written = written[: match.start()]
            break
    return _NOTHING.fullmatch(written) is not None or _EMPTY_BOX.search(written) is not None


def is_bounded(answer: str) -> bool:
    r"""Whether an answer only states the bounds of a variable: -1 < x \le 3."""
    return _BOUNDED.fullmatch(answer) is not None


def drop_words(answer: str) -> str:
    """Return the number of an answer that says after it what was counted: 18 for "18 dollars". Any other answer is
    returned unchanged."""
    counted = _COUNTED.fullmatch(answer)
    return counted[1] if counted else answer


def _squeeze(text: str) -> str:
    """Return the text without spaces of any kind."""
    return re.sub(r"\\[,;:! ]|\\q?quad|[\s~]", "", text)


def _read_words(text: str) -> str | None:
    """Return the words that a text consists of, in lower case; None if it may be a formula, or a letter with or without
    brackets.

    A text of up to three letters is a product of variables, unless it is marked as text or is one of a few words.
    """
    bare = _TEXT.sub(r"\1", text).replace(r"\ ", " ").strip(" .")
    plain = " ".join(bare.split()).casefold()
    if not _WORDS.fullmatch(bare):
        return None
    return plain if len(plain) > 3 or plain in _SHORT_WORDS or (bare != text and len(plain) > 1) else None


def _compare_names(answer: str, gold: str) -> bool | None:
    """Whether two letters of a choice, sets of such letters or texts of words are equal; None for anything else."""
    choices = _read_choice(answer), _read_choice(gold)
    if all(choices) and (len(_TEXT.sub(r"\1", gold).strip("(). ")) == 1 or drop_label(gold) is not None):
        return choices[0] == choices[1]
    several = [_TEXT.sub(r"\1", text).strip() for text in (answer, gold)]
    if all(map(_CHOICES.fullmatch, several)):
        letters = [set(re.findall("[A-J]", text)) for text in several]
        return letters[0] == letters[1]
    words = _read_words(answer), _read_words(gold)
    return words[0] == words[1] if all(words) else None


def drop_label(text: str) -> str | None:
    """What a lettered choice stands for, 12 of (D) 12; None for anything else, such as (a)(b) or (A) 5, (B) 7."""
    bare = re.sub(r"\\[ ,;]", " ", _TEXT.sub(r"\1 ", text)).strip()
    labelled = _LABELLED.fullmatch(bare)
    return labelled["value"].strip() if labelled else None


def _read_choice(text: str) -> str | None:
    """The letter of a choice that a text begins with and gives; None where it is something else."""
    choice = _CHOICE.fullmatch(_NAMED_CHOICE.sub("", re.sub(r"\\[ ,;]", " ", _TEXT.sub(r"\1", text))).strip())
    return next(letter for letter in choice.groups() if letter).upper() if choice else None


def _read_time(text: str) -> tuple[str, str]:
    """Return hours, minutes and what follows, and "a" or "p" for the half of the day."""
    digits = re.match(r"[\d:]+", text)
    half = _TIME.fullmatch(text)
    return (digits[0] if digits else "").lstrip("0"), ((half[1] if half else None) or "").lower()


def _differ_in_base(answer: str, gold: str) -> bool:
    one, other = _BASE.fullmatch(answer), _BASE.fullmatch(gold)
    if one is None or other is None:
        return False
    bases = [_BASE_NAMES.get(match[2] or "", match[2] or match[3]) for match in (one, other)]
    return bases[0] != bases[1] or one[1].lower().lstrip("0") != other[1].lower().lstrip("0")


def _differ_in_unit(answer: str, gold: str) -> bool:
    one, other = read_unit(answer), read_unit(gold)
    return one is not None and other is not None and one[1] != other[1]


def _is_restated(answer: str, gold: str) -> bool:
    """Whether the answer is an equation for the variable whose value the gold answer gives."""
    solved = _SOLVED.fullmatch(gold)
    return solved is not None and "=" in answer and not answer.startswith(f"{solved[1]}=")


def _is_uncomputed(answer: str) -> bool:
    """Whether the answer is a sum or product of numbers that has not been computed; a fraction or a power of ten is not
    one."""
    value = re.sub(r"\A(?:[A-Za-z]\s*)?=\s*", "", answer)
    return _UNCOMPUTED.fullmatch(value) is not None and not any(
        form.fullmatch(value) for form in (_NUMBER, _SCIENTIFIC, _FRACTION)
    )
