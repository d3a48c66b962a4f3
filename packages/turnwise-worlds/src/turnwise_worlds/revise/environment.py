"""One problem, answered twice in one conversation: in between, the policy is only told to look again.

SCoRe (arXiv 2409.12917) rewards both answers and the step from one to the other. The first is given without work; the
second may show work. Rewards are turn rewards, which credit assigns: `first_reward` for a right first answer, 1 for a
right second one, and `progress_reward` times the change from the first to the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, TurnScores, text_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.revise.arguments import Measure, ReviseArguments
from turnwise_worlds.revise.sums import Digits, find_answer


def build_prompt(digits: Digits) -> tuple[Message, ...]:
    """Build the opening of an episode."""
    return (text_message("user", f" sum {' '.join(map(str, digits))} answer"),)


LOOK_AGAIN = text_message("user", " look again")
"""The message between the answers."""


class ReviseEnvironment:
    """Implements `Environment`. Nothing is random."""

    def __init__(self, chosen: ReviseArguments, digits: Digits) -> None:
        """`digits` are those of the problem, whatever the task's own digits are."""
        self._chosen = chosen
        self._digits = digits
        self._answers: list[str] = []
        self._is_open = False

    async def reset(self, task: Task, seed: int) -> Opening:
        """Show the problem. Raises EnvironmentFault the second time."""
        if self._is_open:
            raise EnvironmentFault("ReviseEnvironment was reset twice; build one for each episode")
        self._is_open = True
        return Opening(messages=build_prompt(self._digits), tools=())

    async def step(self, message: Message) -> StepResult:
        """Accept an answer. A first answer that shows work counts as wrong. Raises EnvironmentFault outside an
        episode."""
        if not self._is_open:
            raise EnvironmentFault("ReviseEnvironment is stepped before reset")
        if len(self._answers) == 2:
            raise EnvironmentFault("ReviseEnvironment got a third answer; an episode has two")
        is_first = not self._answers
        said = (extract_answer(message.text) or "").strip()
        self._answers.append("" if is_first and message.reasoning else said)
        if not is_first:
            return StepResult(observations=(), done=True)
        reward = self._chosen.first_reward * self._is_right(0)
        return StepResult(observations=(LOOK_AGAIN,), done=False, scores=TurnScores(reward=reward))

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return what the second answer earns; the first earned its reward when it was given."""
        first, second = self._is_right(0), self._is_right(1)
        measures: dict[Measure, bool] = {
            "second": second,
            "first": first,
            "fixed": second and not first,
            "broken": first and not second,
            "edited": len(self._answers) == 2 and self._answers[0] != self._answers[1],
        }
        parts = {"success": measures[self._chosen.measure], **{name: measures[name] for name in get_args(Measure)}}
        return Scored.of(second + self._chosen.progress_reward * (second - first), parts)

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def state_hash(self) -> str:
        """Return a hash that is equal if the problem and the answers so far are equal."""
        return f"{self._digits}/{self._answers}"

    def _is_right(self, number: int) -> bool:
        return len(self._answers) > number and self._answers[number] == str(find_answer(self._digits))
