"""Trajectories to samples: each branch flattened, each sampled token trained exactly once.

For a trajectory of two turns (P prompt, C completion, O observation):

    token_ids          P P P C C O O O C
    loss_mask          0 0 0 1 1 0 0 0 1
    context_mask       0 0 0 0 0 1 1 1 0
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from turnwise.core.types import Origin, Sample, Trajectory, to_floats, to_ids, to_mask


def to_samples(trajectory: Trajectory, advantage: float) -> list[Sample]:
    """One sample per branch; `advantage` goes to every sampled token.

    A turn shared by several branches trains in the first branch only. A branch without a token to train gives no sample.
    """
    trained: set[int] = set()
    samples = []
    for branch, path in enumerate(trajectory.branches()):
        ids, mask, context, logprobs = [], [], [], []
        versions = []
        for depth, index in enumerate(path):
            turn = trajectory.turns[index]
            new = index not in trained
            num_context, num_sampled = len(turn.context_ids), len(turn.completion.token_ids)
            ids += [turn.context_ids, turn.completion.token_ids]
            mask += [np.zeros(num_context, bool), np.full(num_sampled, new)]
            context += [np.full(num_context, depth > 0 and new), np.zeros(num_sampled, bool)]
            logprobs += [np.zeros(num_context, np.float32), np.where(new, turn.completion.logprobs, 0.0)]
            if new:
                versions += [turn.completion.version_first, turn.completion.version_last]
            trained.add(index)
        if not versions:
            continue
        loss_mask = np.concatenate(mask)
        samples.append(
            Sample(
                token_ids=to_ids(np.concatenate(ids)),
                loss_mask=to_mask(loss_mask),
                context_mask=to_mask(np.concatenate(context)),
                behavior_logprobs=to_floats(np.concatenate(logprobs)),
                advantages=to_floats(np.where(loss_mask, advantage, 0.0)),
                version_first=min(versions),
                version_last=max(versions),
                origin=Origin(task_id=trajectory.task_id, group_id=trajectory.group_id, member=trajectory.member, branch=branch),
            )
        )
    return samples


def unmask_observations(samples: Iterable[Sample]) -> list[Sample]:
    """Let observation tokens train too, with the sample's advantage: only to reproduce Search-R1's ablation.

    Their behaviour log-probability is NaN, which the loss replaces by the policy's own (nobody sampled them).
    """
    unmasked = []
    for sample in samples:
        advantage = float(sample.advantages[sample.loss_mask][0])
        mask = sample.loss_mask | sample.context_mask
        unmasked.append(
            Sample(
                token_ids=sample.token_ids,
                loss_mask=to_mask(mask),
                context_mask=sample.context_mask,
                behavior_logprobs=to_floats(np.where(sample.context_mask, np.nan, sample.behavior_logprobs)),
                advantages=to_floats(np.where(mask, advantage, 0.0)),
                version_first=sample.version_first,
                version_last=sample.version_last,
                origin=sample.origin,
            )
        )
    return unmasked
