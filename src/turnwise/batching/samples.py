"""Trajectories to samples: each branch flattened, each sampled token trained exactly once.

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

from turnwise.core.types import Origin, Sample, Trajectory, to_floats, to_ids, to_mask
from turnwise.store.sampled import training_logprobs

TurnArrays = Sequence[NDArray[np.floating]]
"""One array per turn of a trajectory, `[sampled tokens of the turn]` each."""


def to_samples(trajectory: Trajectory, advantages: TurnArrays | None = None) -> list[Sample]:
    """One sample per branch; `advantages` go to the sampled tokens of their turns, None gives every token 0.

    Behavior log-probabilities are those of the policy that trains: where a grammar guided sampling, without it. A turn
    shared by several branches trains in the first branch only. A branch without a token to train gives no sample.
    Raises ValueError when the advantages do not fit the turns.
    """
    if advantages is None:
        advantages = [np.zeros(len(turn.completion.token_ids)) for turn in trajectory.turns]
    given, expected = (
        [len(array) for array in advantages],
        [len(turn.completion.token_ids) for turn in trajectory.turns],
    )
    if given != expected:
        raise ValueError(f"advantages have {given} values per turn, the trajectory sampled {expected} tokens per turn")
    trained_turns = find_trained_turns(trajectory)
    samples = []
    for branch, path in enumerate(trajectory.branches()):
        if not trained_turns[branch]:
            continue
        ids, mask, context, logprobs, credit = [], [], [], [], []
        versions = []
        for depth, index in enumerate(path):
            turn = trajectory.turns[index]
            new = index in trained_turns[branch]
            num_context, num_sampled = len(turn.context_ids), len(turn.completion.token_ids)
            nothing = np.zeros(num_context, np.float32)
            ids += [turn.context_ids, turn.completion.token_ids]
            mask += [np.zeros(num_context, bool), np.full(num_sampled, new)]
            context += [np.full(num_context, depth > 0 and new), np.zeros(num_sampled, bool)]
            logprobs += [nothing, np.where(new, training_logprobs(turn.completion), 0.0)]
            credit += [nothing, np.where(new, advantages[index], 0.0)]
            if new:
                versions += [turn.completion.version_first, turn.completion.version_last]
        samples.append(
            Sample(
                token_ids=to_ids(np.concatenate(ids)),
                loss_mask=to_mask(np.concatenate(mask)),
                context_mask=to_mask(np.concatenate(context)),
                behavior_logprobs=to_floats(np.concatenate(logprobs)),
                advantages=to_floats(np.concatenate(credit)),
                version_first=min(versions),
                version_last=max(versions),
                origin=Origin(
                    task_id=trajectory.task_id, group_id=trajectory.group_id, member=trajectory.member, branch=branch
                ),
            )
        )
    return samples


def find_trained_turns(trajectory: Trajectory) -> list[list[int]]:
    """Per branch the turns that train in it, in order: those no earlier branch has. Each turn is in exactly one."""
    seen: set[int] = set()
    per_branch = []
    for path in trajectory.branches():
        per_branch.append([index for index in path if index not in seen])
        seen.update(path)
    return per_branch


def to_turns(trajectory: Trajectory, arrays: Sequence[NDArray[np.floating]]) -> list[NDArray[np.float64]]:
    """Numbers per trained token of a trajectory's samples, `[K]` each, as one array per turn.

    `arrays` are in the order of `to_samples`. Raises ValueError when the numbers of tokens do not fit.
    """
    order = [index for turns in find_trained_turns(trajectory) for index in turns]
    joined = np.concatenate([np.zeros(0), *arrays])
    if len(joined) != trajectory.num_sampled_tokens:
        raise ValueError(
            f"{len(joined)} numbers for the {trajectory.num_sampled_tokens} sampled tokens of a trajectory"
        )
    ends = np.cumsum([len(trajectory.turns[index].completion.token_ids) for index in order])
    by_turn = dict(zip(order, np.split(joined, ends[:-1]), strict=True)) if order else {}
    return [by_turn[index] for index in range(len(trajectory.turns))]


def from_turns(trajectory: Trajectory, arrays: TurnArrays) -> list[NDArray[np.floating]]:
    """The inverse of `to_turns`: one array per sample, over its trained tokens."""
    return [np.concatenate([arrays[index] for index in turns]) for turns in find_trained_turns(trajectory) if turns]


def unmask_observations(samples: Iterable[Sample]) -> list[Sample]:
    """Let observation tokens train too: only to reproduce Search-R1's ablation.

    They take the advantage of the first token of the reply they led to. Their behavior log-probability is NaN, which
    the loss replaces by the policy's own, as they were not sampled."""
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
