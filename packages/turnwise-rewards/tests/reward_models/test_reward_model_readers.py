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
from turnwise.core.types import text_message
from turnwise.core.verdicts import Question, Verdict
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
from turnwise_rewards.reward_models.step_judge import STEP_JUDGE, StepJudge

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
    # Scored again, equal up to rounding.
    [[one, two], [alone], nothing] = numbers
    assert one == pytest.approx((first[0], 0.0), rel=1e-5)
    assert two == pytest.approx((first[1], first[0]), rel=1e-5)
    assert alone == pytest.approx((second[0], 0.0), rel=1e-5)
    assert (len(nothing), len(third)) == (0, 0)
    credited = to_credit_trajectories([group])
    assert [turn.process_score for turn in credited[0].turns] == pytest.approx(first, rel=1e-5)


def test_a_reward_is_the_folded_score(tmp_path: Path) -> None:
    path = save(tmp_path, "process")
    last, worst, product = (reward(path=path, fold=fold) for fold in ("last", "min", "prod"))
    [first, second, _] = score_turns(last.model, GROUP.trajectories)

    def values(of: Any) -> list[float]:
        return list(asyncio.run(of.score(GROUP, EpisodeJudges({}))))

    assert values(last) == pytest.approx([first[1], second[0], 0.0], rel=1e-5)
    assert values(worst) == pytest.approx([min(first), second[0], 0.0], rel=1e-5)
    assert values(product) == pytest.approx([first[0] * first[1], second[0], 0.0], rel=1e-5)


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


class Counting:
    """A judge that says yes to replies with an odd number of characters."""

    async def judge(self, question: Question) -> Verdict:
        self.last = question
        return Verdict(score=float(len(question.messages[-1].text) % 2))

    async def close(self) -> None: ...


def step_judge(asked: Counting, **options: Any) -> StepJudge:
    parts = AnnotatorParts(
        family=NOTHING,
        renderer=NOTHING,
        run_greedy=NOTHING,
        score=NOTHING,
        tokenizer=tokenizer(),
        judges={"checker": asked},
    )
    built = build_annotator(STEP_JUDGE, parts, name="step_judge", section=AnnotatorSection(options=options))
    assert isinstance(built, StepJudge)
    return built


def test_a_judge_of_steps_reads_what_stands_before_each_reply() -> None:
    judge = Counting()
    said = [text_message("assistant", "one"), text_message("assistant", "four")]
    shown = (text_message("user", "go on"),)
    turns = (make_turn([1], [2], message=said[0], observations=shown), make_turn([3], [4], parent=0, message=said[1]))
    group = make_group(make_trajectory(*turns))
    [marked] = asyncio.run(step_judge(judge, judge="checker", votes=2).annotate(group)).trajectories
    assert [turn.scores.process_score for turn in marked.turns] == [1.0, 0.0]
    assert judge.last.messages == (*group.task.prompt, said[0], *shown, said[1])
    assert [each.question.seed for each in marked.judgements] == [0, 1, 0, 1]
    asyncio.run(step_judge(judge, judge="checker", window=1).annotate(group))
    assert judge.last.messages == (*shown, said[1])
    with pytest.raises(ConfigError, match=r"options.judge='nobody' is none of the recipe's judges \(checker\); add"):
        step_judge(judge, judge="nobody")


def test_a_score_that_is_not_finite_makes_the_group_invalid(tmp_path: Path) -> None:
    built = annotator(path=save(tmp_path, "process"), device="cpu")
    with torch.no_grad():
        built.model.critic.head.bias.fill_(float("nan"))
    named = NamedAnnotator(name="reward_model", annotator=built, timeout_s=60.0, semaphore=asyncio.Semaphore(1))
    with pytest.raises(AnnotatorError, match=r"annotator 'reward_model' of draw 0 .* scores turn 0 of trajectory 0/0"):
        asyncio.run(run_annotators(GROUP, [named]))
