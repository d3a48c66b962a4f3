"""Arguments that a reply opens again and again and does not close.

The patterns by which the `renderers` package finds arguments run on to the end of the text from each opening that they
cannot close, so that a model that repeats one mark would take time that grows with the square of its reply. Counting
such openings takes linear time: an opening whose piece, up to the next opening of its kind, holds a whole argument
costs the package no more than that piece.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

CALL_TOKENS = ("<tool_call>", "<minimax:tool_call>", "｜DSML｜")
"""Tokens that begin calls whose arguments stand in tags."""
MAX_OPEN = 64
"""Openings that may stay open; a value that quotes the format has a few."""

_WHOLE: Mapping[str, re.Pattern[str]] = {
    opening: re.compile(whole, re.DOTALL)
    for opening, whole in (
        ("<function=", r"<function=[^>]+>"),
        ("<parameter=", r"<parameter=[^>]+>.*?</parameter>"),
        ('<invoke name="', r'<invoke name="[^"]+">.*?</invoke>'),
        ('<parameter name="', r'<parameter name="[^"]+">.*?</parameter>'),
        ("<arg_key>", r"<arg_key>.*?</arg_key>\s*<arg_value>.*?</arg_value>"),
        ('<｜DSML｜parameter name="', r'<｜DSML｜parameter name="[^"]*" string="[^"]*">.*?</｜DSML｜parameter>'),
    )
}
"""What each opening has to be the beginning of."""


def count_open(text: str) -> int:
    """The most openings of one kind that hold no whole argument before the next of that kind."""
    return max(
        sum(whole.match(opening + piece) is None for piece in text.split(opening)[1:])
        for opening, whole in _WHOLE.items()
    )
