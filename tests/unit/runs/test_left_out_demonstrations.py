"""Rows that give no demonstration are left out of the warm-up, named and counted."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from turnwise.core.errors import DataError, EnvironmentFault
from turnwise.core.types import Episode, StopReason, Task, text_message
from turnwise.environments.draws import LeftOut
from turnwise.runs import sft
from turnwise.testing import make_trajectory


class Rows:
    """Rows of which two cannot be made."""

    def task(self, split: str, index: int) -> Task:
        if index in (3, 4):
            raise KeyError("answer")
        return Task(environment="rows", prompt=(text_message("user", str(index)),), payload={})


def play(monkeypatch: pytest.MonkeyPatch, count: int, max_left_out: float) -> tuple[list[Any], list[LeftOut]]:
    async def demonstrate(system: Any, policy: Any, index: int, task: Task) -> Episode:
        if index == 6:
            raise EnvironmentFault("the oracle has no answer")
        return Episode(draw=Any, member=0, trajectories=(make_trajectory(draw=index),), stop=StopReason.DONE)  # type: ignore[arg-type]

    monkeypatch.setattr(sft, "demonstrate", demonstrate)
    config = SimpleNamespace(
        engine=SimpleNamespace(max_concurrency=2), environment=SimpleNamespace(max_left_out=max_left_out)
    )
    left: list[LeftOut] = []
    system: Any = SimpleNamespace(family=Rows(), config=config)
    return asyncio.run(sft._play_all(system, None, count, left.append)), left  # type: ignore[arg-type]


def test_rows_without_a_demonstration_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes, left = play(monkeypatch, 10, 0.05)
    assert [episode.trajectories[0].id.draw for episode in episodes] == [0, 1, 2, 5, 7, 8, 9]
    assert sorted(task.index for task in left) == [3, 4, 6]
    assert max(task.why for task in left) == "task 6 of split 'train': its demonstration: the oracle has no answer"


def test_too_many_of_them_end_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"2 of 10 tasks cannot be played, more than environment.max_left_out=0.01"):
        play(monkeypatch, 10, 0.01)
