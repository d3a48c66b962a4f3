"""Coefficients that follow a measurement, by hand and through a checkpoint."""

from pathlib import Path

import pytest

from turnwise.building.learners import read_gradient_settings
from turnwise.building.resolved import resolve
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, TrainingError
from turnwise.core.metrics import Mean
from turnwise.learning.adaptive import Coefficients, adapt_coefficients, adapts, start_coefficients
from turnwise.learning.policy_gradient import PolicyGradientLearner

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
KL = ["loss.kl.coefficient=0.5", "loss.kl.target=0.1", "loss.kl.horizon=100"]


def config(*overrides: str) -> RunConfig:
    return load_config([TINY], overrides)


def test_the_kl_coefficient_by_hand() -> None:
    # Measured 0.11 of 0.1: error 0.1; 20 of 100 samples: 0.5 (1 + 0.1 * 0.2) = 0.51. Far off, the error stops at 0.2:
    # 0.5 * 1.04.
    loss = config(*KL).loss
    start = start_coefficients(loss)
    near = adapt_coefficients(start, loss, {"train/kl_reference": Mean(1.1, 10.0)}, num_samples=20)
    assert near.kl == pytest.approx(0.51)
    far = adapt_coefficients(start, loss, {"train/kl_reference": Mean(9.0)}, num_samples=20)
    assert far.kl == pytest.approx(0.52)
    assert far.entropy == 0.0


def test_the_entropy_coefficient_by_hand() -> None:
    loss = config("loss.entropy_target=0.2", "loss.entropy_step=0.01", "loss.max_entropy_coefficient=0.015").loss
    start = start_coefficients(loss)
    low, high = {"train/entropy": Mean(0.1)}, {"train/entropy": Mean(0.3)}
    once = adapt_coefficients(start, loss, low, num_samples=1)
    twice = adapt_coefficients(once, loss, low, num_samples=1)
    back = adapt_coefficients(start, loss, high, num_samples=1)
    assert [each.entropy for each in (once, twice, back)] == pytest.approx([0.01, 0.015, 0.0])


def test_fixed_coefficients_stay() -> None:
    loss = config("loss.kl.coefficient=0.5").loss
    assert not adapts(loss)
    assert adapt_coefficients(start_coefficients(loss), loss, {}, num_samples=8) == Coefficients(kl=0.5, entropy=0.0)


def test_a_measurement_that_is_not_finite_is_refused() -> None:
    loss = config(*KL).loss
    with pytest.raises(TrainingError, match=r"loss\.kl\.target.*nan finite"):
        adapt_coefficients(start_coefficients(loss), loss, {"train/kl_reference": Mean(float("nan"))}, num_samples=1)


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
    first, second = (PolicyGradientLearner(read_gradient_settings(resolve(config(*KL)))) for _ in range(2))
    assert first.state_dict() == {"coefficients": {"kl": 0.5, "entropy": 0.0}}
    second.load_state_dict({"coefficients": {"kl": 0.75, "entropy": 0.0}})
    assert second.coefficients.kl == 0.75
    assert second.state_dict() == {"coefficients": {"kl": 0.75, "entropy": 0.0}}
