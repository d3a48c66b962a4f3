"""One episode of Countdown: every reply is an operation, and the environment shows the remaining numbers.

    user        left 3 5 7 8 target 24
    assistant   <answer> 5 + 7 </answer>
    user        left 3 8 12 target 24
    assistant   <answer> 8 - 3 </answer>
    ...

The episode ends when one number is left, or with a reply that the rules do not allow.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, text_message
from turnwise.environments.countdown.arithmetic import Numbers, apply_move, format_state, is_solvable, parse_move
from turnwise.rewards.answers import extract_answer


class CountdownEnvironment:
    """Implements `Environment`, `StatefulEnvironment`, `ForkableEnvironment` and `SolvedEnvironment`. Nothing is
    random."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left: Numbers = ()
        self._target = 0
        self._is_over = True
        self._broke_rules = False

    async def reset(self, task: Task, seed: int) -> Opening:
        """Show the numbers and the target. Raises EnvironmentFault the second time."""
        if self._left:
            raise EnvironmentFault("CountdownEnvironment was reset twice; build one for each episode")
        self._left, self._target = tuple(task.payload["numbers"]), int(task.payload["target"])
        self._is_over = False
        return Opening(messages=task.prompt, tools=())

    async def step(self, message: Message) -> StepResult:
        """Apply an operation. Raises EnvironmentFault outside an episode."""
        if self._is_over:
            when = "after its episode ended" if self._left else "before reset"
            raise EnvironmentFault(f"CountdownEnvironment is stepped {when}; build one for each episode")
        move = parse_move(extract_answer(message.text) or "")
        left = None if move is None else apply_move(self._left, move, self._limit)
        if left is None:
            self._broke_rules = self._is_over = True
            return StepResult(observations=(), done=True)
        self._left, self._is_over = left, len(left) == 1
        shown = () if self._is_over else (text_message("user", f" {format_state(left, self._target)}"),)
        return StepResult(observations=shown, done=self._is_over)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 if the target is the only number left, else 0; with the parts `success` and `broke_rules`."""
        success = float(not self._broke_rules and self._left == (self._target,))
        return Scored.of(success, {"success": success, "broke_rules": self._broke_rules})

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    async def fork(self) -> CountdownEnvironment:
        """See `ForkableEnvironment.fork`."""
        return copy.copy(self)

    def state_hash(self) -> str:
        """Return the state itself."""
        return ("broken " if self._broke_rules else "") + format_state(self._left, self._target)

    def exact_value(self) -> float:
        """Return 1 if the target can still be reached, else 0."""
        return float(not self._broke_rules and is_solvable(self._left, self._target, self._limit))
