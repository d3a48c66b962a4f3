"""Reads known units at the end of an answer: "12 cm" and "12 m" are different, "12 cm" and "12 centimeters" are not.
Nothing is converted. Pure functions of text."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SPELLINGS: dict[str, str] = {
    "mm": "millimeter millimeters millimetre millimetres",
    "cm": "centimeter centimeters centimetre centimetres",
    "m": "meter meters metre metres",
    "km": "kilometer kilometers kilometre kilometres",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard yards",
    "mi": "mile miles",
    "mg": "milligram milligrams",
    "g": "gram grams",
    "kg": "kilogram kilograms",
    "oz": "ounce ounces",
    "lb": "lbs pound pounds",
    "s": "sec secs second seconds",
    "min": "mins minute minutes",
    "h": "hr hrs hour hours",
    "day": "days",
    "week": "weeks",
    "month": "months",
    "year": "years yr yrs",
    "ml": "mL milliliter milliliters millilitre millilitres",
    "l": "L liter liters litre litres",
    "dollar": "dollars",
    "cent": "cents",
    "degree": "degrees",
    "rad": "radian radians",
}


def _spellings() -> Iterator[tuple[str, str]]:
    for unit, others in _SPELLINGS.items():
        yield unit, unit
        yield from ((other, unit) for other in others.split())


_UNITS = dict(_spellings())
_TEXT = re.compile(r"\\(?:text|textrm|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
_NAME = "|".join(sorted(_UNITS, key=len, reverse=True))
_UNIT = re.compile(
    rf"(?P<value>.*[\d}})]|.*\\pi)(?P<gap>[\s~]*)(?:(?P<power>square|cubic|sq\.?|cu\.?)\s+)?(?P<unit>{_NAME})"
    rf"(?:\s*\^?\s*\{{?(?P<exponent>[23])\}}?)?(?:\s*(?:/|per)\s*(?P<per>{_NAME}))?\.?",
    re.DOTALL,
)
_POWERS = {"square": "2", "sq": "2", "cubic": "3", "cu": "3"}


def read_unit(answer: str) -> tuple[str, str] | None:
    """Return the answer without its unit, and the unit ("cm", "m^2", "km/h"); None if it does not end in a known
    unit."""
    if answer.startswith(r"\$"):
        return answer[2:].strip(), "dollar"
    text = re.sub(r"\\[,;:! ]", " ", _TEXT.sub(r" \1 ", answer)).strip()
    match = _UNIT.fullmatch(re.sub(r"\s+(?=\^)", "", text))
    if match is None:
        degrees = re.fullmatch(r"(.*\d)\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ)", text)
        return (degrees[1], "degree") if degrees else None
    exponent = match["exponent"] or _POWERS.get((match["power"] or "").rstrip("."), "")
    unit = _UNITS[match["unit"]] + (f"^{exponent}" if exponent else "")
    return match["value"].strip(), unit + (f"/{_UNITS[match['per']]}" if match["per"] else "")


def drop_unit(answer: str) -> str:
    """Return the answer without a unit that is written as text or in several letters; a single letter may be a
    variable."""
    read = read_unit(answer)
    if read is None:
        return answer
    value, unit = read
    is_marked = _TEXT.search(answer) is not None or answer.startswith(r"\$") or unit in ("degree", "dollar")
    return value if is_marked or re.search(r"[A-Za-z]{2,}\W*\d?\W*\Z", answer) else answer
