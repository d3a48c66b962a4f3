"""Scripted policies: the shortest way, a demonstrator that goes straight on, random chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.push.arguments import PushArguments
from turnwise_worlds.push.bins import Action, write_chunk
from turnwise_worlds.push.routes import find_route, to_moves
from turnwise_worlds.push.session import Session, bins_of
from turnwise_worlds.push.table import Cell, Table


class MovingPolicy:
    """Goes the shortest way with probability `skill`, else straight on or, one time in four, anywhere.

    Straight on is what most layouts need if the hand is behind the block: to the block's far side and then towards the
    goal, first along x. On its way it pushes whatever is there, and it knows no wall. With `skill=1` it is the oracle.
    Where the goal or the picture is hidden it goes as to another goal.
    """

    def __init__(self, chosen: PushArguments, skill: float) -> None:
        self._chosen = chosen
        self._skill = skill

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        chosen = self._chosen
        table = Session.open(task.payload, chosen).follow(messages).body.table
        if chosen.picture == "blank":
            return answer_message(write_chunk(draw_chunk(chosen, rng)))
        if chosen.goal == "hidden":
            table = replace(table, goal=_guess(table, rng))
        if rng.random() < self._skill:
            moves = to_moves(find_route(table) or (), chosen.reach)
        elif rng.random() < 0.75:
            moves = go_straight(table, chosen.reach)
        else:
            return answer_message(write_chunk(draw_chunk(chosen, rng)))
        bins = bins_of(chosen)
        actions = [(bins.to_index(right), bins.to_index(up)) for right, up in moves[: chosen.chunk]]
        # A block at the edge can be lost for good: then there is no way, and any chunk will do.
        return answer_message(write_chunk(actions or draw_chunk(chosen, rng)))


class RandomPolicy:
    """Replies with as many random actions as fit into a chunk."""

    def __init__(self, chosen: PushArguments) -> None:
        self._chosen = chosen

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return answer_message(write_chunk(draw_chunk(self._chosen, rng)))


def draw_chunk(chosen: PushArguments, random: Random) -> list[Action]:
    """Draw a full chunk."""
    indices = bins_of(chosen).indices
    return [(random.choice(indices), random.choice(indices)) for _ in range(chosen.chunk)]


def go_straight(table: Table, reach: int) -> list[Cell]:
    """Return moves to the goal, or to the block's far side and then with it towards the goal."""
    if table.block is None:
        return _walk(table.hand, table.goal, reach)
    right, up = (table.goal[axis] - table.block[axis] for axis in (0, 1))
    ways = [(right, 0), (0, up)] if right else [(0, up)]
    at, block, moves = table.hand, table.block, []
    for way in filter(any, ways):
        behind = (block[0] - _sign(way[0]), block[1] - _sign(way[1]))
        moves += [*_walk(at, behind, reach), *_walk((0, 0), way, reach)]
        at = (behind[0] + way[0], behind[1] + way[1])
        block = (block[0] + way[0], block[1] + way[1])
    return moves


def _walk(start: Cell, end: Cell, reach: int) -> list[Cell]:
    moves = []
    left = [end[0] - start[0], end[1] - start[1]]
    while any(left):
        move = (max(-reach, min(reach, left[0])), max(-reach, min(reach, left[1])))
        left = [left[0] - move[0], left[1] - move[1]]
        moves.append(move)
    return moves


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _guess(table: Table, random: Random) -> Cell:
    """Return a cell that may be the goal."""
    taken = {*table.wall, table.hand if table.block is None else table.block}
    return random.choice([(x, y) for x in range(table.side) for y in range(table.side) if (x, y) not in taken])
