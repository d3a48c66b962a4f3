"""Coefficients that follow a measurement, by hand and through a checkpoint; masks of drifted sequences and of the
second moment."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from turnwise.runs.policy import TrainedPolicy

from turnwise.algorithms.losses.drift import mask_drifted_sequences
from turnwise.algorithms.losses.inputs import LossInputs
from turnwise.algorithms.losses.reinforce import compute_reinforce_loss
from turnwise.audit.audit import run_audit
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, TrainingError
from turnwise.core.metrics import Mean
from turnwise.learning.adaptive import adapt_coefficients, read_coefficients, set_coefficients
from turnwise.learning.policy_gradient import PolicyGradient
from turnwise.runs.build import build_system
from turnwise.runs.methods import build_correction, build_policy_loss
from turnwise.runs.train import run_train
from turnwise.training.state import STATE_FILE

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
KL = ["loss.kl.coefficient=0.5", "loss.kl.target=0.1", "loss.kl.horizon=100"]


def config(*overrides: str) -> RunConfig:
    return load_config([TINY], overrides)


def test_the_kl_coefficient_by_hand() -> None:
    # Measured 0.11 of 0.1: error 0.1; 20 of 100 samples: 0.5 (1 + 0.1 * 0.2) = 0.51. Far off, the error stops at 0.2:
    # 0.5 * 1.04.
    near = adapt_coefficients(config(*KL), {"train/kl_reference": Mean(1.1, 10.0)}, num_samples=20)
    assert near.loss.kl.coefficient == pytest.approx(0.51)
    assert build_policy_loss(near).kl_coefficient == pytest.approx(0.51)
    far = adapt_coefficients(config(*KL), {"train/kl_reference": Mean(9.0)}, num_samples=20)
    assert far.loss.kl.coefficient == pytest.approx(0.52)
    assert far.loss.entropy_coefficient == 0.0


def test_the_entropy_coefficient_by_hand() -> None:
    recipe = config("loss.entropy_target=0.2", "loss.entropy_step=0.01", "loss.max_entropy_coefficient=0.015")
    low, high = {"train/entropy": Mean(0.1)}, {"train/entropy": Mean(0.3)}
    once = adapt_coefficients(recipe, low, num_samples=1)
    twice = adapt_coefficients(once, low, num_samples=1)
    back = adapt_coefficients(recipe, high, num_samples=1)
    assert [c.loss.entropy_coefficient for c in (once, twice, back)] == pytest.approx([0.01, 0.015, 0.0])


def test_fixed_coefficients_stay() -> None:
    recipe = config("loss.kl.coefficient=0.5")
    assert adapt_coefficients(recipe, {}, num_samples=8) is recipe


def test_coefficients_go_through_a_checkpoint() -> None:
    moved = set_coefficients(config(*KL), {"kl": 0.75, "entropy": 0.25})
    assert read_coefficients(moved) == {"kl": 0.75, "entropy": 0.25}
    assert (moved.loss.kl.target, moved.rollout) == (0.1, config().rollout)


def test_a_measurement_that_is_not_finite_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"loss\.kl\.target.*nan finite"):
        adapt_coefficients(config(*KL), {"train/kl_reference": Mean(float("nan"))}, num_samples=1)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["loss.kl.target=0.1"], "0 stays 0"),
        (["loss.entropy_target=0.2", "loss.entropy_coefficient=2"], "must start between 0 and"),
        (["loss.correction.mode=second_moment", "loss.correction.level=sequence"], "ranks single tokens"),
        (["loss.correction.mode=second_moment", "loss.correction.veto=0.1"], "ranks single tokens"),
    ],
)
def test_combinations_that_mean_nothing_are_refused(overrides: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config(*overrides)


def test_the_second_moment_of_a_recipe() -> None:
    recipe = config(
        "loss.correction.mode=second_moment", "loss.correction.max_second_moment=0.1", "loss.recompute_old=true"
    )
    correct = build_correction(recipe)
    assert correct is not None
    # Squares 0, 0.04, 0.25: means of the smallest 0, 0.02, 0.0967; then 1.0 brings the mean to 0.3225.
    behavior = torch.zeros(4)
    found = correct(torch.tensor([0.5, 0.0, 1.0, -0.2]), behavior, torch.zeros(4, dtype=torch.long))
    assert found.keep.tolist() == [True, True, False, True]
    with pytest.raises(ConfigError, match="Recompute old"):
        build_policy_loss(config("loss.correction.mode=second_moment"))


def test_bad_sequences_that_drifted_do_not_train() -> None:
    # Sequence 0 lost (0.4 + 0.2) / 2 = 0.3 nats, sequence 1 lost 0.1, sequence 2 lost 0.9 and is good.
    policy = torch.tensor([-1.4, -1.2, -1.1, -1.9], requires_grad=True)
    inputs = LossInputs(
        policy_logprobs=policy,
        old_logprobs=policy.detach(),
        behavior_logprobs=torch.full((4,), -1.0),
        advantages=torch.tensor([-1.0, -1.0, -1.0, 1.0]),
        sequence=torch.tensor([0, 0, 1, 2]),
    )
    output = mask_drifted_sequences(compute_reinforce_loss, max_drift=0.2)(inputs)
    output.losses.sum().backward()
    assert policy.grad is not None
    assert policy.grad.tolist() == [0.0, 0.0, 1.0, -1.0]
    assert build_policy_loss(config("loss.max_drift=0.2")).function is not build_policy_loss(config()).function


def test_a_learner_remembers_where_its_coefficients_stand() -> None:
    small = [
        "model.config.hidden_size=32",
        "model.config.intermediate_size=32",
        "tokenizer.num_texts=100",
        "tokenizer.vocab_size=400",
    ]
    recipe = config(*KL, *small)
    torch.set_num_threads(1)

    def learner() -> PolicyGradient:
        system = build_system(recipe)
        return PolicyGradient(TrainedPolicy(system), lambda: system.model)

    first, second = learner(), learner()
    assert first.state_dict() == {"coefficients": {"kl": 0.5, "entropy": 0.0}}
    second.load_state_dict({"coefficients": {"kl": 0.75, "entropy": 0.0}})
    assert second.loss.kl_coefficient == 0.75
    assert second.state_dict() == {"coefficients": {"kl": 0.75, "entropy": 0.0}}


def test_a_run_moves_its_coefficients(tmp_path: Path) -> None:
    small = [
        "model.config.hidden_size=32",
        "model.config.intermediate_size=32",
        "tokenizer.num_texts=100",
        "tokenizer.vocab_size=400",
    ]
    short = [
        "sft.steps=5",
        "sft.num_demonstrations=80",
        "sft.batch_size=16",
        "train.steps=2",
        "train.num_threads=1",
        "evaluate.tasks=0",
    ]
    others = [
        "loss.entropy_target=9",
        "loss.max_drift=0.5",
        "loss.recompute_old=true",
        "loss.correction.mode=second_moment",
    ]
    rollout = [
        "rollout.tasks_per_step=4",
        "rollout.group_size=4",
        "credit.method=otb",
        f"run.output={tmp_path}",
        "evaluate.controls={}",
    ]
    run = run_train(config(*KL, *small, *short, *others, *rollout), resume=None, display=False)
    with safe_open(run / "checkpoints" / "step_000002" / STATE_FILE, framework="pt") as file:
        moved = json.loads(file.metadata()["counters"])["credit"]["coefficients"]
    # Next to no divergence yet: two steps of 16 trajectories, error -0.2 each: 0.5 (1 - 0.2 * 16 / 100)^2. The entropy
    # is below 9 twice.
    assert moved["kl"] == pytest.approx(0.5 * (1 - 0.2 * 0.16) ** 2, rel=1e-6)
    assert moved["entropy"] == pytest.approx(0.01)
    assert run_audit(run).breaches == []
