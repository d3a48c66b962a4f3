"""The shipped recipes: they parse, and their arguments are the family's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from turnwise.building.families import build_family
from turnwise.config.load import load_config
from turnwise.core.checked import to_single
from turnwise.core.errors import ConfigError, DataError, SandboxError
from turnwise.core.types import Scored, StopReason
from turnwise.environments.math_code.environment import MathEnvironment
from turnwise.rendering.tags import FORMATS, TagRenderer
from turnwise.rendering.tokenizer import train_tokenizer

RECIPES = Path(__file__).parents[4] / "recipes" / "retool"


def test_in_the_tiny_recipe_every_number_is_one_token_and_a_slip_fits_in_a_turn() -> None:
    config = load_config([RECIPES / "tiny.toml"])
    family = build_family(config)
    assert isinstance(family.build_environment(family.task("train", 0)), MathEnvironment)
    retool = FORMATS["retool"]
    tokenizer = train_tokenizer(
        family.texts(config.tokenizer.num_texts),
        vocab_size=config.tokenizer.vocab_size,
        special_tokens=retool.special_tokens,
    )
    assert [number for number in range(100) if len(tokenizer.encode(f" {number}", add_special_tokens=False)) != 1] == []
    renderer = TagRenderer(tokenizer, retool)
    naive = family.policy("naive")
    for index in range(200):
        task = family.task("train", index)
        reply = naive.reply(task, task.prompt, Random(index))
        assert len(renderer.encode_reply(reply)) <= config.rollout.max_turn_tokens


def test_the_controls_of_the_tiny_recipe_change_the_family() -> None:
    config = load_config([RECIPES / "tiny.toml"])
    for changes in config.evaluate.controls.values():
        assert build_family(config, changes).task("heldout", 0).id == build_family(config).task("heldout", 0).id


def test_the_chat_recipe_asks_for_your_files() -> None:
    with pytest.raises((ConfigError, DataError), match=r"dapo_math_17k\.parquet"):
        build_family(load_config([RECIPES / "qwen.toml"]))


def test_the_oracle_of_the_tiny_recipe_succeeds_in_the_real_sandbox() -> None:
    family = build_family(load_config([RECIPES / "tiny.toml"]))

    async def play(index: int) -> float | None:
        task, oracle = family.task("heldout", index), family.policy("oracle")
        environment = to_single(family.build_environment(task))
        messages = list((await environment.reset(task, index)).messages)
        replies = [oracle.reply(task, messages, Random(0))]
        messages += [replies[0], *(await environment.step(replies[0])).observations]
        replies.append(oracle.reply(task, messages, Random(0)))
        assert (await environment.step(replies[1])).done
        reward = await environment.score(replies, StopReason.DONE)
        await environment.close()
        return reward.part("success") if isinstance(reward, Scored) else None

    async def play_all() -> list[float | None]:
        return list(await asyncio.gather(*(play(index) for index in range(12))))

    try:
        # Twice, because a run starts one event loop after another.
        results = asyncio.run(play_all()) + asyncio.run(play_all())
    except SandboxError as error:
        pytest.skip(f"no sandbox here: {error}")
    assert results == [1.0] * 24
