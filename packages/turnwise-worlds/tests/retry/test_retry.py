"""Calls with a second attempt: what a failure shows, what a reflection is worth, and controls that must fail."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from asked_episodes import play_asked, scored, speak_as
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.episodes import Ask, EpisodeEnd
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Scored, StopReason, Task
from turnwise.environments.replies import answer_message as say
from turnwise_worlds.retry.conventions import (
    LETTERS,
    OFFSETS,
    build_call,
    convert,
    infer_convention,
    is_held_out,
    spell,
)
from turnwise_worlds.retry.environment import PLAYER, REFLECTOR
from turnwise_worlds.retry.family import Retry

DONE = EpisodeEnd(stop=StopReason.DONE)


def play(family: Retry, task: Task, policy: str, *, seed: int = 0) -> tuple[Mapping[str, Scored], list[Ask]]:
    """Rewards of a scripted policy, and everything it was asked."""
    speak = speak_as(family.policy(policy), task, seed=seed)
    rewards, asks, _ = play_asked(family.build_environment(task), task, speak)
    return scored(rewards), asks


def success(policy: str, count: int = 400, **arguments: Any) -> float:
    """Share of held-out tasks whose last attempt is right."""
    family = Retry(**arguments)
    rewards = [play(family, family.task("heldout", i), policy, seed=i)[0] for i in range(count)]
    return sum(reward[REFLECTOR].part("success") or 0.0 for reward in rewards) / count


def find_task(family: Retry, convention: str) -> Task:
    """The first training task with that convention."""
    tasks = (family.task("train", index) for index in range(1000))
    return next(task for task in tasks if build_call(task.payload["seed"], held_out=False).convention == convention)


def test_conventions_by_hand() -> None:
    assert convert("dha", "next") == "eab"
    assert convert("dha", "previous") == "cgh"
    assert convert("dha", "far") == "hde"
    assert convert("d h a", "no such convention") == convert("dha", "keep") == "dha"
    assert infer_convention("hb") == "skip"
    assert [infer_convention(text) for text in ("hc", "", "h", "hbb", "xy", "x")] == [None] * 6
    assert spell("dha") == "d h a"
    assert is_held_out("abd")
    assert not is_held_out("abe")


@given(letter=st.sampled_from(LETTERS), name=st.sampled_from(list(OFFSETS)))
def test_an_example_shows_one_convention(letter: str, name: str) -> None:
    assert infer_convention(letter + convert(letter, name)) == name


def test_training_has_no_letters_of_held_out_tasks() -> None:
    family = Retry()
    for split in ("train", "heldout"):
        for index in range(300):
            payload = family.task(split, index).payload  # type: ignore[arg-type]
            call = build_call(payload["seed"], held_out=payload["held_out"])
            assert is_held_out(call.letters) == (split == "heldout")


def test_the_retry_sees_the_call_and_the_reflection_and_nothing_of_the_failure() -> None:
    family = Retry()
    task = find_task(family, "far")
    call = build_call(task.payload["seed"], held_out=False)
    rewards, seen = play(family, task, "oracle")
    assert [(ask.role, ask.conversation) for ask in seen] == [
        (PLAYER, "first"),
        (REFLECTOR, "reflection"),
        (PLAYER, "retry"),
    ]
    first, reflection, retry = (ask.messages[0].text for ask in seen)
    letters = spell(call.letters)
    assert first == f" call {letters} note none send"
    assert reflection == f" call {letters} failed {letters} example {call.example} why"
    assert retry == f" call {letters} note far send"
    assert task.prompt == seen[0].messages
    for reward in (rewards[PLAYER], rewards[REFLECTOR]):
        assert (reward.total, reward.part("success"), reward.part("first")) == (1.0, 1.0, 0.0)


def test_an_attempt_that_succeeds_needs_no_reflection() -> None:
    family = Retry()
    rewards, seen = play(family, find_task(family, "keep"), "oracle")
    assert [ask.conversation for ask in seen] == ["first"]
    assert rewards[REFLECTOR].part("first") == 1.0


def test_what_the_policies_and_the_controls_are_worth() -> None:
    assert success("oracle") == 1.0
    first = success("oracle", attempts=1)
    assert first == success("oracle", reflection="none")
    assert 0.14 < first < 0.26  # One convention of five.
    # Of four conventions that a failure leaves, one is blamed.
    assert 0.33 < success("oracle", reflection="shuffled") < 0.47
    assert 0.33 < success("oracle", feedback="bit") < 0.47
    assert 0.58 < success("naive") < 0.75  # 1/5 + 4/5 (0.45 + 0.55 / 4)
    assert success("random") < 0.02


def test_a_reflection_beyond_its_bound_ends_the_episode_without_success() -> None:
    family = Retry(max_reflection_words=2)
    task = find_task(family, "next")

    async def reflect(words: str) -> tuple[bool, Scored]:
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell("first", say("a"))
        asked = await environment.tell("reflection", say(words))
        reward = (await environment.score({}, DONE))[REFLECTOR]
        assert isinstance(reward, Scored)
        return bool(asked.asks), reward

    goes_on, _ = asyncio.run(reflect("next letter"))
    assert goes_on
    goes_on, reward = asyncio.run(reflect("the next letter"))
    assert (goes_on, reward.total, reward.part("overflow")) == (False, 0.0, 1.0)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="reflection='lost'"):
        Retry(reflection="lost")
    with pytest.raises(ConfigError, match="attempts=3"):
        Retry(attempts=3)
    family = Retry()
    task = find_task(family, "next")

    async def tell_before_asked() -> None:
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell("retry", say("a b c"))

    with pytest.raises(EnvironmentFault, match="got a reply in 'retry', not in 'first'"):
        asyncio.run(tell_before_asked())


def test_texts_hold_every_word_of_a_role() -> None:
    words = {word for text in Retry().texts(600) for word in text.split()}
    assert set(OFFSETS) | {"call", "note", "none", "send", "failed", "example", "why"} <= words
