"""Planners over the states of another package's environment, for oracles and demonstrators."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

_DISCOUNT = 0.97
_MAX_STATES = 20_000


def solve_table(table: Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]) -> dict[int, int]:
    """Return the best action of every state of a table `P[state][action] = [(probability, next state, reward,
    over)]`."""
    values = dict.fromkeys(table, 0.0)

    def worth(outcomes: Sequence[tuple[float, int, float, bool]]) -> float:
        return sum(p * (reward + (0.0 if over else _DISCOUNT * values[after])) for p, after, reward, over in outcomes)

    for _ in range(500):
        change = 0.0
        for state, actions in table.items():
            best = max(map(worth, actions.values()))
            change, values[state] = max(change, abs(best - values[state])), best
        if change < 1e-9:
            break
    return {state: max(actions, key=lambda action: worth(actions[action])) for state, actions in table.items()}


def find_plan(env: Any, actions: Sequence[int], last_move: int) -> deque[int] | None:
    """Return the numbers of the actions on a shortest path to a reward; None if there is none within `_MAX_STATES`
    states.

    The search sees the whole grid, unlike the player. Only actions above `last_move` change the grid.
    """
    world = copy.deepcopy(env)
    world.max_steps = 10**9
    world.gen_obs = dict  # the search reads no view, and drawing one takes most of a step's time
    met: set[tuple[Any, ...]] = set()
    queue: deque[tuple[Any, ...]] = deque([(world.grid, world.carrying, world.agent_pos, world.agent_dir, ())])
    while queue and len(met) < _MAX_STATES:
        grid, carried, place, direction, way = queue.popleft()
        for action in actions:
            changes = action > last_move
            world.grid, world.carrying = copy.deepcopy((grid, carried)) if changes else (grid, carried)
            world.agent_pos, world.agent_dir = place, direction
            _, reward, terminated, _, _ = world.step(action)
            if float(reward) > 0:
                return deque([*way, action])
            held = world.carrying and (world.carrying.type, world.carrying.color)
            state = (world.grid.encode().tobytes(), tuple(world.agent_pos), world.agent_dir, held)
            if not terminated and state not in met:
                met.add(state)
                queue.append((world.grid, world.carrying, world.agent_pos, world.agent_dir, (*way, action)))
    return None
