"""A reward model in a run: the annotator and the reward, built as a run builds them."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from turnwise.batching.collate import Packing
from turnwise.config.annotators import AnnotatorSection
from turnwise.config.rewards import RewardSection
from turnwise.core.errors import AnnotatorError, ConfigError
from turnwise.core.judging import EpisodeJudges
from turnwise.credit.annotator_kind import AnnotatorParts
from turnwise.credit.annotator_table import build_annotator
from turnwise.credit.annotators import NamedAnnotator, run_annotators
from turnwise.credit.assignment import to_credit_trajectories
from turnwise.credit.reward_kind import RewardParts
from turnwise.credit.reward_table import build_reward
from turnwise.testing import build_tiny_model, build_tiny_tokenizer, make_group, make_trajectory, make_turn
from turnwise_rewards.reward_models.annotator import MODEL_REWARD, REWARD_MODEL, ProcessAnnotator
from turnwise_rewards.reward_models.folder import save_reward_model
from turnwise_rewards.reward_models.model import Kind, score_turns, start_reward_model

NOTHING: Any = None
GROUP = make_group(
    make_trajectory(make_turn([20], [30]), make_turn([21], [31], parent=0)),
    make_trajectory(make_turn([20], [32]), reward=0.0, member=1),
    make_trajectory(reward=None, member=2),
)


@cache
def tokenizer() -> PreTrainedTokenizerBase:
    return build_tiny_tokenizer(["one two three four five"])


def save(folder: Path, kind: Kind) -> str:
    packing = Packing(micro_batch_tokens=512, shared_prefix=False)
    model = start_reward_model(build_tiny_model(), tokenizer(), kind=kind, lr=1e-3, packing=packing)
    torch.manual_seed(0)
    torch.nn.init.normal_(model.critic.head.weight)
    save_reward_model(model, folder / kind, {})
    return str(folder / kind)


def annotator(**options: Any) -> ProcessAnnotator:
    parts = AnnotatorParts(family=NOTHING, renderer=NOTHING, run_greedy=NOTHING, score=NOTHING, tokenizer=tokenizer())
    section = AnnotatorSection(options=options)
    built = build_annotator(REWARD_MODEL, parts, name="reward_model", section=section)
    assert isinstance(built, ProcessAnnotator)
    return built


def reward(**options: Any) -> Any:
    section = RewardSection(kind="reward_model", options=options)
    parts = RewardParts(
        name="orm", options=options, family=NOTHING, renderer=NOTHING, score=NOTHING, tokenizer=tokenizer(), seed=0
    )
    return build_reward(section, MODEL_REWARD, parts)


def test_an_annotator_fills_scores_and_potentials_that_credit_reads(tmp_path: Path) -> None:
    built = annotator(path=save(tmp_path, "process"), device="cpu")
    [first, second, third] = score_turns(built.model, GROUP.trajectories)
    named = NamedAnnotator(name="reward_model", annotator=built, timeout_s=60.0, semaphore=asyncio.Semaphore(1))
    group, _ = asyncio.run(run_annotators(GROUP, [named]))
    numbers = [[(t.scores.process_score, t.scores.potential) for t in each.turns] for each in group.trajectories]
    # The potential before a turn is the score after the one before; before the first it is 0.
    assert numbers == [[(first[0], 0.0), (first[1], first[0])], [(second[0], 0.0)], []]
    assert third == []
    credited = to_credit_trajectories([group])
    assert [turn.process_score for turn in credited[0].turns] == first


def test_a_reward_is_the_folded_score(tmp_path: Path) -> None:
    path = save(tmp_path, "process")
    last, worst, product = (reward(path=path, fold=fold) for fold in ("last", "min", "prod"))
    [first, second, _] = score_turns(last.model, GROUP.trajectories)

    def values(of: Any) -> list[float]:
        return list(asyncio.run(of.score(GROUP, EpisodeJudges({}))))

    assert values(last) == [first[1], second[0], 0.0]
    assert values(worst) == [min(first), second[0], 0.0]
    assert values(product) == pytest.approx([first[0] * first[1], second[0], 0.0])


def test_an_outcome_model_scores_no_steps(tmp_path: Path) -> None:
    path = save(tmp_path, "outcome")
    with pytest.raises(ConfigError, match=r"is an outcome model, which knows nothing of turns before the last"):
        annotator(path=path)
    with pytest.raises(ConfigError, match=r"rewards.orm.options.fold='min', but .* use fold='last'"):
        reward(path=path, fold="min")
    assert len(asyncio.run(reward(path=path).score(GROUP, EpisodeJudges({})))) == 3


def test_wrong_options_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"annotators.reward_model.options.path is missing"):
        annotator()
    with pytest.raises(ConfigError, match=r"annotators.reward_model.options.pth is not an option.*'path'"):
        annotator(pth="x")
    with pytest.raises(ConfigError, match=r"annotators.reward_model.options.path='.*' is no reward model"):
        annotator(path=str(tmp_path))
    with pytest.raises(ConfigError, match=r"rewards.orm.options.path='.*' is no reward model"):
        reward(path=str(tmp_path))


def test_a_score_that_is_not_finite_makes_the_group_invalid(tmp_path: Path) -> None:
    built = annotator(path=save(tmp_path, "process"), device="cpu")
    with torch.no_grad():
        built.model.critic.head.bias.fill_(float("nan"))
    named = NamedAnnotator(name="reward_model", annotator=built, timeout_s=60.0, semaphore=asyncio.Semaphore(1))
    with pytest.raises(AnnotatorError, match=r"annotator 'reward_model' of draw 0 .* scores turn 0 of trajectory 0/0"):
        asyncio.run(run_annotators(GROUP, [named]))
