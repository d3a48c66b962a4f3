"""The parity gate: it passes equal scores and refuses others by cause; nothing is collected for a gate that passes."""

from collections.abc import Sequence

import numpy as np
import pytest

from turnwise.audit.parity_gate import check_parity
from turnwise.core.errors import TrainingError
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.training.parity import Evidence

LOGITS = np.random.default_rng(0).normal(size=(24, 6)) * 2
TOKENS = np.random.default_rng(1).integers(0, 6, 24)


def score(temperature: float) -> np.ndarray:
    """`[24]` log-probabilities of `TOKENS`."""
    scaled = LOGITS / temperature
    return (scaled - np.log(np.exp(scaled).sum(-1, keepdims=True)))[np.arange(24), TOKENS]


def make_samples(sampler: np.ndarray) -> list[Sample]:
    """Three samples of 8 sampled tokens after a prompt of one."""
    return [
        Sample(
            token_ids=to_ids([9, *tokens]),
            loss_mask=to_mask([False] + [True] * 8),
            behavior_logprobs=to_floats([0.0, *logprobs]),
            advantages=to_floats(np.zeros(9)),
            version_first=0,
            version_last=0,
            origin=Origin(trajectory=TrajectoryId(draw=draw, member=0), task_id="t"),
        )
        for draw, (tokens, logprobs) in enumerate(zip(TOKENS.reshape(3, 8), sampler.reshape(3, 8), strict=True))
    ]


def collect(samples: Sequence[Sample]) -> Evidence:
    return Evidence(
        sampler_logprobs=np.concatenate([sample.behavior_logprobs[sample.loss_mask] for sample in samples]),
        trainer_logprobs=score(1.0).astype(np.float32),
        logits=LOGITS,
        token_ids=TOKENS,
        sequence=np.repeat(np.arange(3), 8),
        turn=np.zeros(24, np.int64),
        lengths=np.full(3, 9),
        temperature=1.0,
    )


def refuse_to_collect(samples: Sequence[Sample]) -> Evidence:
    raise AssertionError("a gate that passes needs no evidence")


def refuse_exact(samples: Sequence[Sample]) -> list[np.ndarray]:
    raise AssertionError("a gate within its bound, or of float32, needs no exact scores")


def test_equal_scores_pass() -> None:
    trainer = list(score(1.0).reshape(3, 8))
    parity = check_parity(
        make_samples(score(1.0)), trainer, step=0, dtype="float32", collect=refuse_to_collect, score_exact=refuse_exact
    )
    assert parity.num_tokens == 24
    assert parity.max < 1e-6, "float32 of numbers up to 10"


def test_other_scores_are_refused_by_their_cause() -> None:
    with pytest.raises(
        TrainingError,
        match=r"parity gate before step 8: .* the same 24 tokens .*float32 explains.*Cause: temperature: ",
    ):
        check_parity(
            make_samples(score(0.5)),
            list(score(1.0).reshape(3, 8)),
            step=7,
            dtype="float32",
            collect=collect,
            score_exact=refuse_exact,
        )


def test_what_half_precision_explains_passes_there_only() -> None:
    samples, trainer = make_samples(score(1.0)), [part + 0.01 for part in score(1.0).reshape(3, 8)]
    assert (
        check_parity(
            samples, trainer, step=0, dtype="bfloat16", collect=refuse_to_collect, score_exact=refuse_exact
        ).mean
        > 0.009
    )
    with pytest.raises(TrainingError, match="parity gate before step 1"):
        check_parity(samples, trainer, step=0, dtype="float32", collect=collect, score_exact=refuse_exact)


def test_without_a_token_there_is_nothing_to_compare() -> None:
    with pytest.raises(TrainingError, match="no token could be sampled"):
        check_parity([], [], step=0, dtype="float32", collect=refuse_to_collect, score_exact=refuse_exact)


NOISE = np.random.default_rng(2).choice([-0.03, 0.03], 24)


def check_in_bfloat16(sampler: np.ndarray, *, exact: np.ndarray) -> float:
    """The mean gap that passes; the trainer's scores are those of `collect`."""
    return check_parity(
        make_samples(sampler),
        list(score(1.0).reshape(3, 8)),
        step=0,
        dtype="bfloat16",
        collect=collect,
        score_exact=lambda samples: list(exact.reshape(3, 8)),
    ).mean


def test_half_precision_may_be_twice_as_far_apart_as_the_trainer_is_from_float32() -> None:
    """The trainer is 0.03 from the exact scores everywhere, so 0.06 is allowed: 0.05 passes and 0.07 does not."""
    exact = score(1.0) + NOISE
    assert check_in_bfloat16(score(1.0) + NOISE * 5 / 3, exact=exact) == pytest.approx(0.05, abs=1e-6)
    with pytest.raises(TrainingError, match=r"0.07 nats apart .* bfloat16 explains 0.06 and 1\."):
        check_in_bfloat16(score(1.0) + NOISE * 7 / 3, exact=exact)


def test_a_cause_found_is_refused_however_coarse_the_rounding() -> None:
    with pytest.raises(TrainingError, match="Cause: temperature"):
        check_in_bfloat16(score(0.9), exact=score(1.0) + 1.0)


def test_rounding_that_is_not_finite_widens_nothing() -> None:
    with pytest.raises(TrainingError, match=r"bfloat16 explains 0\.02 and 1\."):
        check_in_bfloat16(score(1.0) + NOISE, exact=np.full(24, np.nan))
