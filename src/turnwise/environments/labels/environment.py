"""One episode: a question to a judge, and the reply with the verdict. The reward is whether it is the right one."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.core.errors import EnvironmentFault, RewardError
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.types import Message, Reward, Scored, StopReason, Task
from turnwise.core.verdicts import Form
from turnwise.questions.labels import NONE, name_verdict
from turnwise.questions.replies import read_reply


class LabelsEnvironment:
    """Implements `Environment`. Nothing is random."""

    def __init__(self, form: Form, label: str) -> None:
        self._form, self._label = form, label
        self._state = "before reset"

    async def reset(self, task: Task, seed: int) -> Opening:
        """Show the prompt. Raises EnvironmentFault the second time."""
        if self._state != "before reset":
            raise EnvironmentFault("LabelsEnvironment was reset twice; build one for each episode")
        self._state = ""
        return Opening(messages=task.prompt, tools=())

    async def step(self, message: Message) -> StepResult:
        """End with the first reply. Raises EnvironmentFault outside an episode."""
        if self._state:
            raise EnvironmentFault(f"LabelsEnvironment is stepped {self._state}; build one for each episode")
        self._state = "after its episode ended"
        return StepResult(observations=(), done=True)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 for the right verdict, else 0; with the parts `success` and `readable`, whether the reply has the
        question's form."""
        said = NONE
        if replies:
            try:
                score, marks = read_reply(replies[-1].text, self._form)
                said = name_verdict(score, marks, self._form)
            except RewardError:
                said = NONE
        success = float(said == self._label)
        return Scored.of(success, {"success": success, "readable": float(said != NONE)})

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""
