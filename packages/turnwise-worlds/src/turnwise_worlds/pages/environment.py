"""One page: the policy sees the overview, zooms, and answers with a digit.

    user        [picture] read
    assistant   zoom row = 3 column = 2
    tool        [picture]
    assistant   <answer> 7 </answer>

All pictures are 32 x 32, so an overview shows where the coloured cells are and only a crop shows a digit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from turnwise.core.errors import ToolFailure
from turnwise.core.protocols import StepResult
from turnwise.core.types import (
    ImagePart,
    Message,
    Reward,
    Scored,
    Signal,
    StopReason,
    Task,
    TextPart,
    text_message,
)
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.pictures.read import read_picture
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.pages.arguments import PagesArguments, Prompt
from turnwise_worlds.pages.page import SIDE, Kind
from turnwise_worlds.pages.view import View

_RULES = (
    f" The picture is a page, averaged down. zoom(row, column) enlarges one of its {SIDE} x {SIDE} parts, counted from "
    "1 at the top left, and then parts of the part. Zoom no more than needed. Answer with one digit between <answer> "
    "and </answer>."
)
QUESTIONS: dict[Prompt, dict[Kind, str]] = {
    "short": {"read": " read", "compare": " compare", "nested": " nested", "plain": " plain"},
    "full": {
        "read": f"{_RULES} Which digit is in the red cell?",
        "compare": f"{_RULES} Two cells are red. Which of their digits is larger?",
        "nested": f"{_RULES} The page has {SIDE * SIDE} x {SIDE * SIDE} cells. Which digit is in the red one?",
        "plain": f"{_RULES} Which digit does the page show?",
    },
}
"""What is asked, after the picture: models learn best from the last token."""
INVALID_REPLY = "error"
"""The answer to a reply without a call and an answer; short, because small models see it often at first."""


def build_prompt(view: View, prompt: Prompt) -> tuple[Message, ...]:
    """Build the first message: the overview and the question."""
    question = TextPart(text=QUESTIONS[prompt][view.page.kind])
    return (Message(role="user", content=(read_picture(view.draw(), label="overview"), question)),)


class PagesEnvironment(ToolEnvironment):
    """The episode's state is its `View`."""

    def __init__(self, chosen: PagesArguments, task: Task) -> None:
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._chosen = chosen
        self._id = task.id
        self._view = View.open(task.payload, chosen)

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Show the overview; offer `zoom`."""
        return build_prompt(self._view, self._chosen.prompt), [self.zoom]

    def zoom(self, row: int, column: int) -> ImagePart:
        """Enlarge a part of the picture.

        Args:
            row: The row of the part, from 1 at the top.
            column: The column of the part, from 1 at the left.
        """
        for name, number in (("row", row), ("column", column)):
            if not 1 <= number <= SIDE:
                raise ToolFailure(f"no {name} {str(number)[:8]}")
        if self._view.page.side == 1:
            raise ToolFailure("no parts")
        self._view = self._view.zoom(row - 1, column - 1)
        return read_picture(self._view.draw(), label=f"row {row}, column {column}")

    def invalid_reply(self, message: Message) -> Message:
        """Return a fixed text for a reply with neither a call nor an answer."""
        return text_message("tool", INVALID_REPLY)

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`. Signals: `looks_at_mark`, whether a zoom leads to a red cell that was not shown, and
        `reads_crop`, whether an answer is the (largest) digit of the crops that were shown."""
        before = self._view
        result = await super().step(message)
        if result.done and before.shown_digits:
            said = (extract_answer(message.text) or "").strip()
            return replace(result, signals=(_measure("reads_crop", said == str(max(before.shown_digits))),))
        if self._view is not before and before.target:
            area = self._view.area
            hit = any(area.contains(cell) and cell not in before.shown for cell in self._view.page.marked)
            return replace(result, signals=(_measure("looks_at_mark", hit),))
        return result

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 for the right digit, less `call_cost` per zoom but at least 0; else 0.

        After OTC (arXiv 2504.14870), whose reward multiplies correctness by what is left after the calls; the paper's
        factor is a cosine or sine of the number of calls, here it is linear. Parts: "success", whether the digit is
        right, and "reads", whether it is the largest digit in the crops; the latter only where a crop showed one.
        """
        said = (extract_answer(replies[-1].text) or "").strip() if replies and stop is StopReason.DONE else ""
        right = said == str(self._view.page.answer)
        parts = {"success": float(right)}
        if self._view.shown_digits and said:
            parts["reads"] = float(said == str(max(self._view.shown_digits)))
        left = max(0.0, 1 - self._chosen.call_cost * len(self.tool_records))
        return Scored.of(right * left, parts)

    def state_hash(self) -> str:
        """Return a hash that is equal if the same pictures were shown in the same order, and equally many errors."""
        errors = sum(record.error is not None for record in self.tool_records)
        text = f"{self._id} {self._view.areas} {errors}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    async def fork(self) -> PagesEnvironment:
        """See `ForkableEnvironment`."""
        return self.copy_episode()


def _measure(name: str, value: bool) -> Signal:
    return Signal(name=name, value=float(value))
