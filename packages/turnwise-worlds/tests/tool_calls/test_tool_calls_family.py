"""The family and the shipped recipe: tasks as pure functions, refused arguments, every copied word one token."""

from __future__ import annotations

import json
import tomllib
from random import Random
from typing import Any

import pytest

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.tokenizer import train_tokenizer
from turnwise_worlds import RECIPES
from turnwise_worlds.tool_calls.family import ToolCalls
from turnwise_worlds.tool_calls.problems import NUM_CALLS
from turnwise_worlds.tool_calls.words import CAPABILITIES, NUMBERS, SLOTS, VALUES

RECIPE = RECIPES / "toolrl/tiny.toml"


def test_tasks_are_a_function_of_split_and_index() -> None:
    first, second = ToolCalls(), ToolCalls()
    assert isinstance(first, EnvironmentFamily)
    tasks = [first.task("train", index) for index in range(200)]
    assert [second.task("train", index).id for index in range(200)] == [task.id for task in tasks]
    assert ToolCalls(seed=1).task("train", 0).id != tasks[0].id
    assert len({task.id for task in tasks} | {first.task("heldout", index).id for index in range(200)}) == 400
    assert json.dumps(dict(tasks[0].payload))
    assert {task.payload["kind"] for task in tasks} == set(NUM_CALLS)
    with pytest.raises(IndexError, match="the index must be at least 0"):
        first.task("train", -1)
    with pytest.raises(ConfigError, match="split 'test'"):
        first.task("test", 0)  # type: ignore[arg-type]


def test_a_control_or_a_reward_changes_no_task() -> None:
    plain = ToolCalls(prompt="short")
    for changes in ({"schema": "blanked"}, {"granularity": "coarse"}, {"scale": 1.0}):
        assert ToolCalls(prompt="short", **changes).task("heldout", 3).id == plain.task("heldout", 3).id  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kinds": {"4calls": 1.0}}, "kinds.4calls=1.0.*3calls"),
        ({"kinds": {"1call": -1.0}}, "kinds.1call=-1.0"),
        ({"kinds": {"1call": 0}}, "no positive weight"),
        ({"kinds": ["1call"]}, "not a table"),
        ({"num_tools": 2}, "num_tools=2: it must be greater than or equal to 3"),
        ({"max_parameters": 2.5}, "max_parameters=2.5"),
        ({"num_words": 1000}, "num_words=1000"),
        ({"shuffle_slots": 1}, "shuffle_slots=1"),
        ({"schema": "off"}, "schema='off'.*'blanked'"),
        ({"granularity": "exact"}, "granularity='exact'.*'coarse'"),
        ({"naive_tact": 1.5}, "naive_tact=1.5"),
        ({"scale": float("nan")}, "scale=nan"),
        ({"prompt": "long"}, "prompt='long'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ToolCalls(**arguments)


def test_policies_are_known_by_name() -> None:
    with pytest.raises(ConfigError, match="oracle, random, naive"):
        ToolCalls().policy("expert")


def test_in_the_tiny_recipe_every_copied_word_is_one_token_and_replies_fit() -> None:
    recipe = tomllib.loads(RECIPE.read_text())
    arguments = recipe["environment"]["args"]
    family = ToolCalls(**arguments)
    tokenizer = train_tokenizer(
        family.texts(recipe["tokenizer"]["num_texts"]),
        vocab_size=recipe["tokenizer"]["vocab_size"],
        special_tokens=CALLS_FORMAT.special_tokens,
    )
    num_words = arguments["num_words"]
    texts = [*map(str, NUMBERS[:num_words]), *(f" {word}" for word in (*VALUES[:num_words], *CAPABILITIES, *SLOTS))]
    assert [text for text in texts if len(tokenizer.encode(text, add_special_tokens=False)) != 1] == []
    renderer = CallsRenderer(tokenizer)
    oracle = family.policy("oracle")
    for index in range(300):
        task = family.task("heldout", index)
        num_prompt = len(renderer.open(task.prompt, ()))
        num_reply = len(renderer.encode_reply(oracle.reply(task, task.prompt, Random(0))))
        assert num_reply <= recipe["rollout"]["max_turn_tokens"]
        assert num_prompt + recipe["rollout"]["max_turn_tokens"] <= recipe["rollout"]["max_tokens"]
    for changes in recipe["evaluate"]["controls"].values():
        ToolCalls(**{**arguments, **changes})
