r"""Rewards for a boxed final answer: finds the answer, reads plain whole numbers, and implements ReTool's two rules.

Only the model's replies are read: a `\boxed{}` in a tool's output or in the prompt does not count. Pure functions;
`math_verifier` compares everything but whole numbers, because that can hang.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from turnwise.core.types import Message
from turnwise.rewards.boxes import extract_boxed
from turnwise.rewards.thoughts import drop_thoughts

RewardRule = Literal["sign", "verl"]

_INTEGER = re.compile(r"([+-]?)\s*([0-9]{1,3}(?:(?:,|\{,\}|,?\\[,;!])[0-9]{3})+|[0-9]{1,1000})\.?")


def final_boxed(replies: Sequence[Message]) -> str | None:
    """Return the boxed answer of the last reply, outside its thoughts; None if there is none or that reply calls a
    tool."""
    if not replies or replies[-1].tool_calls:
        return None
    return extract_boxed(drop_thoughts(replies[-1].text))


def parse_integer(text: str) -> int | None:
    """Return the whole number that a text plainly states, None for any other text.

    Accepts a sign, groups of three digits separated by commas or LaTeX's thin spaces, one point at the end, and
    surrounding spaces and dollar signs; at most 1,000 digits. Two adjacent numbers are not one.
    """
    match = _INTEGER.fullmatch(text.replace("\N{MINUS SIGN}", "-").strip().removeprefix("\\").strip("$ \t\n"))
    return int(match[1] + re.sub("[^0-9]", "", match[2])) if match else None


def compute_retool_reward(*, correct: bool, num_replies: int, rule: RewardRule) -> float:
    """ReTool's reward for an episode (arXiv 2504.11536, section 2.3): 1 for a correct answer, -1 for any other or none.

    Rule "verl" is the variant in verl's ReTool recipe: a wrong answer gets `min(-0.6, -1 + 0.05 * (num_turns - 2))`, so
    that trying the tool costs less than not trying. `num_turns` counts messages as there, prompt and tool answers
    included: two per reply, hence -1 for one reply, -0.9 for two, -0.6 from five on. Raises ValueError for fewer than
    one reply.
    """
    if num_replies < 1:
        raise ValueError(f"num_replies={num_replies}: an episode needs at least one reply to be scored")
    if correct:
        return 1.0
    return -1.0 if rule == "sign" else min(-0.6, -1.0 + 0.05 * (2 * num_replies - 2))
