"""A policy as a table of logits, and the gradient of a batch. A turn is three tokens, of which the middle one decides.

The other two are wording: the policy chooses and trains them, but nothing depends on them. Credit that is spread over a
turn reaches them too; their true gradient is 0."""

from __future__ import annotations

import numpy as np

from laboratory.exact import Values, compute_gradient, compute_success, compute_values
from laboratory.world import FloatArray, IntArray, World

TOKENS_PER_TURN = 3
DECIDING = 1
"""Position of the token that is the action."""


def to_probabilities(logits: FloatArray) -> FloatArray:
    """Softmax over the last axis: `[S, 3, A]` logits to token probabilities."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), dtype=np.float64)


def compute_true_gradient(world: World, tokens: FloatArray, values: Values) -> FloatArray:
    """dJ / d logits, `[S, 3, A]`: `compute_gradient` at the deciding position, 0 at the others."""
    gradient = np.zeros_like(tokens)
    gradient[:, DECIDING] = compute_gradient(world, tokens[:, DECIDING], values)
    return gradient


def estimate_gradient(
    tokens: FloatArray, states: IntArray, sampled: IntArray, advantages: FloatArray, num_trajectories: int
) -> FloatArray:
    """`1/n sum_tokens A d log pi(token) / d logits`, `[S, 3, A]`: the gradient of every clipped loss at its first,
    on-policy step.

    Args:
        tokens: `[S, 3, A]` probabilities the batch was sampled with.
        states: `[M]`, one per turn.
        sampled, advantages: `[M, 3]`.
        num_trajectories: n. Tokens are summed, not averaged, within a trajectory.
    """
    num_states, width, num_actions = tokens.shape
    cells = states[:, None] * width + np.arange(width)
    chosen = np.bincount((cells * num_actions + sampled).ravel(), weights=advantages.ravel(), minlength=tokens.size)
    total = np.bincount(cells.ravel(), weights=advantages.ravel(), minlength=num_states * width)
    gradient = chosen.reshape(tokens.shape) - total.reshape(num_states, width, 1) * tokens
    return np.asarray(gradient / num_trajectories, dtype=np.float64)


def build_policy(world: World, *, success: float, rng: np.random.Generator, roughness: float = 0.5) -> FloatArray:
    """Logits `[S, 3, A]` of a policy that succeeds with the given probability (to 1e-3).

    Normal noise of deviation `roughness` on every logit, plus a bonus on the best actions of each state (best summed
    over turns), whose size is found by bisection. Raises ValueError if no bonus reaches `success`."""
    best = compute_values(world, None).actions.sum(axis=0)
    bonus = (best >= best.max(axis=1, keepdims=True) - 1e-9).astype(np.float64)
    noise = roughness * rng.standard_normal((world.num_states, TOKENS_PER_TURN, world.num_actions))
    low, high = -12.0, 24.0
    for _ in range(60):
        middle = (low + high) / 2
        logits = noise.copy()
        logits[:, DECIDING] += middle * bonus
        reached = compute_success(world, compute_values(world, to_probabilities(logits)[:, DECIDING]))
        low, high = (middle, high) if reached < success else (low, middle)
    if abs(reached - success) > 1e-3:
        raise ValueError(
            f"no policy of world {world.name!r} with success {success} was found (nearest {reached:.4f}); choose "
            "another"
        )
    return logits
