"""Streams that are read chunk by chunk: what is asked, what a memory is worth, and controls that must fail."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from asked_episodes import play_policy

from turnwise.core.checked import to_single
from turnwise.core.episodes import AskingEnvironment, EpisodeEnd
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Scored, StopReason
from turnwise.environments.replies import answer_message
from turnwise_worlds.memory.chunks.family import Chunks
from turnwise_worlds.memory.chunks.stream import build_stream, format_memory, parse_memory, read_chunk
from turnwise_worlds.memory.words import NONE

DONE = EpisodeEnd(stop=StopReason.DONE)


def success(policy: str, count: int = 100, **arguments: Any) -> float:
    """Share of held-out tasks that a scripted policy answers right."""
    family = Chunks(**arguments)
    tasks = [family.task("heldout", i) for i in range(count)]
    rewards = [play_policy(family, task, family.policy(policy), seed=i).reward for i, task in enumerate(tasks)]
    return sum(reward.part("success") or 0.0 for reward in rewards if isinstance(reward, Scored)) / count


def test_a_stream_sets_what_is_asked_once_or_twice_and_the_last_counts() -> None:
    twice = 0
    for seed in range(300):
        stream = build_stream(seed, ("red", "blue"), num_chunks=3, chunk_events=4)
        words = [word for chunk in stream.chunks for word in chunk]
        assert [len(chunk) for chunk in stream.chunks] == [4, 4, 4]
        for slot, answer in stream.answer.items():
            set_to = [word for word in words if word.startswith(slot)]
            assert set_to[-1] == answer
            assert len(set_to) in (1, 2)
            twice += len(set_to) == 2
    assert 0.2 < twice / 600 < 0.4


def test_memories_are_read_as_they_are_written() -> None:
    memory = {"red": "redmo", "blue": NONE}
    assert format_memory(memory) == "red redmo blue none"
    assert parse_memory("red redmo blue none", ["red", "blue"]) == memory
    assert parse_memory("blue bluelo blue blueka red", ["red", "blue"]) == {"red": NONE, "blue": "bluelo"}
    assert read_chunk(memory, ["redka", "goldlo", "redlo"]) == {"red": "redlo", "blue": NONE}


def test_every_chunk_is_a_context_of_its_own_with_the_memory_written_before() -> None:
    family = Chunks(chunks=3)
    task = family.task("train", 0)
    played = play_policy(family, task, family.policy("oracle"), seed=0)
    assert isinstance(played.reward, Scored)
    assert played.reward.total == 1.0
    assert [ask.conversation for ask in played.asks] == ["chunk0", "chunk1", "chunk2", "answer"]
    asked = task.payload["asked"]
    stream = build_stream(task.payload["seed"], asked, num_chunks=3, chunk_events=5)
    memory = dict.fromkeys(asked, NONE)
    for ask, chunk in zip(played.asks, stream.chunks, strict=False):
        [message] = ask.messages
        assert f" memory {format_memory(memory)} section {' '.join(chunk)} write" in message.text
        memory |= {slot: word for slot, word in read_chunk(memory, chunk).items() if word != NONE}
    assert played.asks[-1].messages[0].text.endswith(f" memory {format_memory(stream.answer)} answer")


def test_what_the_policies_and_the_controls_are_worth() -> None:
    assert success("oracle") == success("oracle", 20, chunks=32) == 1.0
    assert success("oracle", memory="erased", chunks=8) < 0.1
    assert success("oracle", memory="swapped", chunks=8) < 0.1
    assert 0.05 < success("naive") < 0.35
    assert success("naive", chunks=32) < 0.12
    assert success("random") < 0.1


def test_a_memory_beyond_its_bound_ends_the_episode_without_success() -> None:
    async def run(words: Sequence[str]) -> tuple[bool, Scored]:
        family = Chunks(max_memory_words=4)
        task = family.task("train", 0)
        environment: AskingEnvironment = family.build_environment(task)
        await environment.begin(task, 0)
        asked = await environment.tell("chunk0", answer_message(" ".join(words)))
        reward = (await environment.score({}, DONE))["agent"]
        assert isinstance(reward, Scored)
        return bool(asked.asks), reward

    goes_on, _ = asyncio.run(run(["red"] * 4))
    assert goes_on
    goes_on, reward = asyncio.run(run(["red"] * 5))
    assert (goes_on, reward.total, reward.part("overflow")) == (False, 0.0, 1.0)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="memory='kept back'"):
        Chunks(memory="kept back")
    family = Chunks()
    task = family.task("train", 0)

    async def tell_twice() -> None:
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell("chunk3", answer_message("red"))

    with pytest.raises(EnvironmentFault, match="had not asked for"):
        asyncio.run(tell_twice())
    with pytest.raises(ConfigError, match="ChunksEnvironment asks for replies in several conversations"):
        to_single(family.build_environment(task))


def test_splits_share_no_stream() -> None:
    family = Chunks()
    train = {family.task("train", i).payload["seed"] for i in range(500)}
    assert not train & {family.task("heldout", i).payload["seed"] for i in range(500)}
