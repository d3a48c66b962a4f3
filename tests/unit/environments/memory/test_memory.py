"""Streams that are read chunk by chunk: what is asked, what a memory is worth, and controls that must fail."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from turnwise.core.episodes import Ask, AskingEnvironment, EpisodeEnd, to_single
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, text_message
from turnwise.environments.memory.family import Memory
from turnwise.environments.memory.stream import NONE, build_stream, format_memory, parse_memory, read_chunk

DONE = EpisodeEnd(stop=StopReason.DONE)


def play(family: Memory, task: Task, policy: str, *, seed: int = 0) -> tuple[Reward, list[Ask]]:
    """Reward of a scripted policy, and everything it was asked."""

    async def run() -> tuple[Reward, list[Ask]]:
        environment, rng, replies = family.build_environment(task), Random(seed), {}
        asked, seen = await environment.begin(task, 0), []
        while asked.asks:
            [ask] = asked.asks
            seen.append(ask)
            reply = family.policy(policy).reply(task, ask.messages, rng)
            replies[ask.conversation] = [reply]
            asked = await environment.tell(ask.conversation, reply)
        return (await environment.score(replies, DONE))["agent"], seen

    return asyncio.run(run())


def success(policy: str, count: int = 100, **arguments: Any) -> float:
    """Share of held-out tasks that a scripted policy answers right."""
    family = Memory(**arguments)
    rewards = [play(family, family.task("heldout", i), policy, seed=i)[0] for i in range(count)]
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
    assert format_memory(memory) == "red = redmo ; blue = none"
    assert parse_memory("red = redmo ; blue = none", ["red", "blue"]) == memory
    assert parse_memory("blue = bluelo ; blue = blueka ; nonsense", ["red", "blue"]) == {"red": NONE, "blue": "bluelo"}
    assert read_chunk(memory, ["redka", "goldlo", "redlo"]) == {"red": "redlo", "blue": NONE}


def test_every_chunk_is_a_context_of_its_own_with_the_memory_written_before() -> None:
    family = Memory(chunks=3)
    task = family.task("train", 0)
    reward, seen = play(family, task, "oracle")
    assert isinstance(reward, Scored)
    assert reward.total == 1.0
    assert [ask.conversation for ask in seen] == ["chunk0", "chunk1", "chunk2", "answer"]
    asked = task.payload["asked"]
    stream = build_stream(task.payload["seed"], asked, num_chunks=3, chunk_events=5)
    memory = dict.fromkeys(asked, NONE)
    for ask, chunk in zip(seen, stream.chunks, strict=False):
        [message] = ask.messages
        assert f" memory {format_memory(memory)} section {' '.join(chunk)} write" in message.text
        memory |= {slot: word for slot, word in read_chunk(memory, chunk).items() if word != NONE}
    assert seen[-1].messages[0].text.endswith(f" memory {format_memory(stream.answer)} answer")


def test_what_the_policies_and_the_controls_are_worth() -> None:
    assert success("oracle") == success("oracle", 20, chunks=32) == 1.0
    assert success("oracle", memory="erased", chunks=8) < 0.1
    assert success("oracle", memory="swapped", chunks=8) < 0.1
    assert 0.05 < success("naive") < 0.35
    assert success("naive", chunks=32) < 0.12
    assert success("random") < 0.1


def test_a_memory_beyond_its_bound_ends_the_episode_without_success() -> None:
    async def run(words: Sequence[str]) -> tuple[bool, Scored]:
        family = Memory(max_memory_words=4)
        task = family.task("train", 0)
        environment: AskingEnvironment = family.build_environment(task)
        await environment.begin(task, 0)
        asked = await environment.tell("chunk0", say(" ".join(words)))
        reward = (await environment.score({}, DONE))["agent"]
        assert isinstance(reward, Scored)
        return bool(asked.asks), reward

    goes_on, _ = asyncio.run(run(["red"] * 4))
    assert goes_on
    goes_on, reward = asyncio.run(run(["red"] * 5))
    assert (goes_on, reward.total, reward.part("overflow")) == (False, 0.0, 1.0)


def say(text: str) -> Message:
    return text_message("assistant", f"<answer> {text} </answer>")


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="memory='kept back'"):
        Memory(memory="kept back")
    family = Memory()
    task = family.task("train", 0)

    async def tell_twice() -> None:
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell("chunk3", say("red"))

    with pytest.raises(EnvironmentFault, match="did not ask for"):
        asyncio.run(tell_twice())
    with pytest.raises(ConfigError, match="ChunksEnvironment asks for replies in several conversations"):
        to_single(family.build_environment(task))


def test_splits_share_no_stream() -> None:
    family = Memory()
    train = {family.task("train", i).payload["seed"] for i in range(500)}
    assert not train & {family.task("heldout", i).payload["seed"] for i in range(500)}
