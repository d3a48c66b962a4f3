"""A context that restarts from a note: when it does, what the next one holds, and controls that must fail."""

import asyncio
from typing import Any

import pytest
from asked_episodes import play_policy

from turnwise.core.episodes import EpisodeEnd
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Scored, StopReason
from turnwise.environments.episodes import Played
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.policies import search_message
from turnwise.environments.search_qa.projection import parse
from turnwise.environments.search_qa.wordings import list_relations
from turnwise_worlds.memory.rolling.environment import WRITE, read_note
from turnwise_worlds.memory.rolling.family import Rolling

SEARCH = {
    "num_entities": 14,
    "tasks_per_world": 400,
    "num_words": 12,
    "num_distractors": 0,
    "top_k": 1,
    "document_format": "plain",
    "prompt": "short",
    "kinds": {"2hop": 0.5, "3hop": 0.5},
}
DONE = EpisodeEnd(stop=StopReason.DONE)


def play_index(policy: str, index: int = 0, **arguments: Any) -> Played:
    """A scripted policy's episode of a held-out task."""
    family = Rolling(search=SEARCH, **arguments)
    return play_policy(family, family.task("heldout", index), family.policy(policy), seed=index)


def success(policy: str, count: int = 40, **arguments: Any) -> float:
    """Share of held-out tasks that a scripted policy answers right."""
    family = Rolling(search=SEARCH, **arguments)
    tasks = [family.task("heldout", i) for i in range(count)]
    rewards = [play_policy(family, task, family.policy(policy), seed=i).reward for i, task in enumerate(tasks)]
    return sum(reward.part("success") or 0.0 for reward in rewards if isinstance(reward, Scored)) / count


def test_a_full_window_asks_for_a_note_and_a_fresh_context_starts_from_it() -> None:
    played = play_index("oracle")
    names = [ask.conversation for ask in played.asks]
    hops = (len(names) - 1) // 2
    assert names == [f"part{number}" for number in range(hops) for _ in range(2)] + [f"part{hops}"]
    notes = [read_note(ask.messages[0]) for ask in played.asks[::2]]
    assert notes[0] == "none"
    for number, asked_for_note in enumerate(played.asks[1::2]):
        assert asked_for_note.messages[0].role == "tool"
        assert asked_for_note.messages[1].text == WRITE
        assert played.replies[2 * number + 1].text == f"<answer> {notes[number + 1]} </answer>"
    assert played.replies[-1].text == f"<answer> {notes[-1]} </answer>"


def test_no_context_holds_two_searches_and_no_other_one_says_what_was_found() -> None:
    for index in range(10):
        played = play_index("oracle", index)
        longest = 0
        for number, (ask, reply) in enumerate(zip(played.asks, played.replies, strict=True)):
            if number % 2 == 0:
                words = 0
            calls = sum(len(call.arguments.split()) for call in reply.tool_calls)
            words += sum(len(message.text.split()) for message in ask.messages) + len(reply.text.split()) + calls
            longest = max(longest, words)
        in_one = sum(len(reply.text.split()) for reply in played.replies) + sum(
            len(message.text.split()) for ask in played.asks for message in ask.messages
        )
        assert longest < 50 < in_one


def test_a_wide_window_never_asks_for_a_note() -> None:
    played = play_index("oracle", window_words=200)
    assert {ask.conversation for ask in played.asks} == {"part0"}
    assert all(message.text != WRITE for ask in played.asks for message in ask.messages)


def test_what_the_policies_and_the_controls_are_worth() -> None:
    assert success("oracle") == 1.0
    assert success("oracle", memory="erased") == 0.0
    assert 0.1 < success("naive") < 0.45
    assert success("naive", naive_keep=0.0) == success("random", 20) == 0.0


def test_questions_name_no_relation_twice() -> None:
    family = Rolling(search=SEARCH)
    for index in range(40):
        relations = list_relations(parse(family.task("train", index).payload["query"]))
        assert len(set(relations)) == len(relations) in (2, 3)


def test_a_note_beyond_its_bound_ends_the_episode_without_success() -> None:
    async def run(note: str) -> tuple[bool, Scored]:
        family = Rolling(search=SEARCH, max_note_words=3)
        task = family.task("train", 0)
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell("part0", search_message("author of Crimson Harbor", 0))
        asked = await environment.tell("part0", answer_message(note))
        reward = (await environment.score({}, DONE))["agent"]
        assert isinstance(reward, Scored)
        return bool(asked.asks), reward

    goes_on, _ = asyncio.run(run("author of Crimson"))
    assert goes_on
    goes_on, reward = asyncio.run(run("author of Crimson Harbor"))
    assert (goes_on, reward.part("success"), reward.part("overflow")) == (False, 0.0, 1.0)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="top_k=0"):
        Rolling(search={"top_k": 0})
    with pytest.raises(ConfigError, match="uses each relation only"):
        Rolling(search=SEARCH | {"kinds": {"union": 1.0}, "wording": "formal"}).task("train", 0)
    with pytest.raises(IndexError):
        Rolling(search=SEARCH).task("train", -1)

    async def tell_another() -> None:
        family = Rolling(search=SEARCH)
        task = family.task("train", 0)
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell("part1", answer_message("none"))

    with pytest.raises(EnvironmentFault, match="had not asked for"):
        asyncio.run(tell_another())
