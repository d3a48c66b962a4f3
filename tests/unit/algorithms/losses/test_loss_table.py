"""The table: names, defaults, and what `build_loss` refuses."""

import inspect

import pytest

from turnwise.algorithms.aggregate import AGGREGATIONS
from turnwise.algorithms.losses import LOSSES, build_loss

REQUIRED = {
    "ppo",
    "dual_clip",
    "clip_higher",
    "grpo",
    "dr_grpo",
    "dapo",
    "gspo",
    "gspo_token",
    "cispo",
    "sapo",
    "gmpo",
    "dppo_tv",
    "dppo_kl",
    "decoupled_ppo",
    "kl_cov",
    "clip_cov",
    "gpg",
    "reinforce",
}


def test_every_row_is_complete_and_its_defaults_are_its_functions_options() -> None:
    assert set(LOSSES) >= REQUIRED
    for name, method in LOSSES.items():
        assert method.name == name
        assert method.default_aggregation in AGGREGATIONS
        for text in (method.summary, method.formula, method.paper):
            assert text
        assert set(method.defaults) == set(inspect.signature(method.function).parameters) - {"inputs"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gpso", {}, "did you mean 'gspo'"),
        ("ppo", {"clip_hihg": 0.3}, "did you mean 'clip_high'.*its options: clip_low, clip_high"),
        ("reinforce", {"clip_low": 0.2}, "its options: none"),
        ("ppo", {"clip_low": 1.5}, "clip_low is 1.5"),
        ("ppo", {"clip_high": float("nan")}, "must be a number"),
        ("ppo", {"clip_low": "0.2"}, "must be a number"),
        ("ppo", {"clip_low": True}, "must be a number"),
        ("clip_cov", {"seed": 0.5}, "must be a whole number"),
        ("clip_cov", {"share": 0.0}, "share is 0.0"),
        ("kl_cov", {"coefficient": -1.0}, "coefficient is -1.0"),
        ("dual_clip", {"dual_clip": 1.0}, "larger than 1"),
        ("sapo", {"temperature_negative": 0.0}, "must be positive"),
        ("dppo_tv", {"delta_low": -0.1}, "deltas must be >= 0"),
        ("vespo", {"decay_negative": 0.0}, "must be positive"),
        ("decoupled_ppo", {"weight_mode": "drop"}, "'drop'"),
    ],
)
def test_wrong_names_and_values_are_refused_before_training(
    name: str, options: dict[str, float | int | str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build_loss(name, options)


@pytest.mark.parametrize(
    ("name", "corrected", "old_is_behavior", "reason"),
    [
        ("dppo_tv", True, None, "mismatch twice"),
        ("vespo", True, False, "mismatch twice"),
        ("decoupled_ppo", True, False, "mismatch twice"),
        ("cispo", True, True, "mismatch twice"),
        ("ppo", True, True, "1 everywhere"),
        ("decoupled_ppo", False, True, "plain 'ppo'"),
    ],
)
def test_combinations_without_meaning_are_refused_with_the_reason(
    name: str, corrected: bool, old_is_behavior: bool | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        build_loss(name, corrected=corrected, old_is_behavior=old_is_behavior)


def test_sensible_combinations_are_built() -> None:
    for name in LOSSES:
        build_loss(name)
    build_loss("cispo", corrected=True, old_is_behavior=False)
    build_loss("dppo_kl", old_is_behavior=True)
    build_loss("decoupled_ppo", {"max_weight": float("inf"), "clip_low": 1}, old_is_behavior=False)
