"""An archive of tasks that are drawn again by score and staleness: prioritised level replay.

PLR (arXiv 2010.03934) mixes `(1 - staleness) P_S + staleness P_C`, P_S in proportion to rank^(-1/temperature), P_C to
the time since a level was played. Deviations: there is no critic, so its score, the mean absolute advantage, is taken
from the rewards of the group; "regret" is the maximum so far minus the mean (MaxMC of arXiv 2110.02439); equal scores
share the mean of their places' weights instead of an order that depends on the sort; time is counted in steps. New
tasks train too, as in PLR and unlike Robust PLR.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from turnwise.config.section import Section
from turnwise.curriculum.choosing import choose_new, draw_weighted
from turnwise.curriculum.sampler import Choice, OfferedTasks, SamplerKind, TaskResult


class ReplayOptions(Section):
    """Options of `plr`."""

    replay: float = Field(0.5, ge=0, le=1)
    """Share of draws that come from the archive."""
    score: Literal["advantage", "regret"] = "advantage"
    """"advantage": the mean distance of a reward from the mean of its group. "regret": the highest reward so far minus
    the mean."""
    temperature: float = Field(0.1, gt=0)
    """Rank r counts r^(-1/temperature): small values draw almost only the first."""
    staleness: float = Field(0.1, ge=0, le=1)
    """Share of replayed draws that go by the steps since a task was last played instead of by its score."""
    capacity: int = Field(1000, ge=1)
    """Maximum number of tasks in the archive; the lowest score leaves first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One task of the archive."""

    score: float
    best: float
    """The highest reward so far."""
    step: int
    """When it was last played."""


class ReplaySampler:
    """Implements `Sampler`."""

    def __init__(self, options: ReplayOptions) -> None:
        self._options = options
        self._archive: dict[int, Level] = {}
        self._step = 0

    def compute_chances(self, tasks: Sequence[int]) -> dict[int, float]:
        """Return the chance of each of these tasks of the archive."""
        ranked = sorted(tasks, key=lambda task: (-self._archive[task].score, task))
        # By logarithm: at temperature 0.01 the weight of rank 10^4 is below the smallest float.
        places = {task: math.exp(-math.log(rank) / self._options.temperature) for rank, task in enumerate(ranked, 1)}
        by_score: dict[float, list[int]] = {}
        for task in ranked:
            by_score.setdefault(self._archive[task].score, []).append(task)
        total = math.fsum(places.values())
        ages = {task: self._step - self._archive[task].step for task in ranked}
        total_age, mixed = sum(ages.values()), {}
        for equal in by_score.values():
            score_share = math.fsum(places[task] for task in equal) / len(equal) / total
            for task in equal:
                age_share = ages[task] / total_age if total_age else 1 / len(ranked)
                mixed[task] = (1 - self._options.staleness) * score_share + self._options.staleness * age_share
        return mixed

    def choose(self, offered: OfferedTasks, luck: Sequence[float]) -> Choice | None:
        """See `Sampler`."""
        free = [task for task in sorted(self._archive) if offered.is_free(task)]
        if free and luck[0] < self._options.replay:
            return Choice(pool="archive", again=draw_weighted(self.compute_chances(free), luck[1]))
        return choose_new(offered, luck[1])  # without new ones those drawn least, so that what left the archive returns

    def observe(self, results: Sequence[TaskResult], step: int) -> None:
        """See `Sampler`. Of the archive's tasks with the lowest score, the one played longest ago leaves first."""
        self._step = step
        for result in results:
            before = self._archive.get(result.task)
            best = max([*result.rewards, *([] if before is None else [before.best])])
            distance = math.fsum(abs(reward - result.mean) for reward in result.rewards) / len(result.rewards)
            score = distance if self._options.score == "advantage" else best - result.mean
            self._archive[result.task] = Level(score=score, best=best, step=step)
        order = sorted(self._archive, key=lambda task: (self._archive[task].score, self._archive[task].step, task))
        for task in order[: max(0, len(order) - self._options.capacity)]:
            del self._archive[task]

    def measure(self) -> Mapping[str, float]:
        """Size and mean score of the archive."""
        scores = [level.score for level in self._archive.values()]
        return {"tasks_archive": len(scores), **({"score": math.fsum(scores) / len(scores)} if scores else {})}

    def state_dict(self) -> dict[str, Any]:
        """See `Sampler`."""
        levels = {str(task): [each.score, each.best, each.step] for task, each in self._archive.items()}
        return {"step": self._step, "archive": levels}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Sampler`."""
        self._step = int(state["step"])
        self._archive = {
            int(task): Level(score=score, best=best, step=step)
            for task, (score, best, step) in state["archive"].items()
        }


PLR = SamplerKind(
    name="plr",
    summary="new tasks, and again those of an archive by score and staleness",
    formula="P = (1 - staleness) rank^(-1/temperature) / sum + staleness age / sum of ages",
    paper="2010.03934 (score from the group instead of a critic)",
    options=ReplayOptions,
    build=ReplaySampler,
)
