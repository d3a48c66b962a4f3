"""Branched trajectories in training: credit by hand, the ledger's account of them, whole runs and their audit, and what
is refused."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from turnwise.algorithms.credit_table import build_credit
from turnwise.batching.samples import to_samples
from turnwise.building.checks import check_methods
from turnwise.cli.main import app
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, TrainingError
from turnwise.core.paths import take_trained
from turnwise.core.types import (
    Draw,
    DropReason,
    Ending,
    Invalid,
    Reward,
    Sample,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    text_message,
    to_floats,
    to_mask,
)
from turnwise.credit.assignment import compute_advantages, to_credit_trajectories
from turnwise.learning.drops import list_drops
from turnwise.runs.audit import audit_run
from turnwise.runs.explain import explain_trajectory
from turnwise.runs.train import run_train
from turnwise.store.groups import GroupStore
from turnwise.store.journal import read_journal
from turnwise.store.ledger import GroupAccount, account_batch, load_accounts
from turnwise.store.token_account import LedgerError
from turnwise.testing import make_completion, make_turn

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=150",
    "tokenizer.vocab_size=450",
    "rollout.tasks_per_step=3",
    "rollout.group_size=2",
    "sft.steps=20",
    "sft.batch_size=16",
    "sft.num_demonstrations=160",
    "train.steps=1",
    "train.num_threads=1",
    "train.keep_checkpoints=2",
    "evaluate.tasks=0",
    "evaluate.controls={}",
    "engine.max_concurrency=16",
]
TASK = Task(environment="e", prompt=(text_message("user", "q"),), payload={})


def tail(parent: int | None, num_tokens: int = 2) -> Turn:
    """A turn of `num_tokens` sampled tokens after one of context."""
    return make_turn([9], make_completion(range(num_tokens), logprobs=[-0.5] * num_tokens), parent=parent)


@dataclass(frozen=True)
class Leaf:
    """The last turn of a path besides the first; None as the reward is a path that failed."""

    turn: Turn
    reward: float | None
    kind: Literal["leaf", "estimate"]


def leaf(turn: Turn, reward: float | None, *, estimate: bool = False) -> Leaf:
    return Leaf(turn, reward, "estimate" if estimate else "leaf")


def end(index: int, leaf: Leaf) -> Ending:
    judged: Reward = Scored(total=leaf.reward or 0.0)
    stop = StopReason.DONE
    if leaf.reward is None:
        judged, stop = Invalid(reason="broken", retryable=False), StopReason.ERROR
    return Ending(turn=index, stop=stop, reward=judged, kind=leaf.kind)


ID = TrajectoryId(draw=0, member=0)


def make_groups(reward: float, *turns: Turn | Leaf) -> list[TrajectoryGroup]:
    trajectory = Trajectory(
        id=ID,
        task_id=TASK.id,
        turns=tuple(each.turn if isinstance(each, Leaf) else each for each in turns),
        stop=StopReason.DONE,
        reward=Scored(total=reward),
        endings=tuple(end(index, each) for index, each in enumerate(turns) if isinstance(each, Leaf)),
    )
    return [TrajectoryGroup(draw=Draw(index=0, task=TASK), trajectories=(trajectory,))]


def credit(method: str, groups: Sequence[TrajectoryGroup], **options: Any) -> list[float]:
    """The advantage of each turn's first token."""
    advantages = compute_advantages(build_credit(method, options), groups, to_credit_trajectories(groups))
    return [float(turn[0]) for turn in advantages[ID]]


# The attempt: turns 0 1 2, reward 1. V(s0) = (0 + 1) / 2, V(s1) = 1 (a failed continuation does not count), V(s2) = 0.
VINE = make_groups(
    1.0,
    tail(None),
    tail(0),
    tail(1),
    leaf(tail(None), 0.0, estimate=True),
    leaf(tail(None), 1.0, estimate=True),
    tail(0),
    leaf(tail(5), 1.0, estimate=True),
    leaf(tail(0), None, estimate=True),
    leaf(tail(1), 0.0, estimate=True),
)
# Leaves: 0 1 (reward 1), 0 2 (reward 1), 3 4 from the start (reward 0), and a failed one below turn 0.
TREE = make_groups(
    1.0,
    tail(None),
    tail(0),
    leaf(tail(0), 1.0),
    tail(None),
    leaf(tail(3), 0.0),
    leaf(tail(0), None),
)


def test_vine_by_hand() -> None:
    # V(s1) - V(s0), V(s2) - V(s1), 1 - V(s2)
    assert credit("vine", VINE) == [0.5, -1.0, 1.0]
    # Another method sees the attempt alone: nothing to compare it with.
    assert credit("dr_grpo", VINE) == [0.0, 0.0, 0.0]


def test_tree_and_arpo_by_hand() -> None:
    # Leaves 1, 1, 0: mean 2/3, sample deviation sqrt((1/9 + 1/9 + 4/9) / 2) = 0.57735. Normalised: 0.57735, 0.57735,
    # -1.15470.
    up, down = (1 / 3) / 3**-0.5, (-2 / 3) / 3**-0.5
    # One tree only, so within and across trees are the same comparison. Turn 0 lies on two leaves: "once" gives it
    # their mean.
    assert credit("tree", TREE, intra=0.0) == pytest.approx([up, up, up, down, down], abs=1e-5)
    assert credit("tree", TREE) == pytest.approx([2 * up, 2 * up, 2 * up, 2 * down, 2 * down], abs=1e-5)
    # "each" and "mean" weigh it as two copies would.
    assert credit("arpo", TREE) == pytest.approx([2 * up, up, up, down, down], abs=1e-5)
    assert credit("arpo", TREE, sharing="mean") == pytest.approx([2 * up, up, up, down, down], abs=1e-5)


def test_two_samplings_of_the_same_tokens_are_two_turns() -> None:
    # Turns 0 and 3 hold the same tokens with the same log-probabilities, and were drawn twice: neither takes the
    # other's credit.
    seen = to_credit_trajectories(TREE)
    assert [[turn.node for turn in path.turns] for path in seen] == [[0, 1], [0, 2], [3, 4]]
    assert len({path.tree for path in seen}) == 1
    alone = [replace(path, turns=tuple(replace(turn, node=None) for turn in path.turns)) for path in seen]
    # Without counts: taken for one turn, its mean would be (1 + 1 - 2) / 3 of 0.57735.
    merged = build_credit("tree", {"intra": 0.0})(alone)
    assert merged[0] is not None
    assert merged[0][0][0] == pytest.approx(0.0, abs=1e-6)


def account(groups: Sequence[TrajectoryGroup], method: str, samples: Sequence[Sample] | None = None) -> GroupAccount:
    advantages = compute_advantages(build_credit(method), groups, to_credit_trajectories(groups))
    if samples is None:
        trained = take_trained(groups[0].trajectories[0])
        samples = [sample for turns in advantages.values() for sample in to_samples(trained, turns)]
    drops = list_drops(groups, advantages, DropReason.NO_CREDIT)
    [made] = account_batch(groups, [samples], drops, step=1, version=0, max_staleness=0)
    return made


def test_every_sampled_token_is_accounted_for_once() -> None:
    # Two tokens per turn. Vine: 3 turns train; 5 turns of estimates and 1 of a failed one do not.
    vine = account(VINE, "vine")
    assert (vine.sampled, vine.trained, vine.dropped) == (18, 6, {"value_estimate": 10, "invalid": 2})
    tree = account(TREE, "tree")
    assert (tree.sampled, tree.trained, tree.dropped) == (12, 10, {"invalid": 2})


def test_a_tree_without_credit_is_dropped_with_both_reasons() -> None:
    drops = list_drops(TREE, {}, DropReason.NO_CREDIT)
    [made] = account_batch(TREE, [], drops, step=1, version=0, max_staleness=0)
    assert made.dropped == {"no_credit": 10, "invalid": 2}


def test_a_planted_duplicate_of_a_shared_prefix_is_found() -> None:
    trajectory = take_trained(TREE[0].trajectories[0])
    samples = to_samples(trajectory, compute_advantages(build_credit("tree"), TREE, to_credit_trajectories(TREE))[ID])
    assert [sample.loss_mask.tolist() for sample in samples][1] == [False, False, False, False, True, True]
    prefix = samples[0]
    mask, logprobs = np.array(samples[1].loss_mask), np.array(samples[1].behavior_logprobs)
    mask[1], logprobs[1] = True, prefix.behavior_logprobs[1]
    planted = [
        prefix,
        replace(samples[1], loss_mask=to_mask(mask), behavior_logprobs=to_floats(logprobs)),
        *samples[2:],
    ]
    with pytest.raises(LedgerError, match=r"0/0: sampled token 0 of turn 0 trains 2 times; at most 1 is allowed"):
        account(TREE, "tree", planted)


def test_an_estimate_that_trains_is_found() -> None:
    whole = VINE[0].trajectories[0]
    with pytest.raises(LedgerError, match=r"turn 3 is dropped as 'value_estimate', yet 2 of its 2 tokens train"):
        account(VINE, "vine", to_samples(whole))


def test_turns_that_train_after_one_that_does_not_are_refused() -> None:
    broken = make_groups(1.0, tail(None), leaf(tail(None), 0.0, estimate=True), leaf(tail(0), 1.0))
    # Turn 2 hangs below turn 0, so the attempt has no leaf of its own: paths 0 2 and 1.
    with pytest.raises(TrainingError, match="turn 1 never trains, yet it precedes turn 2"):
        credit("dr_grpo", broken)


# ------------------------------------------------------------------------------------------------ whole runs


def load(*overrides: str) -> RunConfig:
    return load_config([TINY], [*SMALL, *overrides])


@pytest.fixture(scope="module", params=["vine", "tree", "arpo", "igpo"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    output = tmp_path_factory.mktemp(request.param)
    branching = ["credit.branching.num_continuations=2", "credit.branching.entropy_threshold=0.9"]
    return run_train(
        load(f"credit.method={request.param}", f"run.output={output}", *branching), resume=None, display=False
    )


def method_of(run: Path) -> str:
    return str(json.loads((run / "config.json").read_text())["credit"]["method"])


def test_a_whole_run_passes_its_audit(run: Path) -> None:
    report = audit_run(run, replay_tools=True)
    assert report.breaches == []
    method, store = method_of(run), GroupStore(run)
    trajectories = [t for draw in store.list_draws() for t in store.load(draw).trajectories]
    assert report.tallies["advantages"].checked == len(trajectories) == 6
    accounts = load_accounts(run)
    sampled, trained = sum(a.sampled for a in accounts), sum(a.trained for a in accounts)
    dropped = sum((Counter(a.dropped) for a in accounts), Counter())
    assert sampled == trained + dropped.total()
    if method == "vine":
        assert dropped["value_estimate"] > trained
        assert report.tallies["rewards"].checked > 6  # the continuations' too
    elif method == "igpo":
        assert all(turn.scores.answer_probability is not None for t in trajectories for turn in t.turns)
    else:
        # Two branches per attempt, all of which train, and what they share is stored once.
        assert report.tallies["rewards"].checked == 18
        assert not dropped


def test_a_branched_trajectory_can_be_explained(run: Path) -> None:
    draw = read_journal(run).taken[1][0]
    explained = explain_trajectory(run, f"{draw}/0", [method_of(run), "dr_grpo"])
    assert explained.columns == (f"{method_of(run)} (as trained)", "dr_grpo")
    assert explained.turns[0].credit["dr_grpo"] is not None
    ends = [turn.ends.partition(" ")[0] for turn in explained.turns if turn.ends]
    assert ends[:1] == ([] if method_of(run) == "igpo" else ["first"])
    assert set(ends[1:]) == {"vine": {"estimate"}, "tree": {"leaf"}, "arpo": {"leaf"}, "igpo": set()}[method_of(run)]
    result = CliRunner().invoke(app, ["algorithms", "explain", str(run), f"{draw}/0"])
    assert result.exit_code == 0
    assert ("after" in result.output.split("advantage per")[0]) == (method_of(run) != "igpo")


# ------------------------------------------------------------------------------------------------ refusals


def test_one_tree_per_task_is_a_group() -> None:
    check_methods(load("credit.method=tree", "rollout.group_size=1"))
    with pytest.raises(ConfigError, match="leaves nothing to compare"):
        check_methods(load("credit.method=grpo", "rollout.group_size=1"))


def test_a_penalty_to_come_has_no_meaning_above_a_fork() -> None:
    penalty = ["loss.kl.coefficient=0.1", "loss.kl.kind=k1", "loss.kl.place=reward"]
    with pytest.raises(ConfigError, match="a turn before a fork has several futures"):
        check_methods(load("credit.method=tree", *penalty))
    check_methods(load("credit.method=vine", *penalty))


def test_a_dry_run_refuses_what_the_run_refuses() -> None:
    result = CliRunner().invoke(app, ["train", str(TINY), "credit.method=gae", "--dry-run"])
    assert isinstance(result.exception, ConfigError)
    assert "set critic.kind to 'head' or 'separate'" in str(result.exception)
