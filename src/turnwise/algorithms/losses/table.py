"""All policy losses by name: what they are, their defaults, and which combinations make no sense."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from turnwise.algorithms.aggregate import Aggregation
from turnwise.algorithms.losses.cispo import compute_cispo_loss
from turnwise.algorithms.losses.covariance import compute_clip_cov_loss, compute_kl_cov_loss
from turnwise.algorithms.losses.decoupled import compute_decoupled_ppo_loss
from turnwise.algorithms.losses.dppo import compute_dppo_kl_loss, compute_dppo_tv_loss
from turnwise.algorithms.losses.dual_clip import compute_dual_clip_loss
from turnwise.algorithms.losses.gmpo import compute_gmpo_loss
from turnwise.algorithms.losses.gspo import compute_gspo_loss, compute_gspo_token_loss
from turnwise.algorithms.losses.inputs import LossFunction, LossInputs, LossOutput
from turnwise.algorithms.losses.ppo_clip import compute_ppo_loss
from turnwise.algorithms.losses.reinforce import compute_reinforce_loss
from turnwise.algorithms.losses.sapo import compute_sapo_loss
from turnwise.algorithms.losses.vespo import compute_vespo_loss

OptionValue = float | int | str
Anchor = Literal["old", "behavior", "both", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossMethod:
    """One row of the table."""

    name: str
    summary: str
    formula: str
    """Per token, to be minimised. `u = policy / old`, `s` its geometric mean over the sequence, `mu` the behavior, `sg`
    stop-gradient."""
    paper: str
    defaults: Mapping[str, OptionValue]
    level: Literal["token", "sequence"]
    """Whether a token's loss reads its own token alone or its whole sequence."""
    default_aggregation: Aggregation
    anchor: Anchor
    """Which log-probabilities besides the policy's are read: they must exist, and they decide which corrections make
    sense."""
    function: Callable[..., LossOutput]
    batch_rule: bool = False
    """Ranks tokens against each other: give `LossInputs.selected` from the whole step's batch, or the split into
    micro-batches matters."""

    def build(self, **options: OptionValue) -> LossFunction:
        """The loss with its defaults and these options; nothing is checked (`build_loss` does)."""
        return partial(self.function, **{**self.defaults, **options})


_PPO = "max(-u A, -clip(u, 1-clip_low, 1+clip_high) A)"
_CLIP: dict[str, OptionValue] = {"clip_low": 0.2, "clip_high": 0.2}
_CLIP_HIGHER: dict[str, OptionValue] = {"clip_low": 0.2, "clip_high": 0.28}
_GSPO_CLIP: dict[str, OptionValue] = {"clip_low": 3e-4, "clip_high": 4e-4}

LOSSES: dict[str, LossMethod] = {
    method.name: method
    for method in (
        LossMethod(
            name="ppo",
            summary="Pessimistic clipped surrogate.",
            formula=_PPO,
            paper="arXiv 1707.06347",
            defaults=_CLIP,
            level="token",
            default_aggregation="token_mean",
            anchor="old",
            function=compute_ppo_loss,
        ),
        LossMethod(
            name="clip_higher",
            summary="PPO with more room above: rare good tokens may grow.",
            formula=_PPO,
            paper="arXiv 2503.14476",
            defaults=_CLIP_HIGHER,
            level="token",
            default_aggregation="token_mean",
            anchor="old",
            function=compute_ppo_loss,
        ),
        LossMethod(
            name="dual_clip",
            summary="PPO whose loss is bounded for bad tokens with huge ratios.",
            formula=f"A < 0: min({_PPO}, -dual_clip A)",
            paper="arXiv 1912.09729",
            defaults={**_CLIP, "dual_clip": 3.0},
            level="token",
            default_aggregation="token_mean",
            anchor="old",
            function=compute_dual_clip_loss,
        ),
        LossMethod(
            name="grpo",
            summary="PPO's surrogate, mean over sequences of token means (add a k3 term for the paper's KL).",
            formula=_PPO,
            paper="arXiv 2402.03300",
            defaults=_CLIP,
            level="token",
            default_aggregation="sequence_mean",
            anchor="old",
            function=compute_ppo_loss,
        ),
        LossMethod(
            name="dr_grpo",
            summary=(
                "PPO's surrogate, token sums over a constant divisor: no length bias (advantages without deviation)."
            ),
            formula=_PPO,
            paper="arXiv 2503.20783",
            defaults=_CLIP,
            level="token",
            default_aggregation="constant",
            anchor="old",
            function=compute_ppo_loss,
        ),
        LossMethod(
            name="dapo",
            summary="Clip-higher with a mean over all tokens and no KL.",
            formula=_PPO,
            paper="arXiv 2503.14476",
            defaults=_CLIP_HIGHER,
            level="token",
            default_aggregation="token_mean",
            anchor="old",
            function=compute_ppo_loss,
        ),
        LossMethod(
            name="gspo",
            summary="One geometric-mean ratio per sequence, clipped per sequence.",
            formula="max(-s A, -clip(s, 1-clip_low, 1+clip_high) A)",
            paper="arXiv 2507.18071",
            defaults=_GSPO_CLIP,
            level="sequence",
            default_aggregation="sequence_mean",
            anchor="old",
            function=compute_gspo_loss,
        ),
        LossMethod(
            name="gspo_token",
            summary="GSPO's ratio with each token's own gradient: for advantages that differ inside a sequence.",
            formula="max(-s' A, -clip(s', 1-clip_low, 1+clip_high) A), s' = sg(s) policy / sg(policy)",
            paper="arXiv 2507.18071",
            defaults=_GSPO_CLIP,
            level="sequence",
            default_aggregation="sequence_mean",
            anchor="old",
            function=compute_gspo_token_loss,
        ),
        LossMethod(
            name="luspo",
            summary="GSPO with token sums per sequence: undoes its length normalisation.",
            formula="max(-s A, -clip(s, 1-clip_low, 1+clip_high) A)",
            paper="arXiv 2602.05261",
            defaults=_GSPO_CLIP,
            level="sequence",
            default_aggregation="sequence_sum",
            anchor="old",
            function=compute_gspo_loss,
        ),
        LossMethod(
            name="cispo",
            summary="Clips the weight, never the token: every token keeps a gradient.",
            formula="-sg(clip(u, 1-clip_low, 1+clip_high)) A log policy",
            paper="arXiv 2506.13585",
            defaults={"clip_low": 1.0, "clip_high": 4.0},
            level="token",
            default_aggregation="token_mean",
            anchor="old",
            function=compute_cispo_loss,
        ),
        LossMethod(
            name="sapo",
            summary="A sigmoid gate instead of a clip.",
            formula="-A (4 / tau) sigmoid(tau (u - 1)), tau by the sign of A",
            paper="arXiv 2511.20347",
            defaults={"temperature_positive": 1.0, "temperature_negative": 1.05},
            level="token",
            default_aggregation="sequence_mean",
            anchor="old",
            function=compute_sapo_loss,
        ),
        LossMethod(
            name="gmpo",
            summary="Geometric mean of token ratios that are clipped in log space.",
            formula="-A exp(mean c), c = pessimistic clip of log u to [-clip_low, clip_high]",
            paper="arXiv 2507.20673",
            defaults={"clip_low": 0.4, "clip_high": 0.4},
            level="sequence",
            default_aggregation="sequence_mean",
            anchor="old",
            function=compute_gmpo_loss,
        ),
        LossMethod(
            name="dppo_tv",
            summary="Trust region on the change in probability, against the behavior policy.",
            formula=(
                "-A sg(min(policy/mu, max_ratio)) log policy, 0 where policy - mu left [-delta_low, delta_high] "
                "with A's sign"
            ),
            paper="arXiv 2602.04879",
            defaults={"delta_low": 0.15, "delta_high": 0.15, "max_ratio": 20.0},
            level="token",
            default_aggregation="token_mean",
            anchor="behavior",
            function=compute_dppo_tv_loss,
        ),
        LossMethod(
            name="dppo_kl",
            summary="Trust region on the binary KL, against the behavior policy.",
            formula=(
                "-A sg(min(policy/mu, max_ratio)) log policy, 0 where KL(mu, policy) > delta and the token "
                "moved with A's sign"
            ),
            paper="arXiv 2602.04879",
            defaults={"delta_low": 0.05, "delta_high": 0.05, "max_ratio": 20.0},
            level="token",
            default_aggregation="token_mean",
            anchor="behavior",
            function=compute_dppo_kl_loss,
        ),
        LossMethod(
            name="decoupled_ppo",
            summary="Clips around a proximal policy, weighs by proximal / behavior: for stale samples.",
            formula=f"sg(old/mu) {_PPO}, dropped (mask) or capped (truncate) above max_weight",
            paper="arXiv 2505.24298",
            defaults={**_CLIP, "max_weight": 5.0, "weight_mode": "mask"},
            level="token",
            default_aggregation="token_mean",
            anchor="both",
            function=compute_decoupled_ppo_loss,
        ),
        LossMethod(
            name="clip_cov",
            summary="PPO without gradient on a few random tokens of high covariance: holds entropy up.",
            formula=f"{_PPO}, 0 on a random `share` of tokens with covariance in (low, high)",
            paper="arXiv 2505.22617",
            defaults={"clip_low": 1.0, "clip_high": 1.0, "share": 2e-4, "low": 1.0, "high": 5.0, "seed": 0},
            level="token",
            default_aggregation="token_mean",
            anchor="old",
            function=compute_clip_cov_loss,
            batch_rule=True,
        ),
        LossMethod(
            name="kl_cov",
            summary="Penalises moving the tokens of highest covariance: holds entropy up.",
            formula="-u A + coefficient |log u| on the top `share` of tokens by covariance",
            paper="arXiv 2505.22617",
            defaults={"share": 0.002, "coefficient": 1.0},
            level="token",
            default_aggregation="token_mean",
            anchor="old",
            function=compute_kl_cov_loss,
            batch_rule=True,
        ),
        LossMethod(
            name="vespo",
            summary="Soft weight of the whole sequence's ratio to the behavior policy.",
            formula=(
                "-sg(W^power exp(decay (1 - W))) A log policy, W = product of policy/mu, powers and decays by "
                "the sign of A"
            ),
            paper="arXiv 2602.10693",
            defaults={"power_positive": 2.0, "decay_positive": 3.0, "power_negative": 3.0, "decay_negative": 2.0},
            level="sequence",
            default_aggregation="token_mean",
            anchor="behavior",
            function=compute_vespo_loss,
        ),
        LossMethod(
            name="gpg",
            summary="Policy gradient without ratio or clip, mean over all tokens.",
            formula="-A log policy",
            paper="arXiv 2504.02546",
            defaults={},
            level="token",
            default_aggregation="token_mean",
            anchor="none",
            function=compute_reinforce_loss,
        ),
        LossMethod(
            name="reinforce",
            summary="Policy gradient of whole sequences: token log-probabilities are summed.",
            formula="-A log policy",
            paper="Williams 1992",
            defaults={},
            level="token",
            default_aggregation="sequence_sum",
            anchor="none",
            function=compute_reinforce_loss,
        ),
    )
}


def build_loss(
    name: str,
    options: Mapping[str, OptionValue] | None = None,
    *,
    corrected: bool = False,
    old_is_behavior: bool | None = None,
) -> LossFunction:
    """The loss of that name, with every option checked before training starts.

    Args:
        name: a key of `LOSSES`.
        options: overrides of its defaults; None for none.
        corrected: whether losses will be multiplied by old / behavior weights (`corrections.compute_correction`).
        old_is_behavior: whether `old_logprobs` are the sampler's instead of recomputed ones; None when not known.

    Raises:
        ValueError: unknown name or option (the nearest is named), a value of the wrong type or out of range, or a
        combination that
            cannot mean anything, with the reason.
    """
    if name not in LOSSES:
        raise ValueError(f"loss {name!r} is unknown{_nearest(name, LOSSES)}; known: {', '.join(LOSSES)}")
    method = LOSSES[name]
    given = dict(options or {})
    for key, value in given.items():
        if key not in method.defaults:
            known = ", ".join(method.defaults) or "none"
            raise ValueError(
                f"loss {name!r} has no option {key!r}{_nearest(key, method.defaults)}; its options: {known}"
            )
        _check_type(name, key, value, method.defaults[key])
    _check_combination(method, corrected, old_is_behavior)
    loss = method.build(**given)
    token = torch.zeros(1)
    # Every loss checks its own ranges when it is called; one token makes it do so now.
    loss(
        LossInputs(
            policy_logprobs=token, old_logprobs=token, behavior_logprobs=token, advantages=token, sequence=token.long()
        )
    )
    return loss


def _nearest(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _check_type(name: str, key: str, value: object, default: OptionValue) -> None:
    kinds: tuple[type, ...] = (
        (str,) if isinstance(default, str) else (int,) if isinstance(default, int) else (int, float)
    )
    if isinstance(value, bool) or not isinstance(value, kinds) or value != value:
        wanted = "a text" if kinds == (str,) else "a whole number" if kinds == (int,) else "a number"
        raise ValueError(f"loss {name!r}: option {key!r} is {value!r}; it must be {wanted} (default {default!r})")


def _check_combination(method: LossMethod, corrected: bool, old_is_behavior: bool | None) -> None:
    if corrected and method.anchor in ("behavior", "both"):
        raise ValueError(
            f"loss {method.name!r} already weighs by the behavior policy; an importance correction on top would "
            "count the "
            "sampler-trainer mismatch twice. Switch the correction off, or choose a loss anchored at the old policy"
        )
    if corrected and old_is_behavior:
        raise ValueError(
            f"loss {method.name!r} with an importance correction: the old log-probabilities are the sampler's own, "
            "so old / behavior is 1 "
            "everywhere, and a correction recomputed elsewhere would count the mismatch twice (the ratio already "
            "contains it). "
            "Recompute old log-probabilities with the trainer, or switch the correction off"
        )
    if method.anchor == "both" and old_is_behavior:
        raise ValueError(
            f"loss {method.name!r} needs old log-probabilities that differ from the behavior's; where they are the "
            "same it is plain 'ppo'. "
            "Recompute old log-probabilities with the trainer, or use 'ppo'"
        )
