"""Losses and credit methods of users: tried before anything trains; what is wrong is one line that names them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from turnwise.algorithms.credit import CreditTrajectory, CreditTurn
from turnwise.algorithms.losses.inputs import LossInputs
from turnwise.building.objectives import build_policy_loss
from turnwise.building.resolved import resolve
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, TrainingError

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"


def config(*overrides: str) -> RunConfig:
    return load_config([TINY], overrides)


def inputs(num_tokens: int) -> LossInputs:
    policy = torch.full((num_tokens,), -1.0, requires_grad=True)
    ones = torch.ones(num_tokens)
    return LossInputs(
        policy_logprobs=policy,
        old_logprobs=-ones,
        behavior_logprobs=-ones,
        advantages=2.0 * ones,
        sequence=torch.zeros(num_tokens, dtype=torch.int64),
    )


def test_a_loss_of_ones_own_is_called_with_its_options_and_measures() -> None:
    loss = build_policy_loss(resolve(config("loss.method=own_methods:weigh", "loss.options.scale=0.5")))
    output = loss.function(inputs(4))
    assert output.losses.tolist() == [-1.0] * 4  # -0.5 * 2 * exp(0)
    assert {name: values.tolist() for name, values in output.metrics.items()} == {
        "ratio": [1.0] * 4,
        "scale": [0.5] * 4,
        "largest": [1.0] * 4,
    }
    assert not any(values.requires_grad for values in output.metrics.values())
    empty = loss.function(inputs(0))  # a rank without tokens: `ratio.max()` of nothing would raise
    assert (tuple(empty.losses.shape), set(empty.metrics)) == ((0,), {"ratio", "scale", "largest"})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("loss_raises", "KeyError: 'beta'"),
        ("loss_of_other_arguments", "missing 1 required positional argument: 'advantages'"),
        ("loss_is_a_tensor", "it returned a Tensor; take LossInputs and return LossOutput"),
        ("loss_is_none", "it returned a NoneType; take LossInputs"),
        ("loss_is_a_mean", "its losses has shape () for 3 tokens; take LossInputs"),
        ("loss_is_nan", "its losses for three tokens are [nan, nan, nan]"),
        ("loss_is_detached", "have no gradient"),
        ("loss_of_a_sharp_corner", "the gradient of its losses with respect to policy_logprobs is [inf, inf, inf]"),
        ("loss_is_numpy", "its losses is a ndarray"),
        ("clipped_is_a_float", "its clipped has dtype torch.float32; return bool"),
        ("metric_is_text", "its metric 'mode' is str; return one number"),
    ],
)
def test_a_loss_that_cannot_train_is_refused_at_the_start(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build_policy_loss(resolve(config(f"loss.method=own_methods:{name}")))
    assert str(raised.value).startswith(f"loss.method='own_methods:{name}'")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_option_that_a_loss_does_not_take_is_named() -> None:
    with pytest.raises(ConfigError, match=r"loss\.options=.*'beta'.*unexpected keyword argument 'beta'"):
        build_policy_loss(resolve(config("loss.method=own_methods:weigh", "loss.options.beta=0.5")))


def test_what_only_a_micro_batch_shows_is_an_error_of_the_step() -> None:
    loss = build_policy_loss(resolve(config("loss.method=own_methods:loss_turns_bad")))
    with pytest.raises(TrainingError, match=r"own_methods:loss_turns_bad'.*IndexError: only three"):
        loss.function(inputs(4))


@pytest.mark.parametrize("name", ["above_mean", "credit_of_lists"])
def test_a_credit_method_of_ones_own_passes_its_trial(name: str) -> None:
    credit = resolve(config(f"credit.method=own_methods:{name}")).build_credit()
    turns = (CreditTurn(num_tokens=2), CreditTurn(num_tokens=1, parent=0))
    advantages = credit(
        [
            CreditTrajectory(group="a", reward=1.0, turns=turns, parts={"success": 0.5}),
            CreditTrajectory(group="a", reward=0.0, turns=turns, parts={"success": 0.5}),
            CreditTrajectory(group="a", reward=None, turns=turns),
        ]
    )
    first = advantages[0]
    assert first is not None
    assert all(isinstance(each, np.ndarray) and each.dtype == np.float64 for each in first)
    assert [each.tolist() for each in first] == [[0.5, 0.5], [0.5] if name == "above_mean" else [0.0]]
    assert advantages[2] is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("credit_is_none", "returned a value of type NoneType; "),
        ("credit_is_a_number_each", "trajectory 0: a float; return one list per trajectory with one array per turn"),
        ("credit_is_a_number_per_turn", "turn 0: float instead of one number per sampled token"),
        ("credit_is_too_short", "arrays have [1, 1] tokens, but the turns sampled [2, 1]"),
        ("credit_lacks_one", "returned 3 results for 4 trajectories"),
        ("credit_is_nan", "an advantage is not finite"),
        ("credit_is_text", "turn 0: an array of shape [2] and dtype <U1 instead of one number"),
        ("credit_forgets_invalid", "whose reward is None (not scored): it raises TypeError"),
        ("credit_raises", "AttributeError: no attribute 'rewards'"),
    ],
)
def test_a_credit_method_that_cannot_credit_is_refused_at_the_start(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(config(f"credit.method=own_methods:{name}")).build_credit()
    assert str(raised.value).startswith(f"credit.method='own_methods:{name}'")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
