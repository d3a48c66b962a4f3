"""Reports who waits for whom when nothing moves in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from turnwise.core.waiting import WaitsFor, describe_waits, find_sources

STALL_S = 120.0
"""Seconds without a reply, an ended member, a stored group or a step after which a run reports who waits for whom."""
WORK_S = 1800.0
"""The same while a batch trains or the work after a step runs: longer than any collective of ranks may be silent."""
WORK = {
    "training": "the trainer's step",
    "publishing": "engines that take the weights",
    "after_step": "an evaluation or a checkpoint",
}
"""What the run waits for, by the trainer's state (`utilisation.TRAINER`)."""


class StallWatch:
    """Detects that nothing moves: equal counts for `limit_s`, or `work_s`. Each stall is reported once."""

    def __init__(self, limit_s: float = STALL_S, work_s: float = WORK_S) -> None:
        self.limit_s, self._work_s = limit_s, work_s
        """`limit_s` is also how long to wait between two looks."""
        self._seen: tuple[tuple[int, ...], bool] | None = None
        self._since_s = 0.0
        self._is_told = False

    def look(self, counts: tuple[int, ...], now_s: float, *, is_working: bool) -> float | None:
        """Return the seconds for which nothing has moved, once they reach the limit; None otherwise.

        `counts` are numbers that grow when something moves. `is_working`: the trainer is in one of the states `WORK`,
        during which no count grows; entering or leaving such a state counts as a move.
        """
        if (counts, is_working) != self._seen:
            self._seen, self._since_s, self._is_told = (counts, is_working), now_s, False
        stalled_s = now_s - self._since_s
        if self._is_told or stalled_s < (self._work_s if is_working else self.limit_s):
            return None
        self._is_told = True
        return stalled_s


def find_waits(
    reason: str,
    awaited: Iterable[int],
    members: Mapping[int, Mapping[int, str]],
    *,
    storing: int,
) -> list[WaitsFor]:
    """Return the wait-for graph of a run.

    Args:
        reason: why the trainer has no batch; its state in `WORK` while it has one.
        awaited: draws it waits for.
        members: per open draw, what each member that has not ended waits for.
        storing: complete groups that are being annotated or written to disk.
    """
    groups = tuple(f"group {draw}" for draw in awaited)
    if reason in WORK:
        edges = [WaitsFor("the run", (WORK[reason],), reason)]
    else:
        edges = [WaitsFor("the trainer", groups or ("a group that may open",), reason)]
    if storing:
        edges.append(WaitsFor("complete groups", ("annotators or the disk",), f"{storing} not stored"))
    for draw, waits in members.items():
        places = sorted(set(waits.values()))
        for place in places:
            names = tuple(str(member) for member, own in sorted(waits.items()) if own == place)
            edges.append(WaitsFor(f"group {draw}, members {', '.join(names)}", (place,), "not ended"))
    return edges


def describe_stall(stalled_s: float, edges: list[WaitsFor]) -> str:
    """Describe a stall for the alarm: the graph, and what waits for nothing itself."""
    first = [name for name in find_sources(edges) if not name.startswith("group ")]
    look = f"; look at {', '.join(first)} first" if first else ""
    return f"alarm: nothing has moved for {stalled_s:.0f} s; who waits for whom: {describe_waits(edges)}{look}"
