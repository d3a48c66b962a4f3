"""Scripted policies that play Countdown."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.countdown.arithmetic import apply_move, is_solvable, list_moves, parse_state
from turnwise.environments.replies import answer_message


class SightedPolicy:
    """Makes an operation that keeps the target reachable, if it sees one; otherwise any legal operation.

    With `sight=1` it is the oracle, with `sight=0` and `sees_last=False` it is random.
    """

    def __init__(self, limit: int, *, sight: float, sees_last: bool = True) -> None:
        """`sight` is the probability of seeing such an operation; `sees_last` says whether it always sees the last
        one."""
        self._limit = limit
        self._sight = sight
        self._sees_last = sees_last

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        left, target = parse_state(messages[-1].text)
        moves = list_moves(left, self._limit)
        sees = rng.random() < self._sight or (self._sees_last and len(left) == 2)
        nexts = {move: apply_move(left, move, self._limit) for move in moves}
        good = [move for move, rest in nexts.items() if rest is not None and is_solvable(rest, target, self._limit)]
        move = rng.choice(good if sees and good else moves) if moves else "none"
        return answer_message(str(move))
