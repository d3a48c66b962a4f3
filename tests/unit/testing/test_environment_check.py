"""`check_environment` passes a sound environment and finds every planted fault."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from random import Random
from typing import Any

import numpy as np
import pytest
from asking_worlds import Talker, WandererFamily

from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Task
from turnwise.environments.classes.family import ClassFamily
from turnwise.environments.episodes import play_episode
from turnwise.environments.search_qa.family import SearchQA
from turnwise.testing import CheckLine, CheckPlan, check_environment


class Sound:
    """Say the letter twice: solvable, hard by chance, repeatable."""

    def reset(self, seed: int) -> str:
        self.letter, self.right, self.done = Random(seed).choice("abcdefgh"), False, False
        return f"The letter is {self.letter}."

    def say(self, text: str) -> str:
        """Say it.

        Args:
            text: The letter, twice.
        """
        self.right, self.done = text == self.letter * 2, True
        return "said"

    def get_reward(self) -> float:
        return float(self.right)

    def _oracle(self) -> tuple[str, dict[str, str]]:
        return "say", {"text": self.letter * 2}


class Unseeded(Sound):
    def reset(self, seed: int) -> str:
        super().reset(seed)
        self.letter = random.choice("abcdefgh")
        return f"The letter is {self.letter}."


class Leaking(Sound):
    """Opening an episode changes the answers of those that are open."""

    opened = ""

    def reset(self, seed: int) -> str:
        text = super().reset(seed)
        Leaking.opened = self.letter
        return text

    def say(self, text: str) -> str:
        """Say it.

        Args:
            text: The letter, twice.
        """
        self.right, self.done = text == Leaking.opened * 2, True
        return "said"


class Empty(Sound):
    """Success unless something wrong was said."""

    def reset(self, seed: int) -> str:
        text = super().reset(seed)
        self.right = True
        return text


class Helpless(Sound):
    def _oracle(self) -> tuple[str, dict[str, str]]:
        return "say", {"text": self.letter}


class Generous(Sound):
    def get_reward(self) -> float:
        return float(self.done)


class Rewardless(Sound):
    def get_reward(self) -> float:
        return float("nan")


class Crashing(Sound):
    def say(self, text: str) -> str:
        """Say it.

        Args:
            text: The letter, twice.
        """
        self.no_such_attribute  # type: ignore[attr-defined]  # noqa: B018
        return "said"


class Moody(Sound):
    """Opens for nobody."""

    def reset(self, seed: int) -> str:
        raise RuntimeError("not today")


def check(plain: type, **plan: Any) -> dict[str, CheckLine]:
    lines = check_environment(lambda **changes: ClassFamily(plain, **changes), plan=CheckPlan(num_tasks=16, **plan))
    return {line.check: line for line in lines}


def failures(lines: dict[str, CheckLine]) -> set[str]:
    return {line.check for line in lines.values() if line.verdict == "fail"}


def test_a_sound_environment_passes() -> None:
    lines = check(Sound)
    assert failures(lines) == set()
    assert lines["oracle"].text == "succeeds on 100% of 16 tasks (at least 95%)"
    assert lines["controls"].verdict == "skip"
    assert "16 tasks" in lines["attack: empty reply"].text


def test_roles_that_speak_at_the_same_time_are_told_in_the_order_in_which_they_were_asked() -> None:
    family = WandererFamily(num_roles=3)
    for index in range(5):
        task = family.task("train", index)
        played = asyncio.run(play_episode(family, task, Talker(), seed=index, max_turns=20))
        assert set(played.rewards) == {"first", "second", "third"}
        assert len(played.replies) == len(played.results) == 8
        assert [result.done for result in played.results] == [*[False] * 7, True]


@pytest.mark.parametrize(
    ("plain", "found", "words"),
    [
        (Unseeded, "same seed, same episode", "with one seed: "),
        (Leaking, "no leaks between episodes", "the rewards differ"),
        (Empty, "attack: empty reply", "succeeds on 100%"),
        (Helpless, "oracle", "succeeds on 0%"),
        (Generous, "random", "succeeds on 100%"),
        (Generous, "attack: every tool at once", "succeeds on 100%"),
        (Rewardless, "random", "nan, not a finite number"),
        (Crashing, "random", "AttributeError"),
        (Moody, "tools", "not today"),
    ],
)
def test_a_planted_fault_is_found(plain: type, found: str, words: str) -> None:
    lines = check(plain)
    assert lines[found].verdict == "fail", lines
    assert words in lines[found].text


def test_a_leak_is_nothing_else() -> None:
    """Episodes one after the other hide it: only interleaving shows it."""
    assert failures(check(Leaking)) == {"no leaks between episodes"}


def test_an_episode_that_hangs_fails_its_line_in_time() -> None:
    class Slow(Sound):
        def reset(self, seed: int) -> str:
            import time

            time.sleep(3)
            return "late"

    lines = check_environment(
        lambda **changes: ClassFamily(Slow, tool_timeout_s=0.1, **changes), plan=CheckPlan(num_tasks=2, timeout_s=1)
    )
    assert {line.check for line in lines if line.verdict == "fail"} >= {"tools", "oracle", "random"}


def test_controls_must_make_the_oracle_fail() -> None:
    def build(**changes: Any) -> EnvironmentFamily:
        return SearchQA(kinds={"1hop": 1.0}, **changes)

    controls: dict[str, dict[str, Any]] = {"shuffled": {"search": "shuffled"}, "nothing": {"seed": 1}}
    lines = {line.check: line for line in check_environment(build, controls=controls, plan=CheckPlan(num_tasks=16))}
    assert lines["control shuffled"].verdict == "pass"
    assert lines["control nothing"].verdict == "fail"
    assert failures(lines) == {"control nothing"}


class Shifting(ClassFamily):
    """Hands out another task each time it is asked."""

    asked = 0

    def task(self, split: Any, index: int) -> Task:
        Shifting.asked += 1
        return super().task(split, index + Shifting.asked)


class Shared(ClassFamily):
    def task(self, split: Any, index: int) -> Task:
        return super().task("train", index)


@pytest.mark.parametrize(
    ("family", "found", "words"),
    [(Shifting, "tasks", "another one"), (Shared, "held-out tasks", "share 200 of their first 200")],
)
def test_tasks_that_are_no_function_of_split_and_index_or_shared_are_found(
    family: type[ClassFamily], found: str, words: str
) -> None:
    lines = check_environment(lambda **changes: family(Sound, **changes), plan=CheckPlan(num_tasks=4))
    (line,) = (line for line in lines if line.verdict == "fail")
    assert line.check == found
    assert words in line.text


class Common(Sound):
    """Writes where every episode writes, and reads it back a moment later."""

    letter_of_all = ""

    async def say(self, text: str) -> str:  # type: ignore[override]
        """Say it.

        Args:
            text: The letter, twice.
        """
        Common.letter_of_all = self.letter
        await asyncio.sleep(0.001)
        self.right, self.done = text == Common.letter_of_all * 2, True
        return "said"


class Elsewhere(Sound):
    """Raises what only its own code can cause, and goes on."""

    def look(self) -> str:
        """Look."""
        raise sqlite3.ProgrammingError("objects created in a thread can only be used in that same thread")


class Typed(Sound):
    def get_reward(self) -> Any:
        return {"reward": np.float32(self.right), "length": np.int64(3)}


def test_what_only_shows_while_others_play_is_found() -> None:
    lines = check(Common)
    assert "no leaks between episodes" in failures(lines)
    assert "while others are: the rewards differ" in lines["no leaks between episodes"].text


def test_exceptions_of_a_tools_own_code_are_counted() -> None:
    assert "look raises ProgrammingError in " in check(Elsewhere)["random"].text


def test_numbers_of_numpy_are_rewards_and_a_reward_that_is_none_says_where() -> None:
    assert failures(check(Typed)) == set()
    assert "Rewardless.get_reward(): the reward is nan" in check(Rewardless)["oracle"].text


def test_whatever_a_family_raises_is_a_line() -> None:
    class Raising(ClassFamily):
        def task(self, split: Any, index: int) -> Task:
            if index == 3:
                raise KeyError("row 3")
            return super().task(split, index)

    lines = check_environment(lambda **changes: Raising(Sound, **changes), plan=CheckPlan(num_tasks=4))
    assert [(line.check, line.verdict) for line in lines] == [("tasks", "fail")]
    assert "row 3" in lines[0].text


class Long(Sound):
    def read(self) -> str:
        """Read more than is shown."""
        return "rain " * 1000


def test_results_that_are_cut_are_named() -> None:
    text = check(Long)["random"].text
    assert "results of read are cut in " in text
    assert "environment.max_observation_chars; return pages" in text
    assert "cut" not in check(Sound)["random"].text
