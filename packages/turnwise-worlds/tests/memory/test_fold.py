"""A folded context: what branches see and what the main context sees of them, and controls that must fail."""

import asyncio
from typing import Any

import pytest
from asked_episodes import play_policy

from turnwise.core.episodes import EpisodeEnd
from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Scored, StopReason
from turnwise.environments.episodes import Played
from turnwise.environments.replies import answer_message
from turnwise_worlds.memory.chunks.stream import build_stream, format_memory, read_chunk
from turnwise_worlds.memory.fold.family import Fold
from turnwise_worlds.memory.words import NONE

DONE = EpisodeEnd(stop=StopReason.DONE)


def play_index(policy: str, index: int = 0, **arguments: Any) -> Played:
    """A scripted policy's episode of a held-out task."""
    family = Fold(**arguments)
    return play_policy(family, family.task("heldout", index), family.policy(policy), seed=index)


def test_branches_open_on_top_of_the_main_context_which_sees_what_they_return() -> None:
    family = Fold(sections=2)
    task = family.task("heldout", 0)
    played = play_policy(family, task, family.policy("oracle"), seed=0)
    asked = task.payload["asked"]
    first, second = build_stream(task.payload["seed"], asked, num_chunks=2, chunk_events=8).chunks
    said = [format_memory(read_chunk(dict.fromkeys(asked, NONE), words)) for words in (first, second)]
    assert [(ask.conversation, ask.caller, ask.inherits) for ask in played.asks] == [
        ("main", None, False),
        ("branch0", "main", True),
        ("main", None, False),
        ("branch1", "main", True),
        ("main", None, False),
    ]
    assert [ask.messages[0].text for ask in played.asks] == [
        f" question {' '.join(asked)} next",
        f" section {' '.join(first)} return",
        f" {said[0]} next",
        f" section {' '.join(second)} return",
        f" {said[1]} answer",
    ]
    assert [reply.text for reply in played.replies[:4]] == [
        "<answer> branch </answer>",
        f"<answer> {said[0]} </answer>",
        "<answer> branch </answer>",
        f"<answer> {said[1]} </answer>",
    ]


def test_what_is_read_in_the_main_context_stays_there() -> None:
    played = play_index("naive", naive_keep=0.0, sections=3)
    assert {ask.conversation for ask in played.asks} == {"main"}
    assert [len(ask.messages[0].text.split()) for ask in played.asks] == [4, 9, 9, 9]
    assert isinstance(played.reward, Scored)
    assert (played.reward.part("success"), played.reward.part("branches")) == (1.0, 0.0)


def test_what_the_policies_and_the_control_are_worth() -> None:
    for policy, arguments, expected in (
        ("oracle", {}, 1.0),
        ("random", {}, 0.0),
        ("oracle", {"memory": "erased"}, 0.0),
    ):
        rewards = [play_index(policy, index, **arguments).reward for index in range(40)]
        assert sum(r.part("success") or 0.0 for r in rewards if isinstance(r, Scored)) / 40 == expected


def test_too_long_a_returned_message_ends_the_episode_and_an_early_answer_is_scored() -> None:
    async def run(*said: str) -> tuple[bool, Scored]:
        family = Fold(max_return_words=2)
        task = family.task("train", 0)
        environment = family.build_environment(task)
        asked = await environment.begin(task, 0)
        for text in said:
            asked = await environment.tell(asked.asks[0].conversation, answer_message(text))
        reward = (await environment.score({}, DONE))["agent"]
        assert isinstance(reward, Scored)
        return bool(asked.asks), reward

    assert asyncio.run(run("branch", "red redka"))[0]
    goes_on, reward = asyncio.run(run("branch", "red redka blue"))
    assert (goes_on, reward.total, reward.part("overflow")) == (False, 0.0, 1.0)
    goes_on, reward = asyncio.run(run("red redka"))
    assert (goes_on, reward.part("success"), reward.part("branches")) == (False, 0.0, 0.0)


def test_what_was_not_asked_for_is_refused() -> None:
    async def tell_another() -> None:
        family = Fold()
        task = family.task("train", 0)
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell("branch0", answer_message("none"))

    with pytest.raises(EnvironmentFault, match="had not asked for"):
        asyncio.run(tell_another())


def test_splits_share_no_section() -> None:
    family = Fold()
    train = {family.task("train", i).payload["seed"] for i in range(300)}
    assert not train & {family.task("heldout", i).payload["seed"] for i in range(300)}
