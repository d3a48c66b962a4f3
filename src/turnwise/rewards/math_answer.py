r"""Rewards for a boxed final answer: what counts as the answer, when integers agree, and ReTool's two rules.

Only the model's replies are read: a `\boxed{}` in a tool's output or in the prompt does not count. Pure functions;
`math_verifier` compares anything but whole numbers, because that can hang.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from turnwise.core.types import Message

RewardRule = Literal["sign", "verl"]

_BRACES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
"""A box that opens, an escaped character, a brace."""
_INTEGER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d{1,1000})")
_SPACING = re.compile(r"\\[,;!]|[\s$]")


def extract_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` (or `\fbox{...}`) whose braces balance, stripped; None if there is none.

    A box inside a box belongs to the outer one: `\boxed{\boxed{2}}` gives `\boxed{2}`. Escaped braces `\{` do not
    count.
    """
    answer: str | None = None
    opened: list[int | None] = []  # where the content of each open box starts, None for a bare brace
    for match in _BRACES.finditer(text):
        token = match[0]
        if token == "}":
            start = opened.pop() if opened else None
            if start is not None:
                answer = text[start : match.start()].strip()
        elif token == "{" or len(token) > 2:
            opened.append(match.end() if len(token) > 2 else None)
    return answer


def final_boxed(replies: Sequence[Message]) -> str | None:
    """The boxed answer in the text of the last reply; None if there is none or that reply calls a tool."""
    if not replies or replies[-1].tool_calls:
        return None
    return extract_boxed(replies[-1].text)


def parse_integer(text: str) -> int | None:
    """The whole number a text writes plainly, None where it writes anything else.

    Understands a sign, commas between groups of three digits, and spaces and dollar signs around and between; at most
    1,000 digits.
    """
    plain = _SPACING.sub("", text)
    return int(plain.replace(",", "")) if plain.isascii() and _INTEGER.fullmatch(plain) else None


def compute_retool_reward(*, correct: bool, num_replies: int, rule: RewardRule) -> float:
    """ReTool's reward of an episode (arXiv 2504.11536, section 2.3): 1 for a correct answer, -1 for any other or none.

    Rule "verl" is the variant of verl's ReTool recipe: a wrong answer gets `min(-0.6, -1 + 0.05 * (num_turns - 2))`, so
    that trying the tool costs less than not trying. `num_turns` counts messages as there, prompt and tool answers
    included: two per reply, hence -1 for one reply, -0.9 for two, -0.6 from five on. Raises ValueError for fewer than
    one reply.
    """
    if num_replies < 1:
        raise ValueError(f"num_replies={num_replies}: an episode is judged after at least one reply")
    if correct:
        return 1.0
    return -1.0 if rule == "sign" else min(-0.6, -1.0 + 0.05 * (2 * num_replies - 2))
