"""Converts trajectories to samples: each branch is flattened, each sampled token trains exactly once.

For a trajectory of two turns (P prompt, C completion, O observation):

    token_ids          P P P C C O O O C
    loss_mask          0 0 0 1 1 0 0 0 1
    context_mask       0 0 0 0 0 1 1 1 0
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from turnwise.core.keys import Span
from turnwise.core.paths import take_trained
from turnwise.core.sampled import join_experts, token_versions, training_logprobs
from turnwise.core.types import (
    Completion,
    IntArray,
    Origin,
    Sample,
    Scored,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    to_floats,
    to_ids,
    to_mask,
)

TurnArrays = Sequence[NDArray[np.floating]]
"""One array per turn of a trajectory, each `[sampled tokens of the turn]`."""


def take_scored(groups: Iterable[TrajectoryGroup]) -> dict[TrajectoryId, Trajectory]:
    """Return the scored trajectories, in the order of groups and members, without the turns that never train."""
    return {t.id: take_trained(t) for group in groups for t in group.trajectories if isinstance(t.reward, Scored)}


def list_samples(groups: Iterable[TrajectoryGroup]) -> list[Sample]:
    """Return the samples of `take_scored(groups)`, with advantages of 0: the input that a trainer scores, and that
    `Columns` belong to."""
    return [sample for trajectory in take_scored(groups).values() for sample in to_samples(trajectory)]


def list_outcomes(groups: Iterable[TrajectoryGroup]) -> list[float]:
    """Return the reward that trains the trajectory of each sample in `list_samples(groups)`."""
    return [
        trajectory.credited
        for trajectory in take_scored(groups).values()
        for turns in find_trained_turns(trajectory)
        if turns and trajectory.credited is not None
    ]


def to_samples(trajectory: Trajectory, advantages: TurnArrays | None = None) -> list[Sample]:
    """Return one sample per branch; `advantages` apply to the sampled tokens of their turns, None means 0 for every
    token.

    Behavior log-probabilities are those of the policy that trains: where a grammar guided sampling, those without it. A
    turn shared by several branches trains in the first branch only. A branch without a trained token produces no
    sample. Raises ValueError when the advantages do not fit the turns.
    """
    if advantages is None:
        advantages = [np.zeros(len(turn.completion.token_ids)) for turn in trajectory.turns]
    given = [len(array) for array in advantages]
    expected = [len(turn.completion.token_ids) for turn in trajectory.turns]
    if given != expected:
        raise ValueError(
            f"advantages have {given} values per turn, but the trajectory sampled {expected} tokens per turn"
        )
    trained_turns = find_trained_turns(trajectory)
    return [
        _flatten(trajectory, branch, path, trained_turns[branch], advantages)
        for branch, path in enumerate(trajectory.branches())
        if trained_turns[branch]
    ]


def _flatten(
    trajectory: Trajectory, branch: int, path: Sequence[int], trained: Sequence[int], advantages: TurnArrays
) -> Sample:
    """Flatten one branch with the turns of `path`, of which those in `trained` train."""
    ids, mask, context, logprobs, credit, versions = [], [], [], [], [], []
    images: list[Span] = []
    length = 0
    for depth, index in enumerate(path):
        turn = trajectory.turns[index]
        trains = index in trained
        num_context, num_sampled = len(turn.context_ids), len(turn.completion.token_ids)
        nothing = np.zeros(num_context, np.float32)
        ids += [turn.context_ids, turn.completion.token_ids]
        mask += [np.zeros(num_context, bool), np.full(num_sampled, trains)]
        images += [span.shift(length) for span in turn.images]
        length += num_context + num_sampled
        observed = np.full(num_context, depth > 0 and trains)
        for span in turn.images:
            observed[span.start : span.start + span.length] = False
        context += [observed, np.zeros(num_sampled, bool)]
        logprobs += [nothing, np.where(trains, training_logprobs(turn.completion), 0.0)]
        credit += [nothing, np.where(trains, advantages[index], 0.0)]
        versions += [np.zeros(num_context, np.int32), _spell_versions(turn.completion)]
    loss_mask = to_mask(np.concatenate(mask))
    every_version = to_ids(np.concatenate(versions))
    completions = [trajectory.turns[index].completion for index in trained]
    first = min(min(c.version_first, c.version_last) for c in completions)
    return Sample(
        token_ids=to_ids(np.concatenate(ids)),
        loss_mask=loss_mask,
        context_mask=to_mask(np.concatenate(context)),
        behavior_logprobs=to_floats(np.concatenate(logprobs)),
        advantages=to_floats(np.concatenate(credit)),
        version_first=first,
        version_last=max(max(c.version_first, c.version_last) for c in completions),
        versions=None if (every_version[loss_mask] == first).all() else every_version,
        experts=join_experts([trajectory.turns[index].completion for index in path]),
        origin=Origin(trajectory=trajectory.id, task_id=trajectory.task_id, branch=branch),
        images=tuple(images),
    )


def _spell_versions(completion: Completion) -> IntArray:
    """Return the version of every token; the first token's version where several sampled the reply and were not
    recorded one by one."""
    versions = token_versions(completion)
    return to_ids(np.full(len(completion.token_ids), completion.version_first)) if versions is None else versions


def find_trained_turns(trajectory: Trajectory) -> list[list[int]]:
    """Return, per branch, the turns that train in it, in order: those that no earlier branch has. Each turn is in
    exactly one."""
    seen: set[int] = set()
    per_branch = []
    for path in trajectory.branches():
        per_branch.append([index for index in path if index not in seen])
        seen.update(path)
    return per_branch


def to_turns(trajectory: Trajectory, arrays: Sequence[NDArray[np.floating]]) -> list[NDArray[np.float64]]:
    """Regroup numbers per trained token of a trajectory's samples, `[K]` each, into one array per turn.

    `arrays` are in the order of `to_samples`. Raises ValueError when the numbers of tokens do not fit.
    """
    order = [index for turns in find_trained_turns(trajectory) for index in turns]
    joined = np.concatenate([np.zeros(0), *arrays])
    if len(joined) != trajectory.num_sampled_tokens:
        raise ValueError(f"{len(joined)} numbers for a trajectory of {trajectory.num_sampled_tokens} sampled tokens")
    ends = np.cumsum([len(trajectory.turns[index].completion.token_ids) for index in order])
    by_turn = dict(zip(order, np.split(joined, ends[:-1]), strict=True)) if order else {}
    return [by_turn[index] for index in range(len(trajectory.turns))]


def from_turns(trajectory: Trajectory, arrays: TurnArrays) -> list[NDArray[np.floating]]:
    """The inverse of `to_turns`: one array per sample, over its trained tokens."""
    return [np.concatenate([arrays[index] for index in turns]) for turns in find_trained_turns(trajectory) if turns]


def forget_experts(samples: Iterable[Sample]) -> list[Sample]:
    """Return the same samples without experts, for a model whose routers choose for themselves: any but the policy that
    sampled them."""
    return [sample if sample.experts is None else replace(sample, experts=None) for sample in samples]


def unmask_observations(samples: Iterable[Sample]) -> list[Sample]:
    """Let observation tokens train too: only to reproduce Search-R1's ablation.

    They get the advantage of the first token of the reply that followed them. Their behaviour log-probability is NaN,
    which the loss replaces by the policy's own, because they were not sampled."""
    unmasked = []
    for sample in samples:
        sampled = np.flatnonzero(sample.loss_mask)
        observed = np.flatnonzero(sample.context_mask)
        advantages = np.array(sample.advantages)
        advantages[observed] = sample.advantages[sampled[np.searchsorted(sampled, observed)]]
        unmasked.append(
            replace(
                sample,
                loss_mask=to_mask(sample.loss_mask | sample.context_mask),
                behavior_logprobs=to_floats(np.where(sample.context_mask, np.nan, sample.behavior_logprobs)),
                advantages=to_floats(advantages),
            )
        )
    return unmasked
