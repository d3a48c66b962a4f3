"""The shipped recipes: they parse, their arguments are the family's, and replies fit."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from turnwise.building.families import build_family
from turnwise.config.load import load_config
from turnwise.core.errors import DataError
from turnwise.rendering.tags import FORMATS, TagRenderer
from turnwise.rendering.tokenizer import train_tokenizer
from turnwise_worlds.coding.environment import CodingEnvironment

RECIPES = Path("deepcoder")


def test_in_the_tiny_recipe_every_number_of_a_result_is_one_token_and_a_program_fits_in_a_turn() -> None:
    config = load_config([RECIPES / "tiny.toml"])
    family = build_family(config)
    assert isinstance(family.build_environment(family.task("train", 0)), CodingEnvironment)
    retool = FORMATS["retool"]
    tokenizer = train_tokenizer(
        family.texts(config.tokenizer.num_texts),
        vocab_size=config.tokenizer.vocab_size,
        special_tokens=retool.special_tokens,
    )
    renderer = TagRenderer(tokenizer, retool)
    oracle = family.policy("oracle")
    for index in range(100):
        task = family.task("heldout", index)
        x, y = task.payload["examples"][1][0]
        results = (x + y, x * y, x**y, x - y, x % y)
        assert [result for result in results if len(tokenizer.encode(f" {result}", add_special_tokens=False)) > 1] == []
        reply = oracle.reply(task, task.prompt, Random(index))
        assert len(renderer.encode_reply(reply)) <= config.rollout.max_turn_tokens


def test_the_controls_change_the_family_and_not_its_tasks() -> None:
    config = load_config([RECIPES / "tiny.toml"])
    assert set(config.evaluate.controls) == {"tests_off", "tests_shuffled"}
    for changes in config.evaluate.controls.values():
        assert build_family(config, changes).task("heldout", 0).id == build_family(config).task("heldout", 0).id


@pytest.mark.parametrize("name", ["tiny", "qwen"])
def test_both_train_as_grpo_plus(name: str) -> None:
    config = load_config([RECIPES / f"{name}.toml"])
    assert (config.loss.entropy_coefficient, config.loss.kl.coefficient) == (0.0, 0.0)
    assert (config.loss.method, config.loss.options) == ("clip_higher", {"clip_low": 0.2, "clip_high": 0.28})
    assert not config.rollout.train_truncated
    assert config.credit.method == "grpo"


def test_the_chat_recipe_asks_for_your_files_and_reads_them(tmp_path: Path) -> None:
    config = load_config([RECIPES / "qwen.toml"])
    with pytest.raises(DataError, match=r"deepcoder_train\.parquet"):
        build_family(config)
    tests = [{"input": str(number), "output": str(number), "testtype": "stdin"} for number in range(40)]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"problem": "Print the number.", "tests": tests}))
    task = build_family(config, {"train_path": str(path), "heldout_path": str(path)}).task("train", 0)
    assert len(task.payload["hidden"]) == 15
    assert "```python" in task.prompt[0].text
