"""Reward models: what they read, learn, keep and refuse."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase

from turnwise.batching.collate import Packing
from turnwise.core.errors import ConfigError, DataError
from turnwise.core.types import Trajectory
from turnwise.testing import build_tiny_model, build_tiny_tokenizer, make_group, make_trajectory, make_turn
from turnwise_rewards.reward_models.calibration import measure_scores
from turnwise_rewards.reward_models.folder import HEAD, load_reward_model, save_reward_model
from turnwise_rewards.reward_models.labels import Labelled, label_groups
from turnwise_rewards.reward_models.model import RewardModel, fit, score_turns, start_reward_model, to_sample

PACKING = Packing(micro_batch_tokens=512, shared_prefix=False)


@cache
def tokenizer() -> PreTrainedTokenizerBase:
    return build_tiny_tokenizer(["one two three four five"])


def start(**changes: object) -> RewardModel:
    model = build_tiny_model(vocab_size=400)
    return start_reward_model(model, tokenizer(), kind="process", lr=1e-2, packing=PACKING)


def attempt(*replies: int, reward: float = 1.0, member: int = 0, draw: int = 0) -> Trajectory:
    turns = [
        make_turn([20, 21], [reply, 22], parent=index - 1 if index else None) for index, reply in enumerate(replies)
    ]
    return make_trajectory(*turns, reward=reward, member=member, draw=draw)


def draw_attempts(count: int, seed: int) -> list[Trajectory]:
    """Attempts of three replies, each 30 or 31; one with a 31 fails."""
    random = Random(seed)
    drawn = [[31 if random.random() < 0.25 else 30 for _ in range(3)] for _ in range(count)]
    return [attempt(*replies, reward=float(31 not in replies), draw=i) for i, replies in enumerate(drawn)]


def test_a_score_is_read_after_the_reply_and_before_what_follows() -> None:
    sample = to_sample(attempt(30, 31))
    # P P C C | P P C C 0: the token after each reply stands for the value after it.
    assert sample.token_ids.tolist() == [20, 21, 30, 22, 20, 21, 31, 22, 0]
    assert np.flatnonzero(sample.loss_mask).tolist() == [4, 8]
    model = start()
    torch.nn.init.normal_(model.critic.head.weight)
    [one, other, first] = score_turns(model, [attempt(30, 31), attempt(30, 33), attempt(30)])
    assert one[0] == pytest.approx(other[0], abs=1e-6)
    assert one[0] == pytest.approx(first[0], abs=1e-6)
    assert abs(one[1] - other[1]) > 1e-4
    assert score_turns(model, [make_trajectory(reward=None)]) == [[]]
    assert score_turns(start(), [attempt(30)]) == [[0.5]]


def test_a_model_learns_which_turn_went_wrong_and_survives_its_folder(tmp_path: Path) -> None:
    model = start()
    # Where the first 31 is, success is lost: labels of each turn by hand.
    labelled = [
        Labelled(
            trajectory=t,
            labels=tuple(float(31 not in [x.completion.token_ids[0] for x in t.turns[: i + 1]]) for i in range(3)),
        )
        for t in draw_attempts(80, 0)
    ]
    losses: list[float] = []
    fit(model, labelled, steps=60, batch_size=16, seed=0, report=lambda step, loss: losses.append(loss))
    assert losses[0] == pytest.approx(np.log(2), abs=1e-6)  # a head of zeros scores 1/2
    assert losses[-1] < 0.2
    fresh = draw_attempts(60, 1)
    scores = score_turns(model, fresh)
    quality = measure_scores([row[-1] for row in scores], [t.reward.total for t in fresh])  # type: ignore[union-attr]
    assert quality.auc is not None
    assert quality.auc > 0.98
    [row] = score_turns(model, [attempt(30, 31, 30)])
    assert row[0] > 0.7 > 0.3 > row[1]
    save_reward_model(model, tmp_path / "model", {"labels": "by hand"})
    again = load_reward_model(str(tmp_path / "model"), tokenizer(), source="MODEL", micro_batch_tokens=512)
    assert score_turns(again, fresh) == scores
    assert again.kind == "process"
    assert not list((tmp_path / "model").glob("*.bin"))
    with pytest.raises(ConfigError, match="already exists"):
        save_reward_model(model, tmp_path / "model", {})


def test_turns_without_a_label_do_not_count() -> None:
    attempts = draw_attempts(16, 2)
    ends = label_groups([make_group(t) for t in attempts], "outcome")
    one, other = start(), start()
    shifted = [Labelled(trajectory=e.trajectory, labels=(None, None, e.labels[-1])) for e in ends]
    fit(one, ends, steps=2, batch_size=8, seed=0)
    fit(other, shifted, steps=2, batch_size=8, seed=0)
    assert score_turns(one, attempts) == score_turns(other, attempts)


def test_attempts_without_any_label_are_left_out() -> None:
    ends = label_groups([make_group(t) for t in draw_attempts(8, 3)], "outcome")
    none = [Labelled(trajectory=attempt(30), labels=(None,))]
    one, other = start(), start()
    fit(one, ends, steps=2, batch_size=8, seed=0)
    fit(other, [*none, *ends], steps=2, batch_size=8, seed=0)
    assert score_turns(one, [attempt(30)]) == score_turns(other, [attempt(30)])
    with pytest.raises(DataError, match="no turn has a label"):
        fit(start(), none, steps=1, batch_size=1, seed=0)


def test_labels_that_are_no_probabilities_are_refused() -> None:
    labelled = [Labelled(trajectory=attempt(30), labels=(1.5,))]
    with pytest.raises(DataError, match=r"labels of trajectory 0/0 are \[1.5\]; .*in \[0, 1\]"):
        fit(start(), labelled, steps=1, batch_size=1, seed=0)


def test_a_score_that_is_not_finite_is_refused_with_its_turn() -> None:
    model = start()
    with torch.no_grad():
        model.critic.head.bias.fill_(float("nan"))
    with pytest.raises(DataError, match=r"scores turn 0 of trajectory 0/0 with nan; .*train it again"):
        score_turns(model, [attempt(30)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_reward_model(start(), tmp_path / "model", {})
    return tmp_path / "model"


def test_a_model_of_another_tokenizer_is_refused(folder: Path) -> None:
    other = build_tiny_tokenizer(["six seven eight nine ten eleven"])
    with pytest.raises(ConfigError, match=r"MODEL='.*model' has another tokenizer than this run.*tokenizer.path"):
        load_reward_model(str(folder), other, source="MODEL")


def test_what_is_no_reward_model_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    def refuse(match: str, path: Path = folder) -> None:
        with pytest.raises(ConfigError, match=match) as caught:
            load_reward_model(str(path), tokenizer(), source="rewards.judge.options.path")
        assert "\n" not in str(caught.value)

    refuse(
        r"rewards.judge.options.path='.*nothing' is no reward model: it has no reward_model.json; make one",
        tmp_path / "nothing",
    )
    facts = folder / "reward_model.json"
    good = facts.read_text()
    facts.write_text("{")
    refuse(r"reward_model.json is no JSON")
    facts.write_text(json.dumps({"format": 2, "kind": "process"}))
    refuse(r"has no format 1 with a kind of outcome or process")
    facts.write_text(good)
    weights = load_file(folder / HEAD)
    save_file({**weights, "bias": torch.tensor([float("nan")])}, folder / HEAD)
    refuse(r"has weights that are not finite; train the reward model again")
    save_file({"weight": torch.zeros(1, 3), "bias": torch.zeros(1)}, folder / HEAD)
    refuse(r"value_head.safetensors cannot be read \(.*\); train the reward model again")
    (folder / HEAD).write_bytes(b"not safetensors")
    refuse(r"value_head.safetensors cannot be read")
    (folder / HEAD).unlink()
    refuse(r"value_head.safetensors cannot be read")
