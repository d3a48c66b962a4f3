"""Detects replies that open arguments again and again without closing them.

The patterns by which the `renderers` package finds arguments search to the end of the text from each opening that they
cannot close, so that a reply that repeats one mark would take time quadratic in its length. Counting such openings
takes linear time: an opening whose piece, up to the next opening of its kind, contains a complete argument costs the
package no more than that piece.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

CALL_TOKENS = ("<tool_call>", "<minimax:tool_call>", "｜DSML｜")
"""Tokens that begin calls whose arguments are in tags."""
MAX_OPEN = 64
"""Maximum number of openings that may stay open; a value that quotes the format has a few."""

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
"""The pattern, by opening, of the complete argument that it must begin."""


def count_open(text: str) -> int:
    """Return the maximum number of openings of one kind that contain no complete argument before the next of that
    kind."""
    return max(
        sum(whole.match(opening + piece) is None for piece in text.split(opening)[1:])
        for opening, whole in _WHOLE.items()
    )
