"""A world small enough to enumerate: states, actions, a turn limit, success or failure at the end.

A turn is one action. Every action leads to one of at most two states. Turns have no cost and no reward; a trajectory
that ends in success is worth 1, any other 0, including one that the turn limit ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

State = tuple[int, ...]
End = bool
"""True: the task was solved. False: it failed."""
Branch = tuple[float, State | End]
"""Probability, and the state or end that it leads to."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """States are numbered 0 to S - 1; S is failure and S + 1 is success, both final."""

    name: str
    summary: str
    keys: tuple[str, ...]
    """Key of each state; two states never share one."""
    observations: tuple[str, ...]
    """The policy's last observation in each state; states may share one."""
    starts: tuple[int, ...]
    """The start state of each task; tasks are drawn with equal probability."""
    max_turns: int
    next_states: IntArray
    """`[S, A, 2]`: the two states an action may lead to (twice the same one without chance)."""
    first_probability: FloatArray
    """`[S, A]`: probability of the first of them."""
    progress: FloatArray
    """`[S + 2]`, in [0, 1]: a hand-written guess of how far along a state is. It is informative, and deliberately wrong
    in places."""

    @property
    def num_states(self) -> int:
        """Number of states S, without the two ends."""
        return len(self.keys)

    @property
    def num_actions(self) -> int:
        """Number of actions A."""
        return int(self.next_states.shape[1])

    @property
    def failure(self) -> int:
        """Index of the failure state."""
        return self.num_states

    @property
    def success(self) -> int:
        """Index of the success state."""
        return self.num_states + 1


def build_world(
    name: str,
    *,
    summary: str,
    starts: Sequence[State],
    num_actions: int,
    max_turns: int,
    step: Callable[[State, int], Sequence[Branch]],
    observe: Callable[[State], str],
    progress: Callable[[State], float],
) -> World:
    """Every state that can be reached from `starts`, in order of discovery.

    `step(state, action)` gives one or two branches whose probabilities sum to 1. Raises ValueError naming state and
    action otherwise."""
    numbers: dict[State, int] = {}
    for start in starts:
        numbers.setdefault(start, len(numbers))
    rows: list[list[Sequence[Branch]]] = []
    queue = list(numbers)
    for state in queue:
        branches = [step(state, action) for action in range(num_actions)]
        for action, ways in enumerate(branches):
            if len(ways) not in (1, 2) or abs(sum(p for p, _ in ways) - 1) > 1e-9:
                raise ValueError(
                    f"world {name!r}, state {state}, action {action}: branches {ways}; give one or two that sum to 1"
                )
            for _, target in ways:
                if not isinstance(target, bool) and target not in numbers:
                    numbers[target] = len(numbers)
                    queue.append(target)
        rows.append(branches)

    def number(target: State | End) -> int:
        return len(numbers) + int(target) if isinstance(target, bool) else numbers[target]

    return World(
        name=name,
        summary=summary,
        keys=tuple(str(state) for state in numbers),
        observations=tuple(observe(state) for state in numbers),
        starts=tuple(numbers[start] for start in starts),
        max_turns=max_turns,
        next_states=np.array(
            [[[number(ways[0][1]), number(ways[-1][1])] for ways in row] for row in rows], dtype=np.int64
        ),
        first_probability=np.array([[ways[0][0] for ways in row] for row in rows], dtype=np.float64),
        progress=np.array([*(progress(state) for state in numbers), 0.0, 1.0], dtype=np.float64),
    )
