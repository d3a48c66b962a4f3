"""A plain function of one's own as a sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from turnwise.curriculum.sampler import Choice, OfferedTasks, TaskResult

ChooseTask = Callable[[OfferedTasks, Mapping[int, TaskResult], Sequence[float]], Choice | None]


class FunctionSampler:
    """Implements `Sampler` with a function of what is offered, the latest result of each task, and `luck`."""

    def __init__(self, function: ChooseTask) -> None:
        self._function = function
        self._results: dict[int, TaskResult] = {}

    def choose(self, offered: OfferedTasks, luck: Sequence[float]) -> Choice | None:
        """Return what the function returns. Raises what it raises."""
        return self._function(offered, self._results, luck)

    def observe(self, results: Sequence[TaskResult], step: int) -> None:
        """Keep the latest result of each task."""
        self._results.update({result.task: result for result in results})

    def measure(self) -> Mapping[str, float]:
        """There is nothing to measure."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """See `Sampler`."""
        return {"results": [asdict(result) for result in self._results.values()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Sampler`."""
        results = (TaskResult(**{**row, "rewards": tuple(row["rewards"])}) for row in state["results"])
        self._results = {result.task: result for result in results}
