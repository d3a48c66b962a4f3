"""Measure the quality of advantages: against the true ones, and as a gradient. Only the signals are trained here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laboratory.arms import Arm
from laboratory.crediting import Credited, CreditRun
from laboratory.exact import Values, compute_values
from laboratory.policy import (
    DECIDING,
    build_policy,
    compute_true_gradient,
    estimate_gradient,
    to_probabilities,
)
from laboratory.world import FloatArray, World
from turnwise.core.seeds import derive_seed

T_QUANTILES = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""97.5th percentile of Student's t for a mean of n numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditQuality:
    """One arm under one fixed policy; a field is None if no batch carried any signal."""

    correlation: float | None
    """Pearson correlation over turns between the deciding token's advantage and the true advantage of the turn."""
    cosine: float | None
    """Mean over batches of the cosine between the batch's gradient and the true one; a batch without gradient counts 0.
    """
    bias_cosine: float | None
    """Cosine between the mean gradient over all batches and the true one: below 1 through bias as batches grow."""
    noise: float | None
    """Trace of the covariance of the batch gradient, over the square of its mean's component along the true gradient,
    times sampled tokens per batch over 1000: the variance at equal tokens, whatever the method's scale. None if that
    component is not positive."""
    variance: float | None
    """Trace of the covariance over the squared norm of the mean gradient, per batch: noise whatever the direction."""
    tokens_per_batch: float


def compute_turn_correlation(batches: Sequence[Credited], values: Values) -> float | None:
    """Pooled over the sampled turns of all batches; None if either side is constant.

    A turn that several trajectories of a tree share counts once, with the sum of what its copies get: that is what
    trains it."""
    estimated, true = [], []
    for batch in batches:
        rows, turns = np.nonzero(batch.paths.taken)
        _, first, number = np.unique(batch.paths.turn_ids[rows, turns], return_index=True, return_inverse=True)
        estimated.append(np.bincount(number, weights=batch.advantages[:, DECIDING]))
        rows, turns = rows[first], turns[first]
        true.append(
            values.advantages[turns, batch.paths.states[rows, turns], batch.paths.tokens[rows, turns, DECIDING]]
        )
    return correlate(np.concatenate(estimated), np.concatenate(true))


def correlate(first: FloatArray, second: FloatArray) -> float | None:
    """Pearson correlation; None if a side varies by less than 1e-12."""
    first, second = first - first.mean(), second - second.mean()
    norms = math.sqrt(float((first**2).sum())), math.sqrt(float((second**2).sum()))
    if min(norms) < 1e-12 * math.sqrt(len(first)):
        return None
    return float((first * second).sum()) / (norms[0] * norms[1])


def measure_arm(
    world: World, arm: Arm, *, success: float, seed: int, num_batches: int, num_warmups: int
) -> CreditQuality:
    """Measure one arm under the policy `build_policy(world, success)` of this seed.

    Signals that learn see `num_warmups` batches first and continue to learn. All arms of a seed meet the same policy.
    """
    policy_rng = np.random.default_rng(derive_seed(seed, "policy", world.name, str(success)))
    tokens = to_probabilities(build_policy(world, success=success, rng=policy_rng))
    values = compute_values(world, tokens[:, DECIDING])
    rng = np.random.default_rng(derive_seed(seed, "measure", world.name, str(success), arm.name))
    run = CreditRun(world, arm, tokens, rng)
    for _ in range(num_warmups):
        run.sample(tokens, rng)
    batches = [run.sample(tokens, rng) for _ in range(num_batches)]
    gradients = np.stack([compute_batch_gradient(tokens, batch).ravel() for batch in batches])
    direction = compute_true_gradient(world, tokens, values).ravel()
    direction /= np.linalg.norm(direction)
    mean = gradients.mean(axis=0)
    trace = float(((gradients - mean) ** 2).sum() / (len(gradients) - 1))
    along, length = float(mean @ direction), float(np.linalg.norm(mean))
    norms = np.linalg.norm(gradients, axis=1)
    cosines = np.divide(gradients @ direction, norms, out=np.zeros_like(norms), where=norms > 0)
    tokens_per_batch = float(np.mean([batch.num_sampled_tokens for batch in batches]))
    return CreditQuality(
        correlation=compute_turn_correlation(batches, values),
        cosine=float(cosines.mean()) if length > 0 else None,
        bias_cosine=along / length if length > 0 else None,
        noise=trace / along**2 * tokens_per_batch / 1000 if along > 0 else None,
        variance=trace / length**2 if length > 0 else None,
        tokens_per_batch=tokens_per_batch,
    )


def compute_batch_gradient(tokens: FloatArray, batch: Credited) -> FloatArray:
    """`estimate_gradient` of a credited batch, `[S, 3, A]`."""
    taken = batch.paths.taken
    return estimate_gradient(tokens, batch.paths.states[taken], batch.paths.tokens[taken], batch.advantages, len(taken))


def compute_mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95% interval by Student's t (1.96 above ten values); a single value is its own interval. Raises
    ValueError for none."""
    if not values:
        raise ValueError("no values; a mean needs at least one")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, mean, mean
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half = T_QUANTILES.get(len(values), 1.96) * deviation / math.sqrt(len(values))
    return mean, mean - half, mean + half
