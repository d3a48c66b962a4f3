"""Shows who waits for whom: what a person needs to see when nothing moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """One edge of a wait-for graph, or several with one reason."""

    waiter: str
    awaited: tuple[str, ...]
    reason: str


def describe_waits(edges: Iterable[WaitsFor], *, most: int = 8) -> str:
    """Format the graph as text, with an arrow from each waiter to what it waits for; of many edges, only the first and
    their number."""
    lines = [f"{edge.waiter} → {_list(edge.awaited, most)} ({edge.reason})" for edge in edges]
    rest = f"; and {len(lines) - most} more" if len(lines) > most else ""
    return "; ".join(lines[:most]) + rest


def find_sources(edges: Sequence[WaitsFor]) -> tuple[str, ...]:
    """Return what is waited for and does not itself wait: where to look first. Empty if all wait in a circle."""
    waiters = {edge.waiter for edge in edges}
    awaited = dict.fromkeys(name for edge in edges for name in edge.awaited)
    return tuple(name for name in awaited if name not in waiters)


def _list(names: Sequence[str], most: int) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
