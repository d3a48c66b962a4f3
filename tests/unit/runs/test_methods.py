"""Credit methods and losses of a recipe: defaults, options, own functions, and every combination that is refused with
its reason."""

import re
from pathlib import Path

import pytest
import torch

from turnwise.algorithms.credit import CreditTrajectory, CreditTurn
from turnwise.algorithms.credit_table import CREDIT_METHODS
from turnwise.algorithms.losses.drift import mask_drifted_sequences
from turnwise.algorithms.losses.inputs import LossInputs
from turnwise.algorithms.losses.reinforce import compute_reinforce_loss
from turnwise.algorithms.losses.table import LOSSES
from turnwise.building.checks import check_methods
from turnwise.building.objectives import build_correction, build_policy_loss
from turnwise.building.resolved import resolve
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"


def config(*overrides: str) -> RunConfig:
    return load_config([TINY], overrides)


@pytest.mark.parametrize("name", sorted(CREDIT_METHODS))
def test_every_credit_method_is_reachable(name: str) -> None:
    critic = ["critic.kind=head"] if "values" in CREDIT_METHODS[name].needs else []
    assert resolve(config(f"credit.method={name}", *critic)).build_credit().method is CREDIT_METHODS[name]


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_is_reachable_with_its_own_aggregation(name: str) -> None:
    recompute = "true" if LOSSES[name].anchor == "both" else "false"
    loss = build_policy_loss(resolve(config(f"loss.method={name}", f"loss.recompute_old={recompute}")))
    assert loss.aggregation == LOSSES[name].default_aggregation
    assert loss.batch_rule == LOSSES[name].batch_rule
    assert loss.constant == 384.0  # rollout.max_tokens of the recipe


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (("Dr. GRPO", "GSPO-token"), ("dr_grpo", "gspo_token")),
        (("REINFORCE++", "CISPO"), ("reinforce_plus_plus", "cispo")),
        (("MT-GRPO", "Clip-Higher"), ("multi_turn_grpo", "clip_higher")),
        (("own_methods:above_mean", "own_methods:weigh"), ("own_methods:above_mean", "own_methods:weigh")),
    ],
)
def test_a_run_stores_canonical_names(written: tuple[str, str], stored: tuple[str, str]) -> None:
    checked = check_methods(config(f"credit.method={written[0]}", f"loss.method={written[1]}"))
    assert (checked.credit.method, checked.loss.method) == stored
    assert check_methods(checked) == checked


def test_an_alias_is_treated_as_the_method_it_names() -> None:
    assert resolve(config("credit.method=VinePPO")).branches == "values"
    assert resolve(config("credit.method=VinePPO", "credit.branching.num_continuations=0")).branches == "none"
    assert resolve(config("credit.method=Tree-GRPO", "train.algorithm=dpo")).branches == "none"
    assert [resolve(config(f"credit.method={name}")).branches for name in ("Tree-GRPO", "ARPO", "GRPO")] == [
        "random",
        "entropy",
        "none",
    ]
    kl = ["loss.kl.coefficient=0.25", "loss.kl.kind=k1", "loss.kl.place=reward"]
    seen = [CreditTrajectory(group="g", reward=1.0, turns=(CreditTurn(num_tokens=1),))]
    with pytest.raises(ValueError, match="logprobs is missing"):  # the penalty reaches the method
        resolve(config("credit.method=REINFORCE++", *kl)).build_credit()(seen)


@pytest.mark.parametrize(
    "reason",
    [
        "train.steps=0",
        "credit.method=reinforce",
        "train.algorithm=rejection",
        "credit.method=own_methods:above_mean",
    ],
)
def test_a_group_of_one_is_fine_where_nothing_compares(reason: str) -> None:
    check_methods(config("rollout.group_size=1", "rollout.dynamic_sampling.metric=", reason))


def test_options_reach_the_method_and_lists_do_too() -> None:
    scheduled = resolve(config("credit.method=scheduled_mix", "credit.options.boundaries=[0.1, 0.2]")).build_credit()
    assert scheduled.function.__class__.__name__ == "ScheduledMix"
    loss = build_policy_loss(resolve(
        config("loss.method=dual_clip", "loss.options.dual_clip=5", "loss.aggregation=sequence_sum")
    ))
    assert loss.aggregation == "sequence_sum"
    assert loss.function.keywords["dual_clip"] == 5  # type: ignore[attr-defined]


def test_a_penalty_in_the_reward_reaches_the_methods_that_lay_rewards_out() -> None:
    kl = ["loss.kl.coefficient=0.25", "loss.kl.kind=k1", "loss.kl.place=reward"]
    assert build_policy_loss(resolve(config(*kl))).kl_coefficient == 0.0
    assert build_policy_loss(resolve(config("loss.kl.coefficient=0.25"))).kl_coefficient == 0.25
    # No reference: only a method that was given the coefficient asks for one.
    seen = [CreditTrajectory(group="g", reward=1.0, turns=(CreditTurn(num_tokens=1),))]
    with pytest.raises(ValueError, match="logprobs is missing"):
        resolve(config("credit.method=reinforce_plus_plus", *kl)).build_credit()(seen)
    resolve(config("credit.method=reinforce_plus_plus")).build_credit()(seen)


OWN = """
from turnwise.algorithms.losses.inputs import LossOutput
def halved(inputs, *, share=0.5):
    return LossOutput(losses=-share * inputs.advantages * inputs.policy_logprobs, clipped=inputs.advantages > 9)
NUMBER = 3
"""


def test_a_loss_of_ones_own_is_named_by_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_loss_of_a_test.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    loss = build_policy_loss(resolve(config("loss.method=own_loss_of_a_test:halved", "loss.options.share=0.25")))
    one = torch.ones(1)
    inputs = LossInputs(
        policy_logprobs=2 * one, old_logprobs=one, behavior_logprobs=one, advantages=one, sequence=one.long()
    )
    assert loss.function(inputs).losses.tolist() == [-0.5]
    assert loss.aggregation == "token_mean"
    with pytest.raises(ConfigError, match="is a int; it must be a function"):
        build_policy_loss(resolve(config("loss.method=own_loss_of_a_test:NUMBER")))


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["credit.method=grop"], "did you mean 'grpo'"),
        (["credit.method=VinPO"], "did you mean 'vine'"),
        (["credit.options.epsilom=1"], "credit method 'grpo' has no option 'epsilom' (did you mean 'epsilon'?)"),
        (["rollout.group_size=1"], "rollout.group_size=1 leaves nothing to compare; use at least 2"),
        (
            ["credit.method=Tree-GRPO", "rollout.train_members=2"],
            "rollout.train_members=2 drops whole trajectories, but credit.method='tree' trains branches",
        ),
        (
            ["credit.method=Tree-GRPO", "rollout.train_truncated=false"],
            "credit.method='tree' trains branches that each end separately",
        ),
        (["credit.options.epsilon=-1"], "epsilon is -1"),
        (["credit.method=nowhere_at_all:f"], "credit.method='nowhere_at_all:f' cannot be imported"),
        (
            ["credit.method=gae"],
            "credit.method='gae' needs a critic; set critic.kind to 'head' or 'separate'",
        ),
        (["critic.kind=head"], "critic.kind='head', but credit.method='grpo' uses no critic"),
        (["loss.method=gpso"], "did you mean 'gspo'"),
        (["loss.method=DPPO-Binary-TVs"], "did you mean 'dppo_tv'"),
        (["loss.options.clip=0.2"], "loss 'ppo' has no option 'clip'"),
        (["loss.options.clip_low=2.0"], "clip_low is 2.0"),
        (["loss.method=nowhere_at_all:f"], "loss.method='nowhere_at_all:f' cannot be imported"),
        (["loss.method=decoupled_ppo"], "if they are equal, the loss is plain 'ppo'"),
        (
            ["loss.correction.mode=mask"],
            "Recompute old log-probabilities with the trainer, or switch the correction off",
        ),
        (
            ["loss.method=dppo_tv", "loss.recompute_old=true", "loss.correction.mode=mask"],
            "would count the sampler-trainer mismatch twice",
        ),
        (
            ["loss.method=own_methods:weigh", "loss.correction.mode=mask"],
            "the old log-probabilities are the sampler's own, so old / behavior is 1 everywhere",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_built(overrides: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        check_methods(config(*overrides))


def test_the_second_moment_of_a_recipe() -> None:
    recipe = config(
        "loss.correction.mode=second_moment", "loss.correction.max_second_moment=0.1", "loss.recompute_old=true"
    )
    correct = build_correction(recipe.loss, resolve(recipe).correction)
    assert correct is not None
    # Squares 0, 0.04, 0.25: means of the smallest 0, 0.02, 0.0967; then 1.0 brings the mean to 0.3225.
    behavior = torch.zeros(4)
    correction = correct(torch.tensor([0.5, 0.0, 1.0, -0.2]), behavior, torch.zeros(4, dtype=torch.long))
    assert correction.keep.tolist() == [True, True, False, True]
    with pytest.raises(ConfigError, match="Recompute old"):
        build_policy_loss(resolve(config("loss.correction.mode=second_moment")))


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
    masked = build_policy_loss(resolve(config("loss.max_drift=0.2")))
    assert masked.function is not build_policy_loss(resolve(config())).function


STALE = "schedule.max_staleness=2"


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_synchronous_training_corrects_nothing_by_default(name: str) -> None:
    resolved = resolve(config(f"loss.method={name}")).correction
    assert (resolved.recompute_old, resolved.mode) == (False, "none")


@pytest.mark.parametrize(
    ("name", "recompute_old", "mode", "level"),
    [
        ("ppo", True, "truncate", "token"),
        ("dapo", True, "truncate", "token"),
        ("reinforce", True, "truncate", "token"),
        ("gspo", True, "truncate", "geometric"),
        ("gmpo", True, "truncate", "geometric"),
        ("cispo", False, "none", "token"),
        ("dppo_tv", False, "none", "token"),
        ("vespo", False, "none", "token"),
        ("decoupled_ppo", True, "none", "token"),
    ],
)
def test_a_loss_corrects_stale_tokens_as_its_row_says(name: str, recompute_old: bool, mode: str, level: str) -> None:
    recipe = config(f"loss.method={name}", "loss.updates_per_step=2", STALE)
    resolved = resolve(recipe).correction
    assert (resolved.recompute_old, resolved.mode, resolved.level) == (recompute_old, mode, level)
    assert name in resolved.text
    assert "max_staleness=2" in resolved.text
    assert (build_policy_loss(resolve(recipe)).correct is not None) == (mode != "none")


@pytest.mark.parametrize(
    ("name", "recompute_old", "mode"),
    [
        ("ppo", False, "none"),
        ("sapo", False, "none"),
        ("gspo", False, "none"),
        ("cispo", False, "none"),
        ("reinforce", True, "truncate"),  # it has no ratio to clip
        ("decoupled_ppo", True, "none"),
    ],
)
def test_with_one_update_a_loss_that_clips_takes_ratios_to_the_sampler(
    name: str, recompute_old: bool, mode: str
) -> None:
    resolved = resolve(config(f"loss.method={name}", STALE)).correction
    assert (resolved.recompute_old, resolved.mode) == (recompute_old, mode)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_says_how_it_corrects_stale_tokens(name: str) -> None:
    build_policy_loss(resolve(config(f"loss.method={name}", STALE)))


def test_what_a_recipe_says_itself_stands() -> None:
    masked = resolve(config("loss.method=ppo", "loss.correction.mode=second_moment", STALE)).correction
    assert (masked.recompute_old, masked.mode) == (True, "second_moment")
    recomputed = resolve(config("loss.method=ppo", "loss.recompute_old=true", STALE)).correction
    assert (recomputed.recompute_old, recomputed.mode) == (True, "truncate")
    plain = resolve(config("loss.method=ppo", "loss.recompute_old=false", STALE)).correction
    assert (plain.recompute_old, plain.mode) == (False, "none")
    both = ["loss.recompute_old=true", "loss.correction.mode=mask"]
    own = resolve(config("loss.method=math:sqrt", *both, STALE)).correction
    assert (own.recompute_old, own.mode) == (True, "mask")


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["loss.method=math:sqrt"], "does not define a correction for stale tokens"),
        (["loss.method=reinforce", "loss.correction.mode=none"], "uses no ratio"),
        (["loss.method=gpg", "loss.recompute_old=false"], "uses no ratio"),
        (
            ["loss.mask_observations=false", "loss.updates_per_step=2"],
            "loss.mask_observations=false trains tokens that were not sampled",
        ),
    ],
)
def test_stale_tokens_that_a_recipe_cannot_correct_are_refused(overrides: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"{re.escape(reason)}.*schedule\.max_staleness=0"):
        resolve(config(*overrides, STALE))
