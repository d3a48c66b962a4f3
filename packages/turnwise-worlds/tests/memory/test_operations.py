"""A bounded store: what operations do to it, that it must be kept in order, and controls that must fail."""

import asyncio
from typing import Any

import pytest
from asked_episodes import play_policy

from turnwise.core.episodes import EpisodeEnd
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Scored, StopReason
from turnwise.environments.replies import answer_message
from turnwise_worlds.memory.family import build_family
from turnwise_worlds.memory.operations.events import END, TALK, build_events, choose_operation
from turnwise_worlds.memory.operations.family import Operations
from turnwise_worlds.memory.operations.store import Lines, apply, look_up
from turnwise_worlds.memory.words import slot_of

DONE = EpisodeEnd(stop=StopReason.DONE)


def worth(policy: str, part: str = "success", count: int = 60, **arguments: Any) -> float:
    """Mean of a part of the reward of a scripted policy on held-out tasks."""
    family = Operations(**arguments)
    tasks = [family.task("heldout", i) for i in range(count)]
    rewards = [play_policy(family, task, family.policy(policy), seed=i).reward for i, task in enumerate(tasks)]
    return sum(reward.part(part) or 0.0 for reward in rewards if isinstance(reward, Scored)) / count


def test_what_operations_do_to_the_lines() -> None:
    lines = ("redka", "bluelo")
    assert apply(lines, "red none redmi add") == ("redka", "bluelo", "redmi")
    assert apply(lines, "red redka redmi update") == ("bluelo", "redmi")
    assert apply(lines, "red redka delete") == ("bluelo",)
    for nothing in (
        "noop",
        "",
        "red",
        "gold none goldmi update",
        "red redpe redmi update",
        "red none delete",
        "update",
    ):
        assert apply(lines, nothing) == lines
    assert look_up(("redka", "bluelo", "redmi"), "red") == "redmi"
    assert look_up(lines, "gold") is look_up(lines, None) is None
    assert (slot_of("redka"), slot_of("red"), slot_of("hmka"), slot_of("redcar")) == ("red", None, None, None)


def test_a_stream_never_has_more_open_than_its_bound_and_more_is_said_than_fits() -> None:
    num_crowded = 0
    for seed in range(200):
        events = build_events(seed, count=10, max_open=3)
        lines: Lines = ()
        for word in events.words:
            operation = choose_operation(lines, word)
            assert operation == "noop" if word.startswith(TALK) else operation != "noop"
            if word.startswith(END):
                assert look_up(lines, word.removeprefix(END)) is not None
            else:
                assert word not in lines
            lines = apply(lines, operation)
            assert 1 <= len(lines) <= 3
        assert events.answer in lines
        assert slot_of(events.answer) == events.asked
        num_crowded += len([word for word in events.words if slot_of(word)]) > 3
    assert num_crowded > 150


def test_every_event_is_a_context_of_its_own_with_the_store_as_it_is() -> None:
    family = Operations(events=2)
    task = family.task("train", 0)
    played = play_policy(family, task, family.policy("oracle"), seed=0)
    first, second = build_events(task.payload["seed"], count=2, max_open=3).words
    assert [ask.conversation for ask in played.asks] == ["event0", "event1", "answer"]
    assert played.asks[0].messages == task.prompt
    assert played.asks[0].messages[0].text == f" store event {first}"
    assert played.replies[0].text == f"<answer> {slot_of(first)} none {first} add </answer>"
    assert played.asks[1].messages[0].text == f" store {first} event {second}"


def test_what_the_policies_and_the_controls_are_worth() -> None:
    assert worth("oracle") == worth("oracle", count=20, events=40) == 1.0
    assert worth("oracle", memory="erased") < 0.05
    assert worth("oracle", capacity=1) < 0.1
    assert worth("oracle", "overflow", capacity=1) > 0.9
    assert worth("naive", naive_keep=0.0) < 0.05
    assert 0.05 < worth("naive", events=8, naive_keep=0.45) < 0.35
    assert worth("random") < 0.1


def test_a_line_beyond_the_capacity_ends_the_episode_without_success() -> None:
    async def run() -> None:
        family = Operations(capacity=2)
        task = family.task("train", 0)
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        for number in range(2):
            assert (await environment.tell(f"event{number}", answer_message("red none redka add"))).asks
        assert not (await environment.tell("event2", answer_message("red none redka add"))).asks
        reward = (await environment.score({}, DONE))["agent"]
        assert isinstance(reward, Scored)
        assert (reward.total, reward.part("overflow")) == (0.0, 1.0)

    asyncio.run(run())


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="style='tables' is not a memory style; use one of chunks, operations"):
        build_family(style="tables")
    with pytest.raises(ConfigError, match="chunks=4: unknown argument"):
        build_family(style="operations", chunks=4)
    family = Operations()
    task = family.task("train", 0)

    async def tell_another() -> None:
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell("event3", answer_message("noop"))

    with pytest.raises(EnvironmentFault, match="had not asked for"):
        asyncio.run(tell_another())


def test_splits_share_no_stream() -> None:
    family = Operations()
    train = {family.task("train", i).payload["seed"] for i in range(500)}
    assert not train & {family.task("heldout", i).payload["seed"] for i in range(500)}
