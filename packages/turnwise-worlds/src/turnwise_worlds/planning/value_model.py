"""A value function that learns: the critic of `training` read at the end of a conversation, trained on trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.batching.collate import Packing
from turnwise.core.metrics import Metric
from turnwise.core.seeds import rng
from turnwise.core.types import IntArray, Invalid, Origin, Sample, Scored, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.evaluation.summary import is_right
from turnwise.training.critic import Critic, compute_value_columns, run_critic_step, score_values
from turnwise_worlds.planning.search import Search, SearchNode
from turnwise_worlds.planning.targets import Kind, compute_targets
from turnwise_worlds.planning.values import Judged

ORIGIN = Origin(trajectory=TrajectoryId(draw=0, member=0), task_id="")
MAX_GRAD_NORM = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labelled:
    """A state with its target value."""

    token_ids: IntArray
    target: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedValue:
    """Implements `ValueFunction`."""

    critic: Critic
    packing: Packing

    def score(self, states: Sequence[Judged]) -> list[float]:
        """See `ValueFunction.score`; not cut to [0, 1]."""
        samples = [to_sample(state.token_ids) for state in states]
        values, _ = score_values(self.critic, samples, **self.packing)
        return [float(value[0]) for value in values]


def to_sample(token_ids: IntArray) -> Sample:
    """A conversation as a sample whose only trained token follows it: the critic's value of that token is the value of
    the state. The choice of the token makes no difference; it is 0."""
    count = len(token_ids) + 1
    nothing = to_floats(np.zeros(count))
    return Sample(
        token_ids=to_ids([*token_ids.tolist(), 0]),
        loss_mask=to_mask(np.arange(count) == count - 1),
        behavior_logprobs=nothing,
        advantages=nothing,
        version_first=0,
        version_last=0,
        origin=ORIGIN,
    )


def label_states(searches: Sequence[Search], kind: Kind) -> list[Labelled]:
    """The states of searches whose outcomes are known, with their targets (`compute_targets`).

    States from which nothing was tried are left out, because nothing is known about them, and so are ends that could
    not be scored.
    """
    labelled = []
    for search in searches:
        if search.root is None:
            continue
        for node, target in compute_targets(search.root, _is_right, kind=kind).items():
            if node.num_proposals or isinstance(node.place.judged.reward, Scored):
                labelled.append(Labelled(token_ids=node.place.judged.token_ids, target=target))
    return labelled


def _is_right(node: SearchNode) -> bool:
    reward = node.place.judged.reward
    return reward is not None and not isinstance(reward, Invalid) and is_right(reward)


def fit_value(
    critic: Critic,
    labelled: Sequence[Labelled],
    *,
    steps: int,
    batch_size: int,
    seed: int,
    packing: Packing,
    report: Callable[[int, Mapping[str, Metric]], None] = lambda step, metrics: None,
) -> None:
    """Minimize the squared error over `steps` batches drawn with replacement, with a learning rate that falls linearly
    to 0.

    Raises TrainingError when the loss is not finite.
    """
    random = rng(seed, "value model")
    for step in range(steps):
        batch = random.choices(labelled, k=batch_size)
        targets = [np.array([each.target]) for each in batch]
        metrics = run_critic_step(
            replace(critic, lr=critic.lr * (1 - step / steps)),
            [to_sample(each.token_ids) for each in batch],
            compute_value_columns(targets, targets),
            max_grad_norm=MAX_GRAD_NORM,
            **packing,
        )
        report(step, metrics)
