"""The family of notes: its tasks, its tool, what its scripted policies solve, and its text format."""

import asyncio
from random import Random

import pytest

from turnwise.core.errors import ConfigError
from turnwise.core.types import Draw, Scored
from turnwise.rollout.demonstrate import play_demonstration
from turnwise.testing import NotesFamily, build_tiny_renderer, build_tiny_tokenizer


def success_of(name: str, count: int = 200) -> dict[str, float]:
    """Mean reward of a scripted policy by kind of task."""
    family = NotesFamily()
    renderer = build_tiny_renderer(build_tiny_tokenizer(family.texts(200)))
    rewards: dict[str, list[float]] = {"direct": [], "linked": []}
    for index in range(count):
        task = family.task("heldout", index)
        episode = asyncio.run(
            play_demonstration(
                Draw(index=index, task=task),
                family.policy(name),
                family.build_environment(task),
                renderer,
                seed=index,
                max_turns=4,
            )
        )
        assert isinstance(episode.reward, Scored)
        rewards[str(task.payload["kind"])].append(episode.reward.total)
    assert len(rewards["linked"]) > len(rewards["direct"]) > 0
    return {kind: sum(values) / len(values) for kind, values in rewards.items()}


def test_the_oracle_solves_everything_and_the_demonstrator_what_needs_one_note() -> None:
    assert success_of("oracle") == {"direct": 1.0, "linked": 1.0}
    naive = success_of("naive")
    assert naive["direct"] == 1.0
    assert naive["linked"] < 0.25  # it follows one name in ten
    assert max(success_of("random").values()) < 0.25  # one code in ten is right by chance


def test_tasks_are_a_function_of_split_and_index() -> None:
    first, second = NotesFamily(), NotesFamily()
    assert [first.task("train", i).id for i in range(5)] == [second.task("train", i).id for i in range(5)]
    assert first.task("train", 0).id != first.task("heldout", 0).id
    assert {NotesFamily(linked=0.0).task("train", i).payload["kind"] for i in range(20)} == {"direct"}
    with pytest.raises(IndexError, match="task -1 of train"):
        first.task("train", -1)


def test_every_word_of_the_family_is_one_token() -> None:
    family = NotesFamily()
    tokenizer = build_tiny_tokenizer(family.texts(200))
    random = Random(0)
    for index in range(20):
        task = family.task("train", index)
        words = [*task.prompt[0].text.split()[1:], *random.choice(list(task.payload["notes"].values())).split()]
        assert [len(tokenizer.encode(f" {word}")) for word in words] == [1, 1, 1]


def test_an_unknown_policy_is_named_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="'clever'; choose one of oracle, naive, random"):
        NotesFamily().policy("clever")
