"""Normal forms of short answers: two answers are equal if their forms are. Pure functions of text.

"squad" is SQuAD's published rule, which Search-R1's figures use: it drops every ASCII punctuation mark, and with it
signs and decimal points (3.14 becomes 314). "numbers" keeps what distinguishes two numbers or names:

    a sign, a decimal point            -5, 3.14, .5 (0.5), 3.50 (3.5)
    / : - ^ between two digits         1/2, 9:30, 1914-1918, 10^6
    < > before a number                <5
    + and # behind a letter            C++, C#, A+; also - behind a single letter: A-

Commas between groups of three digits are removed (1,000 is 1000); any other mark between two digits becomes a space, so
that two numbers never merge. Quotes, dashes, minus signs, digits and spaces count as their ASCII forms. A percent or
dollar sign is removed, as in SQuAD.

Deviation from SQuAD, in both: if everything would be removed, the last word (or the mark itself) stays. So the answer
"A" is not empty.
"""

from __future__ import annotations

import re
import string
import unicodedata
from typing import Literal

Normalize = Literal["numbers", "squad"]
"""A rule for normal forms, by name."""

_ARTICLES = frozenset({"a", "an", "the"})
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d"
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_ASCII = str.maketrans(
    {
        **dict.fromkeys(_DASHES, "-"),
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if chr(code) not in _DASHES},
        "\u2044": "/",
        "\u00bc": " 1/4",
        "\u00bd": " 1/2",
        "\u00be": " 3/4",
        "\u2153": " 1/3",
        "\u2154": " 2/3",
        "≤": "<=",
        "≥": ">=",
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
    }
)
_RAISED = re.compile(f"(?<=[0-9])[{_SUPERSCRIPTS}]+")
_LOWERED = str.maketrans(_SUPERSCRIPTS, "0123456789")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
_GROUPED = re.compile(
    r"(?<![\d.,])(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?:[\u00a0\u2009\u202f'’_]\d{3})+|\d{1,2}(?:,\d{2})+,\d{3})(?![,'’_]?\d)"
)
_SPACED = re.compile(r"(?<=\d)\s*([/:])\s*(?=\d)|(?<=\d)\s+(-)\s+(?=\d)|([<>]=?)\s+(?=[-+]?\.?\d)")
_MARK = re.compile(
    r"""
    (?P<kept> [<>]=?(?=[-+]?[$€£¥]?\.?\d)
      | (?<=\d)(?:[./:-](?=\d)|\^(?=-?\d))
      | (?<![\w)\]])-(?=[$€£¥]?\.?\d)
      | (?<=\de)-(?=\d)
      | (?<=[^\W\d_])[+#]+(?!\w)
      | (?<=\b[^\W\d_])-(?![\w-]) )
    | (?P<point> (?<![\w.])\.(?=\d) )
    | (?P<between> (?<=\d)(?:[^\w\s]|_)+(?=\d) | = )
    | (?P<other> [^\w\s]|_ )
    """,
    re.VERBOSE,
)
_DECIMAL = re.compile(r"(?:[<>]=?)?-?\d+\.\d+")


def normalize_answer(text: str, normalize: Normalize = "numbers") -> str:
    """Return the normal form of an answer under a rule, in lower case with single spaces; empty only for a blank
    text."""
    return _normalize_squad(text) if normalize == "squad" else _normalize_numbers(text)


def _normalize_squad(text: str) -> str:
    lowered = text.lower()
    bare = lowered.translate(_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split() or bare.split()[-1:] or lowered.split())


def _normalize_numbers(text: str) -> str:
    lowered = unicodedata.normalize("NFC", _to_ascii(text).casefold())
    bare = _SPACED.sub(lambda match: match[1] or match[2] or match[3], _GROUPED.sub(_join_groups, lowered))
    words = [_shorten(word) for word in _MARK.sub(_keep, bare).split()]
    return " ".join([word for word in words if word not in _ARTICLES] or words[-1:] or lowered.split())


def _to_ascii(text: str) -> str:
    """Convert marks, digits and fractions of other scripts to ASCII."""
    raised = _RAISED.sub(lambda match: "^" + match[0].translate(_LOWERED), unicodedata.normalize("NFC", text))
    return _OTHER_DIGIT.sub(lambda match: str(unicodedata.decimal(match[0])), raised.translate(_ASCII))


def _join_groups(match: re.Match[str]) -> str:
    return re.sub(r"\D", "", match[0])


def _keep(match: re.Match[str]) -> str:
    """Return the replacement for a mark: itself, nothing, or the space between two numbers and around an equals
    sign."""
    if match["kept"]:
        return match[0]
    if match["point"]:
        return "0."
    if match["between"]:
        return " "
    # Symbols of other scripts (currencies, degrees) are words of their own, as in SQuAD.
    return "" if match[0].isascii() or unicodedata.category(match[0]).startswith("P") else match[0]


def _shorten(word: str) -> str:
    """Remove trailing zeros from a decimal number."""
    return word.rstrip("0").rstrip(".") if _DECIMAL.fullmatch(word) else word
