"""Separates what a reply says from its thoughts: nothing inside a thought is an answer."""

from __future__ import annotations

import re

_SPAN = re.compile(r"<think>.*?(?:</think>|\Z)|</think>|<answer>(?:(?!<answer>).)*?</answer>", re.DOTALL)


def drop_thoughts(text: str) -> str:
    """Return the text outside thoughts: without every `<think>...</think>`, without what follows a `<think>` that is
    never closed, and without what precedes a `</think>` that the prompt opened. Tags inside an answer are part of
    it."""
    said: list[str] = []
    at = 0
    for match in _SPAN.finditer(text):
        if match[0].startswith("<answer>"):
            continue
        said = [] if match[0] == "</think>" else [*said, text[at : match.start()]]
        at = match.end()
    return "".join([*said, text[at:]])
