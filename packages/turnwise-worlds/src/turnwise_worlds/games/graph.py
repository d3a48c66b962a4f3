"""Builds a whole game: every reachable position, and the information sets in which players choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from turnwise_worlds.games.game import Game, Returns, write_prompt

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class InformationSet:
    """Positions that the mover cannot tell apart."""

    text: str
    """The text that the mover reads in all of them."""
    mover: int
    moves: tuple[str, ...]
    nodes: tuple[int, ...]
    """Indices into `GameGraph.nodes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A position."""

    place: int | None
    """Index into `GameGraph.information_sets`; None if the game is over."""
    children: tuple[int, ...]
    """The position after each move, as an index into `GameGraph.nodes`."""
    returns: Returns
    """Returns of a finished game; (0, 0) for other positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameGraph:
    """All positions. Equal states are one node, however they were reached."""

    name: str
    nodes: tuple[Node, ...]
    """Every node comes after its children."""
    information_sets: tuple[InformationSet, ...]
    deals: tuple[tuple[int, float], ...]
    """The nodes with which games open, with their probabilities."""

    @property
    def has_perfect_information(self) -> bool:
        """Whether every mover knows the position."""
        return all(len(place.nodes) == 1 for place in self.information_sets)

    @property
    def is_tree(self) -> bool:
        """Whether every position is reached in only one way, so that players remember their own earlier moves."""
        parents = Counter(child for node in self.nodes for child in node.children)
        parents.update(node for node, _ in self.deals)
        return max(parents.values()) == 1


@cache
def build_graph(game: Game[S]) -> GameGraph:
    """Build the graph of all positions of a game, once per game: tic-tac-toe has 5,478 positions, Leduc poker fewer.

    Raises ValueError if positions with the same text have different moves.
    """
    places: dict[tuple[int, str], int] = {}
    moves: list[tuple[str, ...]] = []
    members: list[list[int]] = []
    nodes: list[Node] = []
    index: dict[S, int] = {}

    def visit(state: S) -> int:
        if state in index:
            return index[state]
        mover = game.mover(state)
        if mover is None:
            nodes.append(Node(place=None, children=(), returns=game.returns(state)))
        else:
            legal, text = game.moves(state), write_prompt(game, state)
            children = tuple(visit(game.play(state, move)) for move in legal)
            place = places.setdefault((mover, text), len(places))
            if place == len(moves):
                moves.append(legal)
                members.append([])
            if moves[place] != legal:
                raise ValueError(f"{game.name}: several positions with different moves share the text {text!r}")
            members[place].append(len(nodes))
            nodes.append(Node(place=place, children=children, returns=(0.0, 0.0)))
        index[state] = len(nodes) - 1
        return index[state]

    opened = game.deals()
    counts = Counter(visit(state) for state in opened)
    return GameGraph(
        name=game.name,
        nodes=tuple(nodes),
        information_sets=tuple(
            InformationSet(text=text, mover=mover, moves=moves[place], nodes=tuple(members[place]))
            for (mover, text), place in places.items()
        ),
        deals=tuple((node, count / len(opened)) for node, count in counts.items()),
    )
