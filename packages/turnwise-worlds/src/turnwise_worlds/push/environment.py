"""One episode: the policy sees the table, replies with a chunk of actions, and sees it again.

user        push goal x6 y2 block x3 y2 hand x0 y4
assistant   <answer> <x+2> <y-2> <x+4> <y+0> </answer>
user        goal x6 y2 block x6 y2 ...

The episode ends when the block, or the hand where there is none, is at the goal after an action, and after
`horizon` replies.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence

from turnwise.core.errors import EnvironmentFault, ToolFailure
from turnwise.core.messages import TextPart
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.types import Message, Reward, Scored, Signal, StopReason, Task, text_message
from turnwise_worlds.push.arguments import PushArguments
from turnwise_worlds.push.session import Session, bins_of, read_reply
from turnwise_worlds.push.show import TASKS
from turnwise_worlds.push.table import Kind

INVALID_REPLY = " error"
"""The answer to a malformed chunk in the terse style; short, because small models see it often at first."""

_RULES = (
    "A hand moves on a table of {side} x {side} cells, from (0, 0) at the lower left to ({last}, {last}) at the upper "
    "right. An action is two words: <x{most:+d}> moves {reach} cells to the right, <x{least:+d}> as many to the left, "
    "<y{most:+d}> and <y{least:+d}> up and down; bins between move less. The hand moves along x first, and pushes what "
    "is before it. Reply with up to {chunk} actions between <answer> and </answer>, such as <answer> <x+1> <y-2> "
    "</answer>. {task} "
)


def build_prompt(kind: Kind, session: Session) -> tuple[Message, ...]:
    """Build the first message: what to do, and the table."""
    chosen = session.chosen
    text = f" {kind}"
    if chosen.style == "full":
        bins = bins_of(chosen)
        text = _RULES.format(
            side=chosen.side,
            last=chosen.side - 1,
            most=bins.indices[-1],
            least=bins.indices[0],
            reach=chosen.reach,
            chunk=chosen.chunk,
            task=TASKS[kind],
        )
    return (Message(role="user", content=(TextPart(text=text), *session.show())),)


class PushEnvironment:
    """Implements `Environment`, `StatefulEnvironment` and `ForkableEnvironment`. Nothing is random."""

    def __init__(self, chosen: PushArguments) -> None:
        self._chosen = chosen
        self._session: Session | None = None
        self._is_over = True
        self._num_replies = self._num_malformed = 0

    async def reset(self, task: Task, seed: int) -> Opening:
        """Show the table. Raises EnvironmentFault the second time, ConfigError where MuJoCo is missing."""
        if self._session is not None:
            raise EnvironmentFault("PushEnvironment was reset twice; build one for each episode")
        self._session, self._task_id = Session.open(task.payload, self._chosen), task.id
        self._is_over = False
        return Opening(messages=build_prompt(task.payload["kind"], self._session), tools=())

    async def step(self, message: Message) -> StepResult:
        """Do a chunk of actions; a malformed one does nothing and is answered with what is wrong.

        Signals: `malformed`, and `progress`, the cells by which the chunk shortened the distance to the goal. Raises
        EnvironmentFault outside an episode, and if the dynamics fail.
        """
        if self._is_over or self._session is None:
            when = "before reset" if self._session is None else "after its episode ended"
            raise EnvironmentFault(f"PushEnvironment is stepped {when}; build one for each episode")
        before = self._session
        self._num_replies += 1
        is_last = self._is_over = self._num_replies == self._chosen.horizon
        try:
            self._session = before.act(read_reply(message, self._chosen))
        except ToolFailure as failure:
            self._num_malformed += 1
            said = INVALID_REPLY if self._chosen.style == "terse" else f"error: {failure}"
            answer = () if is_last else (text_message("user", said),)
            return StepResult(observations=answer, done=is_last, signals=(Signal(name="malformed", value=1.0),))
        table = self._session.body.table
        self._is_over = is_last or table.is_solved
        progress = Signal(name="progress", value=float(before.body.table.distance - table.distance))
        shown = () if self._is_over else (Message(role="user", content=self._session.show()),)
        return StepResult(
            observations=shown, done=self._is_over, signals=(Signal(name="malformed", value=0.0), progress)
        )

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 if the goal was reached, else 0, with the parts `success` and `malformed`, the number of malformed
        chunks. Raises EnvironmentFault before `reset`."""
        if self._session is None:
            raise EnvironmentFault("PushEnvironment is scored before reset; reset it first")
        success = float(self._session.body.table.is_solved)
        return Scored.of(success, {"success": success, "malformed": self._num_malformed})

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    async def fork(self) -> PushEnvironment:
        """See `ForkableEnvironment.fork`."""
        return copy.copy(self)

    def state_hash(self) -> str:
        """Return a hash that is equal if hand and block are where they are, however they came there, after equally many
        replies of which equally many were malformed."""
        state = "" if self._session is None else self._session.body.describe_state()
        return hashlib.sha256(
            f"{self._task_id} {state} {self._num_replies} {self._num_malformed}".encode()
        ).hexdigest()[:16]
