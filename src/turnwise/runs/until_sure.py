"""Evaluations that stop when it is known on which side of a share, or of another evaluation, success is."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.relations import name_cluster
from turnwise.core.seeds import rng
from turnwise.core.types import Draw, TrajectoryGroup
from turnwise.evaluation.results import Results, to_results
from turnwise.evaluation.sequential import MeanTest
from turnwise.evaluation.summary import Decision
from turnwise.runs.compare import load_results

BATCH = 32
"""Tasks played between two looks, at least."""
Play = Callable[[Sequence[Draw]], Awaitable[list[TrajectoryGroup]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilSure:
    """What success is compared with: a share, or another evaluation on the same tasks."""

    against: str
    share: float | None
    """None: compared with `other`."""
    other: Results | None = None

    async def play(self, play: Play, draws: Sequence[Draw]) -> tuple[list[TrajectoryGroup], Decision]:
        """Play clusters of tasks in a random order that is always the same, until the answer is known or none is left.
        Returns the groups in the order of `draws`.

        Raises DataError if the other evaluation has none of the tasks.
        """
        clusters = self._choose(draws)
        test = MeanTest(threshold=0.0, least=-1.0) if self.share is None else MeanTest(threshold=self.share)
        groups: list[TrajectoryGroup] = []
        at = 0
        while at < len(clusters) and test.decision is None:
            batch: list[Draw] = []
            begin = at
            while at < len(clusters) and len(batch) < BATCH:
                batch, at = [*batch, *clusters[at]], at + 1
            played = await play(batch)
            groups += played
            results = to_results("", played)
            test.observe(
                value for cluster in clusters[begin:at] if (value := self._value(cluster, results)) is not None
            )
        places = {draw.index: place for place, draw in enumerate(draws)}
        groups.sort(key=lambda group: places[group.draw.index])
        decision = Decision(
            against=self.against,
            side=test.decision,
            error=test.error,
            results=test.count,
            available=len(clusters),
        )
        return groups, decision

    def _choose(self, draws: Sequence[Draw]) -> list[list[Draw]]:
        """The draws that can be compared, by cluster, in random order."""
        clusters: dict[str, list[Draw]] = {}
        for draw in draws:
            if self.other is None or (draw.task.id in self.other.tasks and self.other.tasks[draw.task.id].scores):
                clusters.setdefault(name_cluster(draw.task), []).append(draw)
        if not clusters:
            raise DataError(
                f"{self.against} has scored 0 of these {len(draws):,} tasks; name an evaluation of the same tasks"
            )
        order = [*clusters.values()]
        rng(0, "until sure").shuffle(order)
        return order

    def _value(self, cluster: Sequence[Draw], results: Results) -> float | None:
        """Mean over a cluster's tasks of success, less that of the other evaluation; None if none was scored."""
        values = []
        for draw in cluster:
            found = results.tasks[draw.task.id]
            if found.scores:
                values.append(found.mean - (self.other.tasks[draw.task.id].mean if self.other else 0.0))
        return math.fsum(values) / len(values) if values else None


def build_until(against: str) -> UntilSure:
    """Read what to compare with: a number in (0, 1), or what `load_results` takes. Raises ConfigError for another
    number, and what `load_results` raises."""
    try:
        share = float(against)
    except ValueError:
        other = load_results(against)
        return UntilSure(against=other.name, share=None, other=other)
    if not 0 < share < 1:
        raise ConfigError(f"--until-sure {against} is not a share between 0 and 1, such as 0.5")
    return UntilSure(against=f"{share:g}", share=share)
