"""Random multi-turn batches for comparing implementations: plain arrays, the same for every reader of a seed.

A batch is padded `[B, T]` as the peers want it, with spans as Turnwise wants it. Rows are responses: a sampled turn,
then an observation, then the next turn, ... A masked turn was sampled but must not train, so its tokens count as
context. Numbers at masked positions (values, log-probabilities) are random too: an implementation that reads them gets
another result.

Imports numpy only, neither Turnwise nor a peer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """B responses of at most T tokens, at most M turns each, K reward components."""

    group: IntArray
    """`[B]`: rows with the same number answer the same prompt."""
    spans: IntArray
    """`[B, M, 2]`: first and one past the last token of each turn; (-1, -1) where the row has fewer turns."""
    trains: IntArray
    """`[B, M]`: 1 where the turn trains, 0 where it is masked or absent. Every row has a turn that trains."""
    mask: Array
    """`[B, T]`: 1.0 at tokens that train."""
    length: IntArray
    """`[B]`: tokens of the row, observations and masked turns included, padding not."""
    reward: Array
    """`[B]`: outcome."""
    parts: Array
    """`[B, K]`: components of another outcome (for estimators of several rewards)."""
    greedy_reward: Array
    """`[B]`: outcome of the greedy attempt, one per group."""
    turn_reward: Array
    """`[B, M]`: reward at the end of each turn that trains, else 0."""
    values: Array
    """`[B, T]`: critic's values when sampled."""
    new_values: Array
    """`[B, T]`: critic's values under training."""
    returns: Array
    """`[B, T]`: value targets (random)."""
    policy_logprobs: Array
    """`[B, T]`: of the policy being trained; all log-probabilities are below 0."""
    old_logprobs: Array
    """`[B, T]`: of the policy the ratio is taken against."""
    behavior_logprobs: Array
    """`[B, T]`: of the sampler."""
    reference_logprobs: Array
    """`[B, T]`"""
    entropy: Array
    """`[B, T]`"""
    advantages: Array
    """`[B]`: some advantage per row, both signs."""
    token_advantages: Array
    """`[B, T]`: some advantage per token, both signs."""

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All fields by name."""
        return asdict(self)


def squared_mass(batch: Batch) -> Array:
    """`[B, T]`: a sum of squared probabilities that fits the old log-probabilities: the sampled token's square, and at
    most that of all other tokens."""
    probability = np.exp(batch.old_logprobs)
    return probability**2 + (1 - probability) ** 2 * batch.entropy / 2


def token_rewards(batch: Batch, *, turn_rewards: bool) -> Array:
    """`[B, T]`: the outcome at the last token that trains; with `turn_rewards` each turn's at its last token."""
    rewards = np.zeros_like(batch.mask)
    for row in range(len(batch.group)):
        rewards[row, np.flatnonzero(batch.mask[row])[-1]] += batch.reward[row]
        for turn in np.flatnonzero(batch.trains[row]) if turn_rewards else ():
            rewards[row, batch.spans[row, turn, 1] - 1] += batch.turn_reward[row, turn]
    return rewards


def make_batch(seed: int, group_sizes: tuple[int, ...], *, max_turns: int = 4, num_parts: int = 2) -> Batch:
    """A batch whose groups are interleaved (row order says nothing about groups).

    Rewards have one decimal; those of group 1 are all 0.7, which no float holds exactly.
    """
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(group_sizes)), group_sizes))
    num_rows = len(group)
    spans = np.full((num_rows, max_turns, 2), -1)
    trains = np.zeros((num_rows, max_turns), dtype=np.int64)
    length = np.zeros(num_rows, dtype=np.int64)
    for row in range(num_rows):
        num_turns, at = int(rng.integers(1, max_turns + 1)), 0
        for turn in range(num_turns):
            end = at + int(rng.integers(1, 6))
            spans[row, turn] = at, end
            at = end + (int(rng.integers(1, 4)) if turn + 1 < num_turns else 0)
        trains[row, :num_turns] = rng.random(num_turns) > 0.2
        trains[row, int(rng.integers(num_turns))] = 1
        length[row] = at
    shape = (num_rows, int(length.max()) + 1)  # the last column is padding for every row
    mask = np.zeros(shape)
    for row, turn in np.argwhere(trains == 1):
        mask[row, slice(*spans[row, turn])] = 1.0
    reward = np.round(rng.uniform(-1, 2, num_rows), 1)
    if len(group_sizes) > 1:
        reward[group == 1] = 0.7
    policy = -rng.exponential(1.0, shape) - 0.01

    def near(scale: float) -> Array:
        return np.minimum(policy + scale * rng.standard_normal(shape), -1e-3)

    return Batch(
        group=group,
        spans=spans,
        trains=trains,
        mask=mask,
        length=length,
        reward=reward,
        parts=np.round(rng.uniform(0, 3, (num_rows, num_parts)), 1),
        greedy_reward=np.round(rng.uniform(-1, 1, len(group_sizes)), 1)[group],
        turn_reward=np.round(rng.uniform(-1, 1, trains.shape), 1) * trains,
        values=rng.standard_normal(shape),
        new_values=rng.standard_normal(shape),
        returns=rng.standard_normal(shape),
        policy_logprobs=policy,
        old_logprobs=near(0.5),
        behavior_logprobs=near(0.4),
        reference_logprobs=near(0.7),
        entropy=rng.uniform(0.0, 2.0, shape),
        advantages=rng.standard_normal(num_rows),
        token_advantages=rng.standard_normal(shape),
    )


def make_extreme(batch: Batch) -> Batch:
    """The batch with every fifth position 60 nats less likely under the policy, the next one under the old policy."""
    position = np.arange(batch.mask.size).reshape(batch.mask.shape) % 5
    return replace(
        batch,
        policy_logprobs=batch.policy_logprobs - 60 * (position == 0),
        old_logprobs=batch.old_logprobs - 60 * (position == 1),
    )


BATCHES = {
    "ragged": lambda: make_batch(20_260_801, (3, 4, 1, 2, 3)),
    "equal": lambda: make_batch(20_260_802, (4, 4, 4)),
    "extreme": lambda: make_extreme(make_batch(20_260_803, (2, 2))),
}
"""By name. "ragged": groups of 3, 4 (constant), 1, 2 and 3 rows. "equal": three groups of 4, group 1 constant.
"extreme": log-ratios of about +-60."""
