"""What a start says about the training tasks: whether they differ, not only whether there are enough."""

from typing import Any

from turnwise.environments.classes.family import ClassFamily
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
