"""What a start says about the training tasks: whether they differ, not only whether there are enough."""

import asyncio
from typing import Any

import pytest

from turnwise.core.errors import DataError, EnvironmentFault
from turnwise.environments.classes.family import ClassFamily
from turnwise.runs.openings import open_first, open_tasks
from turnwise.runs.start import describe_distinct


class Rows:
    def reset(self, word: str) -> str:
        return word

    def say(self, text: str) -> str:
        """Say it.

        Args:
            text: What.
        """
        return text

    def get_reward(self) -> float:
        return 0.0


def family(count: int) -> ClassFamily:
    return ClassFamily(Rows, rows=[{"word": f"word {index}"} for index in range(count)])


def test_rows_that_come_again_are_counted() -> None:
    # Of 20 rows 2 are held out: 18 for training.
    assert describe_distinct(family(20), 18) == "all there and different"
    assert describe_distinct(family(20), 19) == "18 different ones, which come again"
    text = describe_distinct(family(20), 5000)  # as many as there is time for
    assert text.startswith("of the first ")
    assert text.endswith(" 18 different ones, which come again")


def test_a_task_that_cannot_be_made_is_said_where_it_is_drawn() -> None:
    class Bad(ClassFamily):
        def task(self, split: Any, index: int) -> Any:
            if index == 1:
                raise KeyError("x")
            return super().task(split, index)

    bad = Bad(Rows, rows=[{"word": f"word {index}"} for index in range(20)])
    assert describe_distinct(bad, 3) == "all there and different"


class Choosy(Rows):
    refused: frozenset[str] = frozenset()

    def reset(self, word: str) -> str:
        if word in self.refused:
            raise ValueError(f"{word} has no picture")
        return word


def test_a_task_that_does_not_open_is_passed_over_at_a_start() -> None:
    rows = [{"word": word} for word in "abcdef"]
    family = ClassFamily(Choosy, rows=rows, heldout_path="")
    words = [family.task("train", index).payload["row"]["word"] for index in range(3)]

    async def list_opened() -> list[int]:
        return [index async for index, _, _ in open_tasks(family, "train")]

    Choosy.refused = frozenset(words[:1])
    index, task, opening = asyncio.run(open_first(family))
    assert (index, task.payload["row"]["word"], opening.messages[-1].text) == (1, words[1], words[1])
    assert asyncio.run(list_opened()) == [1, 2]
    Choosy.refused = frozenset(words)
    expected = rf"^task 0 of split 'train'.*: Choosy.reset failed: ValueError: {words[0]} has no picture; none of the"
    with pytest.raises(EnvironmentFault, match=expected):
        asyncio.run(open_first(family))


def test_a_split_without_tasks_is_said() -> None:
    class Empty(ClassFamily):
        def task(self, split: Any, index: int) -> Any:
            raise IndexError("no rows")

    with pytest.raises(DataError, match=r"held-out split is empty; give environment\.args\.heldout_path"):
        asyncio.run(open_first(Empty(Rows, rows=[{"word": "a"}, {"word": "b"}]), "heldout"))
