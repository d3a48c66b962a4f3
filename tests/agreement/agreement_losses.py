"""Policy losses, divergences, corrections and aggregation: ours against the peers', values and gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from agreement_golden import Case, assert_equal, check_loss, compares, pack, pack_inputs, unpack, weigh

from turnwise.algorithms.aggregate import Aggregation, compute_token_mean, compute_weights
from turnwise.algorithms.corrections import compute_correction, compute_off_policy_sequence_mask
from turnwise.algorithms.entropy import compute_entropy_loss
from turnwise.algorithms.kl import KLKind, compute_k2, compute_kl, update_kl_coefficient
from turnwise.algorithms.losses.cispo import compute_cispo_loss
from turnwise.algorithms.losses.covariance import compute_clip_cov_loss, compute_kl_cov_loss
from turnwise.algorithms.losses.decoupled import compute_decoupled_ppo_loss
from turnwise.algorithms.losses.dppo import compute_dppo_kl_loss, compute_dppo_tv_loss
from turnwise.algorithms.losses.dual_clip import compute_dual_clip_loss
from turnwise.algorithms.losses.gmpo import compute_gmpo_loss
from turnwise.algorithms.losses.gspo import compute_gspo_loss, compute_gspo_token_loss
from turnwise.algorithms.losses.inputs import LossOutput
from turnwise.algorithms.losses.ppo_clip import clip_surrogate, compute_ppo_clip_loss, compute_ppo_loss
from turnwise.algorithms.losses.reinforce import compute_reinforce_loss
from turnwise.algorithms.losses.sapo import compute_sapo_loss
from turnwise.algorithms.losses.vespo import compute_vespo_loss
from turnwise.algorithms.ratios import compute_ratio, sum_over_sequence

HIGHER = {"clip_low": 0.2, "clip_high": 0.28}
NARROW = {"clip_low": 0.03, "clip_high": 0.04}


def clips(case: Case) -> dict[str, float]:
    """Clip distances by our names."""
    return {"clip_low": case.options["clip_ratio_low"], "clip_high": case.options["clip_ratio_high"]}


def output(losses_and_clipped: tuple[torch.Tensor, torch.Tensor]) -> LossOutput:
    """Of functions that return a pair."""
    return LossOutput(losses=losses_and_clipped[0], clipped=losses_and_clipped[1])


@compares(
    "verl/loss/ppo", "verl/loss/clip_higher", "verl/loss_extreme/ppo", ours=(compute_ppo_loss, compute_ppo_clip_loss)
)
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_ppo_loss(inputs, **clips(case)))
    check_loss(
        case, lambda i: output(compute_ppo_clip_loss(i.policy_logprobs, i.old_logprobs, i.advantages, **clips(case)))
    )


@compares("verl/loss/dual_clip", "verl/loss_extreme/dual_clip", ours=compute_dual_clip_loss)
def _(case: Case) -> None:
    check_loss(
        case, lambda inputs: compute_dual_clip_loss(inputs, **clips(case), dual_clip=case.options["clip_ratio_c"])
    )


@compares(
    "trl/loss/two_sided",
    ours=compute_dual_clip_loss,
    relation="equal: TRL's `delta` is our `dual_clip` while delta > 1 + clip_high",
)
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_dual_clip_loss(inputs, **HIGHER, dual_clip=case.options["delta"]))


@compares(
    "verl/loss/dppo_tv", ours=compute_dppo_tv_loss, relation="equal: the peer's old policy is our behavior policy"
)
def _(case: Case) -> None:
    delta = case.options["clip_ratio"]
    check_loss(
        case,
        lambda i: compute_dppo_tv_loss(i, delta_low=delta, delta_high=delta, max_ratio=case.options["clip_ratio_c"]),
    )


@compares(
    "verl/loss/dppo_kl", ours=compute_dppo_kl_loss, relation="equal: the peer's old policy is our behavior policy"
)
def _(case: Case) -> None:
    delta = case.options["clip_ratio"]
    check_loss(
        case,
        lambda i: compute_dppo_kl_loss(i, delta_low=delta, delta_high=delta, max_ratio=case.options["clip_ratio_c"]),
    )


@compares("verl/loss/gspo", ours=(compute_gspo_loss, compute_gspo_token_loss))
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_gspo_loss(inputs, **clips(case)))
    check_loss(case, lambda inputs: compute_gspo_token_loss(inputs, **clips(case)))


@compares("verl/loss/gspo_token", ours=compute_gspo_token_loss)
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_gspo_token_loss(inputs, **clips(case)))


@compares("trl/loss/gspo", ours=compute_gspo_loss)
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_gspo_loss(inputs, **NARROW), aggregation="sequence_mean")


@compares("trl/loss/luspo", ours=compute_gspo_loss, relation="equal: LUSPO is our GSPO with sequence_sum aggregation")
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_gspo_loss(inputs, **NARROW), aggregation="sequence_sum")


@compares("verl/loss/sapo", "verl/loss_extreme/sapo", "trl/loss/sapo", ours=compute_sapo_loss)
def _(case: Case) -> None:
    check_loss(
        case,
        lambda i: compute_sapo_loss(i, temperature_positive=1.0, temperature_negative=1.05),
        aggregation="sequence_mean",
    )


@compares("verl/loss/gpg", "verl/loss/reinforce", ours=compute_reinforce_loss)
def _(case: Case) -> None:
    check_loss(case, compute_reinforce_loss)


@compares(
    "verl/loss/dro",
    ours=(compute_reinforce_loss, compute_k2),
    relation="equal: DRO is REINFORCE plus beta k2 to the old policy",
)
def _(case: Case) -> None:
    beta = case.options["dro_beta"]

    def loss(inputs):
        plain = compute_reinforce_loss(inputs)
        return LossOutput(
            losses=plain.losses + beta * compute_k2(inputs.policy_logprobs, inputs.old_logprobs), clipped=plain.clipped
        )

    check_loss(case, loss)


@compares(
    "verl/loss/clip_cov",
    ours=compute_clip_cov_loss,
    relation="equal if all candidates are selected; the peer's random draw is not seeded",
)
def _(case: Case) -> None:
    low, high, share = (case.options[key] for key in ("clip_cov_lb", "clip_cov_ub", "clip_cov_ratio"))
    check_loss(
        case, lambda i: compute_clip_cov_loss(i, clip_low=0.2, clip_high=0.2, share=share, low=low, high=high, seed=0)
    )


@compares("verl/loss/kl_cov", ours=compute_kl_cov_loss)
def _(case: Case) -> None:
    share, coefficient = case.options["kl_cov_ratio"], case.options["ppo_kl_coef"]
    check_loss(case, lambda inputs: compute_kl_cov_loss(inputs, share=share, coefficient=coefficient))


@compares("verl/loss/gmpo", "trl/loss/gmpo", ours=compute_gmpo_loss)
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_gmpo_loss(inputs, clip_low=0.1, clip_high=0.1), aggregation="sequence_mean")


@compares(
    "verl/loss/cispo",
    "verl/loss_extreme/cispo",
    ours=compute_cispo_loss,
    relation="equal: the peer's lower distance 10 and our 1 both mean no lower bound",
)
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_cispo_loss(inputs, clip_low=1.0, clip_high=0.2))


@compares("verl/loss/cispo_two_sided", ours=compute_cispo_loss)
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_cispo_loss(inputs, **clips(case)))


@compares(
    "trl/loss/cispo",
    ours=compute_cispo_loss,
    relation="equal: TRL's epsilon_high 1.2 is the cap itself, our clip_high 0.2 the distance from 1",
)
def _(case: Case) -> None:
    check_loss(
        case, lambda inputs: compute_cispo_loss(inputs, clip_low=1.0, clip_high=case.options["epsilon_high"] - 1)
    )


@compares("trl/loss/vespo", ours=compute_vespo_loss)
def _(case: Case) -> None:
    check_loss(
        case,
        lambda i: compute_vespo_loss(i, power_positive=2.0, decay_positive=3.0, power_negative=3.0, decay_negative=2.0),
    )


@compares("verl/loss/decoupled_ppo/cap_2.0", "verl/loss/decoupled_ppo/cap_1.2", ours=compute_decoupled_ppo_loss)
def _(case: Case) -> None:
    cap = float(case.name.rpartition("_")[2])
    check_loss(
        case,
        lambda i: compute_decoupled_ppo_loss(i, clip_low=0.2, clip_high=0.2, max_weight=cap, weight_mode="truncate"),
        behavior="behavior_logprobs",
    )


@compares("trl/loss/grpo", ours=(compute_ppo_loss, compute_weights))
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_ppo_loss(inputs, **HIGHER), aggregation="sequence_mean")


@compares("trl/loss/dr_grpo", ours=(compute_ppo_loss, compute_weights))
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_ppo_loss(inputs, **HIGHER), aggregation="constant", constant=40)


@compares("trl/loss/dapo", "trl/loss/bnpo", ours=(compute_ppo_loss, compute_token_mean))
def _(case: Case) -> None:
    check_loss(case, lambda inputs: compute_ppo_loss(inputs, **HIGHER))
    inputs = pack_inputs(case.batch, advantages="token")
    assert_equal(
        compute_token_mean(compute_ppo_loss(inputs, **HIGHER).losses, case.batch.mask.sum()).item(),
        case.output("value"),
    )


@compares("trl/loss/rloo", ours=clip_surrogate, relation="equal, given the product of ratios over the sequence")
def _(case: Case) -> None:
    def loss(inputs):
        ratio = compute_ratio(sum_over_sequence(inputs.policy_logprobs - inputs.old_logprobs, inputs.sequence))
        return output(clip_surrogate(ratio, inputs.advantages, **HIGHER))

    check_loss(case, loss, aggregation="sequence_mean")


# ------------------------------------------------------------------------------------------------ divergences and
# entropy


@compares("trl/loss/kl_in_loss", "trl/loss/kl_unbiased", ours=compute_kl)
def _(case: Case) -> None:
    kind: KLKind = "k3_weighted" if case.options.get("use_bias_correction_kl") else "k3"
    reference = pack(case.batch, case.batch.reference_logprobs)

    def loss(inputs):
        policy = compute_ppo_loss(inputs, **HIGHER)
        penalty = compute_kl(kind, inputs.policy_logprobs, reference, old_logprobs=inputs.old_logprobs)
        return LossOutput(losses=policy.losses + case.options["beta"] * penalty, clipped=policy.clipped)

    check_loss(case, loss)


@compares(
    "verl/kl/k1",
    "verl/kl/k2",
    "verl/kl/k3",
    "verl/kl/k3+",
    ours=compute_kl,
    relation="equal; verl bounds k3 by 10, ours has no bound",
)
def _(case: Case) -> None:
    batch = case.batch
    kind = {"k3+": "k3_with_k2_gradient"}.get(case.options["kl_penalty"], case.options["kl_penalty"])
    logprobs = pack(batch, batch.policy_logprobs).requires_grad_()
    losses = compute_kl(kind, logprobs, pack(batch, batch.reference_logprobs))
    (gradient,) = torch.autograd.grad(losses.sum(), logprobs)
    assert_equal(unpack(batch, losses), case.output("losses"))
    assert_equal(unpack(batch, gradient), case.output("gradient"))


@compares("verl/kl/adaptive", ours=update_kl_coefficient)
def _(case: Case) -> None:
    options = case.options
    coefficient, coefficients = options["init_kl_coef"], []
    for measured in case.inputs["kl"]:
        coefficient = update_kl_coefficient(
            coefficient,
            measured,
            target=options["target_kl"],
            horizon=options["horizon"],
            num_samples=options["n_steps"],
        )
        coefficients.append(coefficient)
    assert_equal(coefficients, case.output("coefficients"))


@compares("trl/loss/entropy_bonus", ours=compute_entropy_loss)
def _(case: Case) -> None:
    def loss(inputs):
        policy = compute_ppo_loss(inputs, **HIGHER)
        bonus = compute_entropy_loss(inputs.entropy, coefficient=case.options["entropy_coef"])
        return LossOutput(losses=policy.losses + bonus, clipped=policy.clipped)

    check_loss(case, loss)


# ------------------------------------------------------------------------------------------------ corrections


def correct(case: Case, **options):
    """Our correction of the batch's mismatch between old and behavior policy."""
    inputs = pack_inputs(case.batch, advantages="row", behavior="behavior_logprobs")
    return compute_correction(inputs.old_logprobs, inputs.behavior_logprobs, inputs.sequence, **options)


@compares(
    *(f"verl/correction/{level}_{bounds}" for level in ("token", "sequence") for bounds in ("1.5", "0.5_1.5")),
    *(f"trl/correction/{level}_{mode}" for level in ("token", "sequence") for mode in ("truncate", "mask")),
    ours=compute_correction,
)
def _(case: Case) -> None:
    level = "token" if "/token" in case.name else "sequence"
    masks = case.name.endswith(("0.5_1.5", "mask"))
    correction = correct(case, mode="mask" if masks else "truncate", level=level, low=0.5 if masks else 0.0, high=1.5)
    assert_equal(unpack(case.batch, correction.weights), case.output("weights"))
    assert masks == bool((correction.weights == 0).any())


@compares(
    "verl/rejection/token_k1",
    "verl/rejection/seq_sum_k1",
    "verl/rejection/seq_mean_k1",
    ours=compute_correction,
    relation="verl's bounds lo_hi apply to behavior / old: equal to ours with bounds 1/hi and 1/lo",
)
def _(case: Case) -> None:
    low, high = (float(bound) for bound in case.options["rollout_rs_threshold"].split("_"))
    level = {"token_k1": "token", "seq_sum_k1": "sequence", "seq_mean_k1": "geometric"}[case.options["rollout_rs"]]
    correction = correct(case, mode="reject", level=level, low=1 / high, high=1 / low)
    assert_equal(unpack(case.batch, correction.keep), case.output("kept"))
    assert 0 < correction.keep.sum() < len(correction.keep)


@compares("trl/opsm", "trl/loss/opsm", ours=compute_off_policy_sequence_mask)
def _(case: Case) -> None:
    inputs = pack_inputs(case.batch, advantages="row", behavior="behavior_logprobs")
    correction = compute_off_policy_sequence_mask(
        inputs.policy_logprobs, inputs.behavior_logprobs, inputs.advantages, inputs.sequence, max_drift=0.1
    )
    assert 0 < correction.keep.sum() < len(correction.keep)
    if case.name == "trl/opsm":
        assert_equal(unpack(case.batch, correction.keep), case.output("kept"))
    else:
        check_loss(
            case,
            lambda i: LossOutput(
                losses=correction.weights * compute_ppo_loss(i, **HIGHER).losses, clipped=~correction.keep
            ),
        )


# ------------------------------------------------------------------------------------------------ aggregation


@compares(
    *(
        f"verl/aggregate/{mode}"
        for mode in ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
    ),
    ours=compute_weights,
    relation="equal; token-sum is our token_mean times its number of tokens",
)
def _(case: Case) -> None:
    mask = case.batch.mask.copy()
    mask[case.options["masked_row"]] = 0.0
    batch = replace(case.batch, mask=mask)
    name = case.options["loss_agg_mode"]
    modes: dict[str, Aggregation] = {
        "seq-mean-token-sum": "sequence_sum",
        "seq-mean-token-mean": "sequence_mean",
        "seq-mean-token-sum-norm": "constant",
    }
    mode = modes.get(name, "token_mean")
    scale = batch.mask.sum() if name == "token-sum" else 1.0
    inputs = pack_inputs(batch, advantages="token")
    weights = scale * weigh(inputs, mode, constant=case.options["loss_scale_factor"])
    assert_equal(unpack(batch, weights), case.output("weights"))
    assert_equal((weights * inputs.advantages).sum().item(), case.output("value"))
    assert np.unique(inputs.sequence.numpy()).size == len(batch.group) - 1
