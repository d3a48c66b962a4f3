"""Parity of sampler and trainer: measures how far their scores of the same tokens differ, and why.

`compute_parity` measures, `diagnose` names the cause: pure functions on arrays. `collect_evidence` is the small driver
that lets the trainer score what an engine sampled. The run decides what happens then.

A difference at identical weights is always a defect or arithmetic, never learning: the importance ratios of the first
update would be wrong by it. `Cause` lists the causes that are distinguished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.batching.collate import collate
from turnwise.core.types import Sample
from turnwise.models.attention import PackedAttention
from turnwise.models.forward import PlanAttention, compute_logits
from turnwise.training.forward import replay_experts, to_runs

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]

Cause = Literal[
    "none",
    "temperature",
    "top_p",
    "end_token",
    "shifted",
    "stale_weights",
    "template",
    "padding_side",
    "dtype",
    "not_finite",
    "unknown",
]

MAX_LOG_RATIO = 20.0
SHARE_LEFT = 0.1
"""An explanation counts if it leaves at most this share of the mean difference (or brings it below the bound)."""
TEMPERATURES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0)
TOP_PS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Largest differences that still count as equal, in nats per token."""

    mean: float
    max: float


BOUNDS: Mapping[str, Bound] = {
    "float64": Bound(mean=2e-6, max=2e-5),
    "float32": Bound(mean=1e-5, max=2e-4),
    "bfloat16": Bound(mean=2e-2, max=1.0),
    "float16": Bound(mean=5e-3, max=0.25),
}
"""Bounds by the model's dtype. Log-probabilities are kept in float32, so for float64 weights its rounding remains:
2^-24 of up to 20 nats."""

HALF_FORMATS = frozenset({"bfloat16", "float16"})
"""Formats whose rounding varies between models too much for a constant bound: see `widen`."""

ROUNDINGS: Mapping[str, float] = {"float16": 2.0**-10, "bfloat16": 2.0**-5}
"""Largest difference that computing in the format explains, in units of the largest logit: several of its half-steps
(2^-12 and 2^-9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How far trainer and sampler differ on `num_tokens` tokens."""

    num_tokens: int
    mean: float
    """Mean |trainer - sampler|, nats; NaN without tokens."""
    max: float
    """Largest difference in nats; 0 without tokens, inf if one is not finite."""
    k3: float
    """Mean of exp(d) - d - 1 with d = trainer - sampler: the k3 estimate of KL(sampler || trainer), nats (Schulman
    2020)."""
    effective_share: float
    """Effective sample size (sum w)^2 / sum w^2 of the ratios w = exp(d), over the number of tokens: 1 when nothing
    differs."""

    def within(self, bound: Bound) -> bool:
        """Return whether both limits hold; True without tokens."""
        return self.num_tokens == 0 or (self.mean <= bound.mean and self.max <= bound.max)


def compute_parity(trainer_logprobs: Floats, sampler_logprobs: Floats) -> Parity:
    """Compare two scores `[K]` of the same tokens, which the sampler drew. d is clamped to +-20 before exp.

    Raises ValueError when the lengths differ.
    """
    trainer, sampler = np.asarray(trainer_logprobs, np.float64), np.asarray(sampler_logprobs, np.float64)
    if trainer.shape != sampler.shape:
        raise ValueError(
            f"the trainer scored {trainer.shape} tokens, the sampler {sampler.shape}; pass both scores for the same "
            "tokens"
        )
    if not len(trainer):
        return Parity(num_tokens=0, mean=float("nan"), max=0.0, k3=0.0, effective_share=1.0)
    gap = trainer - sampler
    if not np.isfinite(gap).all():
        return Parity(num_tokens=len(gap), mean=float("inf"), max=float("inf"), k3=float("inf"), effective_share=0.0)
    bounded = gap.clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = np.exp(bounded)
    return Parity(
        num_tokens=len(gap),
        mean=float(np.abs(gap).mean()),
        max=float(np.abs(gap).max()),
        k3=float((np.expm1(bounded) - bounded).mean()),
        effective_share=float(ratio.sum() ** 2 / (len(ratio) * np.square(ratio).sum())),
    )


def widen(bound: Bound, trainer_logprobs: Floats, exact_logprobs: Floats) -> Bound:
    """Return the bound that the rounding of this model explains; never narrower than `bound`.

    `exact_logprobs` `[K]` are those of the trainer's weights computed in float32. If the trainer is e nats away from
    them on average and the sampler computes as well as the trainer, the two are at most 2 e apart (triangle
    inequality). Returns `bound` if a score is not finite.
    """
    own = compute_parity(trainer_logprobs, exact_logprobs)
    if not np.isfinite(own.mean):
        return bound
    return Bound(mean=max(bound.mean, 2 * own.mean), max=max(bound.max, 2 * own.max))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Input of a diagnosis.

    K sampled tokens in S sequences over a vocabulary of V, in order of sequence and position.
    """

    sampler_logprobs: Floats
    """`[K]` log-probabilities recorded at sampling."""
    trainer_logprobs: Floats
    """`[K]` log-probabilities computed by the trainer."""
    logits: Floats
    """`[K, V]` logits of the trainer, at temperature 1."""
    token_ids: Ints
    """`[K]`."""
    sequence: Ints
    """`[K]` index of the sequence."""
    turn: Ints
    """`[K]` index of the turn in its trajectory."""
    lengths: Ints
    """`[S]` tokens per sequence, context included."""
    temperature: float
    """The recipe's temperature."""
    end_token_ids: tuple[int, ...] = ()
    """Tokens that end a reply, including the padding token if it is one of them."""
    alternatives: Mapping[Cause, Floats] = field(default_factory=dict)
    """`[K]` further scores of the trainer, each under one changed condition ("stale_weights": older weights; "dtype":
    another dtype)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The cause that was found, and the remedy."""

    cause: Cause
    text: str


def diagnose(evidence: Evidence, bound: Bound) -> Diagnosis:
    """Return the first cause that explains the difference.

    Under that cause the scores agree, or differ only where it predicts. Exact explanations come first (another
    temperature, a truncated distribution or other weights reproduce the sampler's numbers), then those recognised by
    where the differences are, rounding last.
    """
    parity = compute_parity(evidence.trainer_logprobs, evidence.sampler_logprobs)
    if parity.within(bound):
        return Diagnosis(
            cause="none", text=f"mean difference {parity.mean:.2g}, largest {parity.max:.2g} nats: within the bound"
        )
    for find in (_find_not_finite, _find_end_token, _find_temperature, _find_top_p, _find_alternative, _find_shift):
        if (diagnosis := find(evidence, bound)) is not None:
            return diagnosis
    for look in (_find_template, _find_padding, _find_rounding):
        if (diagnosis := look(evidence, bound)) is not None:
            return diagnosis
    return Diagnosis(
        cause="unknown",
        text=(
            "no single cause explains it; compare the model code of both sides, their rotary settings and their "
            "attention"
        ),
    )


def _explains(trainer: Floats, evidence: Evidence, bound: Bound) -> bool:
    """Return whether these scores agree with the sampler's: within the bound, or with little of the mean difference
    left."""
    after = compute_parity(trainer, evidence.sampler_logprobs)
    before = compute_parity(evidence.trainer_logprobs, evidence.sampler_logprobs)
    return after.within(bound) or after.mean <= SHARE_LEFT * min(before.mean, 1.0)


def _apart(evidence: Evidence, bound: Bound) -> NDArray[np.bool_]:
    """Return a mask `[K]` of tokens that differ by more than rounding."""
    return np.asarray(~(np.abs(evidence.trainer_logprobs - evidence.sampler_logprobs) <= bound.max))


def _log_softmax(logits: Floats) -> NDArray[np.float64]:
    wide = np.asarray(logits, np.float64)
    wide = wide - wide.max(-1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(-1, keepdims=True)))


def _select(distribution: Floats, token_ids: Ints) -> Floats:
    return np.asarray(np.take_along_axis(distribution, np.asarray(token_ids, np.int64)[:, None], axis=-1)[:, 0])


def _find_not_finite(evidence: Evidence, bound: Bound) -> Diagnosis | None:
    for side, values in (("trainer", evidence.trainer_logprobs), ("sampler", evidence.sampler_logprobs)):
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong) and not np.isin(evidence.token_ids[wrong], evidence.end_token_ids).all():
            text = (
                f"{len(wrong)} log-probabilities of the {side} are not finite; its weights or its arithmetic "
                "have diverged"
            )
            return Diagnosis(cause="not_finite", text=text)
    return None


def _find_end_token(evidence: Evidence, bound: Bound) -> Diagnosis | None:
    apart = _apart(evidence, bound)
    ends = np.isin(evidence.token_ids, evidence.end_token_ids)
    if not apart.any() or (apart & ~ends).any() or not (~ends).any():
        return None
    return Diagnosis(
        cause="end_token",
        text=f"only tokens that end a reply differ ({int(apart.sum())} of {int(ends.sum())}), the others agree: one "
        "side masks or ignores them, as happens where the padding token is the end token and a loss ignores padding; "
        "mask by position, not by token id",
    )


def _find_temperature(evidence: Evidence, bound: Bound) -> Diagnosis | None:
    for temperature in TEMPERATURES:
        if temperature == evidence.temperature:
            continue
        scores = _select(_log_softmax(evidence.logits / temperature), evidence.token_ids)
        if _explains(scores, evidence, bound):
            return Diagnosis(
                cause="temperature",
                text=f"the sampler's numbers are those of temperature {temperature:g}, the recipe says "
                f"{evidence.temperature:g}: one side ignores it; log-probabilities must be taken after the "
                "temperature, on both sides",
            )
    return None


def _find_top_p(evidence: Evidence, bound: Bound) -> Diagnosis | None:
    full = _log_softmax(evidence.logits / evidence.temperature)
    order = np.argsort(-full, axis=-1, kind="stable")
    ordered = np.exp(np.take_along_axis(full, order, axis=-1))
    before = np.cumsum(ordered, axis=-1) - ordered
    rank = np.argmax(order == np.asarray(evidence.token_ids)[:, None], axis=-1)
    sampled = _select(full, evidence.token_ids)
    for top_p in TOP_PS:
        kept = before < top_p
        scores = np.where(kept[np.arange(len(rank)), rank], sampled - np.log((ordered * kept).sum(-1)), -np.inf)
        if np.isfinite(scores).all() and _explains(scores, evidence, bound):
            return Diagnosis(
                cause="top_p",
                text=f"the sampler's numbers are those of a distribution cut at top_p={top_p:g} and renormalised, the "
                "trainer scores the whole one; sample for training with top_p=1",
            )
    return None


def _find_alternative(evidence: Evidence, bound: Bound) -> Diagnosis | None:
    texts: Mapping[str, str] = {
        "stale_weights": (
            "the sampler's numbers are those of older weights: it did not adopt the last update, or kept a cache of "
            "before it"
        ),
        "dtype": (
            "the sampler's numbers are those of weights in another dtype; use one dtype on both sides, or "
            "loss.correction"
        ),
    }
    for cause, scores in evidence.alternatives.items():
        if _explains(scores, evidence, bound):
            return Diagnosis(
                cause=cause, text=texts.get(cause, f"the sampler's numbers are those of the condition {cause!r}")
            )
    return None


def _find_shift(evidence: Evidence, bound: Bound) -> Diagnosis | None:
    if len(evidence.sampler_logprobs) < 4:
        return None
    for shift in (-1, 1):
        inside = np.roll(evidence.sequence, shift) == evidence.sequence
        inside[-1 if shift < 0 else 0] = False
        moved = np.roll(evidence.trainer_logprobs, shift)[inside]
        if inside.sum() >= 3 and compute_parity(moved, evidence.sampler_logprobs[inside]).within(bound):
            text = (
                f"the scores agree when one side is moved by {-shift:+d} position; logits at position i predict "
                "token i + 1"
            )
            return Diagnosis(cause="shifted", text=text)
    return None


def _find_template(evidence: Evidence, bound: Bound) -> Diagnosis | None:
    apart = _apart(evidence, bound)
    later = np.asarray(evidence.turn) > 0
    if not later.any() or not (~later).any() or (apart & ~later).any() or apart[later].mean() < 0.5:
        return None
    return Diagnosis(
        cause="template",
        text="first turns agree and later turns do not: the sampler saw another history than the trainer, as with a "
        "chat template that rewrites earlier turns (stripped thinking, re-serialised calls); append token ids, never "
        "render again",
    )


def _find_padding(evidence: Evidence, bound: Bound) -> Diagnosis | None:
    apart = _apart(evidence, bound)
    lengths = np.asarray(evidence.lengths)
    longest = (lengths == lengths.max())[np.asarray(evidence.sequence, np.int64)]
    if longest.all() or (apart & longest).any() or apart[~longest].mean() < 0.5:
        return None
    return Diagnosis(
        cause="padding_side",
        text="the longest sequences agree and all shorter ones do not: padding shifts positions or is attended to on "
        "one side; use packed sequences, or position ids and a mask that leave padding out",
    )


def _find_rounding(evidence: Evidence, bound: Bound) -> Diagnosis | None:
    """Recognise differences without direction that are at most a few of the format's roundings at the largest logit."""
    gap = np.asarray(evidence.trainer_logprobs, np.float64) - np.asarray(evidence.sampler_logprobs, np.float64)
    largest = float(np.abs(evidence.logits).max(initial=1.0))
    biased = abs(float(gap.mean())) > 0.5 * float(np.abs(gap).mean())
    for dtype, most in ROUNDINGS.items():
        if not biased and np.abs(gap).max() <= most * largest / evidence.temperature:
            return Diagnosis(
                cause="dtype",
                text=f"the differences are small, without direction, and of the size of {dtype} rounding (largest "
                f"{np.abs(gap).max():.2g} at logits up to {largest:.3g}): one side computes in lower precision; use "
                "one dtype on both, or loss.correction",
            )
    return None


@torch.no_grad()
def collect_evidence(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    *,
    temperature: float,
    end_token_ids: Sequence[int] = (),
    attention: PlanAttention = PackedAttention,
    shared_prefix: bool = False,
) -> Evidence:
    """Let the trainer's model score the trained tokens of `samples`, which an engine sampled under the same weights.

    `shared_prefix` lays the samples out as in a training step with this option. `attention` builds the plan from the
    runs: `models.invariant.InvariantAttention` scores in exact mode, where an engine with invariant rows (float32, CPU,
    one thread) agrees in every bit, prefixes shared or not. Memory: K x V float32, so pass few samples. Raises
    ValueError without samples.
    """
    batch = collate(samples, model.device, shared_prefix=shared_prefix)
    logits, _ = compute_logits(
        model, to_runs(batch), batch.predict_at, routing=replay_experts(batch), attention=attention
    )
    logits = logits.float()[batch.row]
    chosen = (logits / temperature).log_softmax(-1).gather(-1, batch.targets[:, None])[:, 0]
    counts = [int(sample.loss_mask.sum()) for sample in samples]
    return Evidence(
        sampler_logprobs=batch.behavior_logprobs.cpu().numpy(),
        trainer_logprobs=chosen.cpu().numpy(),
        logits=logits.cpu().numpy(),
        token_ids=batch.targets.cpu().numpy(),
        sequence=np.repeat(np.arange(len(samples)), counts),
        turn=np.concatenate([_turn_numbers(sample) for sample in samples]),
        lengths=np.array([len(sample.token_ids) for sample in samples]),
        temperature=temperature,
        end_token_ids=tuple(end_token_ids),
    )


def _turn_numbers(sample: Sample) -> Ints:
    """Return `[K_i]`: the index of each trained token's reply, counted along the sample."""
    starts = np.flatnonzero(np.diff(np.concatenate([[0], sample.loss_mask.astype(np.int8)])) == 1)
    trained = np.flatnonzero(sample.loss_mask)
    return np.asarray(np.searchsorted(starts, trained, side="right") - 1)
