"""Coefficients that follow a measurement, by hand and through a checkpoint."""

from pathlib import Path

import pytest

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, TrainingError
from turnwise.core.metrics import Mean
from turnwise.learning.adaptive import adapt_coefficients, read_coefficients, set_coefficients
from turnwise.learning.policy_gradient import PolicyGradientLearner

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
KL = ["loss.kl.coefficient=0.5", "loss.kl.target=0.1", "loss.kl.horizon=100"]


def config(*overrides: str) -> RunConfig:
    return load_config([TINY], overrides)


def test_the_kl_coefficient_by_hand() -> None:
    # Measured 0.11 of 0.1: error 0.1; 20 of 100 samples: 0.5 (1 + 0.1 * 0.2) = 0.51. Far off, the error stops at 0.2:
    # 0.5 * 1.04.
    near = adapt_coefficients(config(*KL), {"train/kl_reference": Mean(1.1, 10.0)}, num_samples=20)
    assert near.loss.kl.coefficient == pytest.approx(0.51)
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


def test_a_learner_follows_and_remembers_its_coefficients() -> None:
    first, second = (PolicyGradientLearner(config(*KL), recompute_old=False) for _ in range(2))
    assert first.state_dict() == {"coefficients": {"kl": 0.5, "entropy": 0.0}}
    second.load_state_dict({"coefficients": {"kl": 0.75, "entropy": 0.0}})
    assert second.config.loss.kl.coefficient == 0.75
    assert second.state_dict() == {"coefficients": {"kl": 0.75, "entropy": 0.0}}
