"""Views of what was sampled, for ledger, training and audit: log-probabilities for training, versions per token,
digests.

Pure functions of completions and trajectories.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from turnwise.core.types import (
    UNRECORDED,
    ByteArray,
    Completion,
    FloatArray,
    IntArray,
    Trajectory,
    to_experts,
    to_ids,
)


def training_logprobs(completion: Completion) -> FloatArray:
    """`[N]` log-probabilities under the policy that trains: those under the whole distribution where a grammar
    restricted the sampler's."""
    return completion.logprobs if completion.full_logprobs is None else completion.full_logprobs


def token_versions(completion: Completion) -> IntArray | None:
    """`[N]` weight version of every token; None if there are several that were not recorded token by token."""
    if completion.versions is not None:
        return completion.versions
    if completion.version_first != completion.version_last:
        return None
    return to_ids(np.full(len(completion.token_ids), completion.version_first))


def spell_versions(completion: Completion) -> IntArray | None:
    """Return the versions of a completion that has several; None where every token has the first token's version."""
    versions = completion.versions
    if versions is None or (versions == completion.version_first).all():
        return None
    return versions


def keep_own_experts(completion: Completion, num_context: int) -> Completion:
    """Return the completion as stored in a turn with `num_context` context tokens: with the experts of those tokens
    that the turn's request computed and its ancestors' requests did not, starting at the parent's last token."""
    if completion.experts is None:
        return completion
    own = completion.experts[-(num_context + len(completion.token_ids)) :]
    return replace(completion, experts=to_experts(own))


def join_experts(completions: Sequence[Completion]) -> ByteArray | None:
    """Return the experts of every token but the last on a path of turns, `[N - 1, layers, k]`; None if a turn has
    none."""
    recorded = [completion.experts for completion in completions if completion.experts is not None]
    return to_experts(np.concatenate(recorded)) if recorded and len(recorded) == len(completions) else None


def keep_version_experts(trajectory: Trajectory, version: int) -> Trajectory:
    """Return the trajectory with the experts that weight `version` chose, and `UNRECORDED` for those of other versions.

    A token's experts belong to the version that sampled the next sampled token on its path: when newer weights
    recomputed a token's keys and values, they chose other experts, which are not recorded.
    """
    turns = []
    for turn in trajectory.turns:
        completion, versions = turn.completion, token_versions(turn.completion)
        if completion.experts is not None:
            own = np.full(len(completion.token_ids), -1) if versions is None else versions
            of_context = np.full(len(completion.experts) - len(own), own[0])
            other = np.concatenate([of_context, own]) != version
            experts = np.where(other[:, None, None], UNRECORDED, completion.experts)
            turn = replace(turn, completion=replace(completion, experts=to_experts(experts)))
        turns.append(turn)
    return replace(trajectory, turns=tuple(turns))


def digest_tokens(trajectory: Trajectory) -> str:
    """16 hexadecimal digits of what was sampled: attempt, tree, context, token ids, log-probabilities and versions of
    every turn.

    Log-probabilities of the whole distribution, experts and places of pictures are included if there are any, and
    versions one by one if they differ.
    """
    digest = hashlib.sha256(f"{trajectory.task_id} {trajectory.id.attempt}".encode())
    for turn in trajectory.turns:
        completion = turn.completion
        sizes = (
            f"{turn.parent} {len(turn.context_ids)} {len(completion.token_ids)} {completion.version_first} "
            f"{completion.version_last}"
        )
        digest.update(sizes.encode())
        for array in (turn.context_ids, completion.token_ids, completion.logprobs):
            digest.update(np.ascontiguousarray(array).tobytes())
        for name, more in (
            ("versions", spell_versions(completion)),
            ("full", completion.full_logprobs),
            ("experts", completion.experts),
        ):
            if more is not None:
                digest.update(name.encode() + np.ascontiguousarray(more).tobytes())
        for span in turn.images:
            digest.update(f"image {span.start} {span.length} {span.offset} {span.grid} {span.digest}".encode())
    return digest.hexdigest()[:16]


def digest_advantages(advantages: Sequence[FloatArray | None] | None) -> str:
    """16 hexadecimal digits of the advantages per turn, float32; None (the turn, or all of it, does not train) is part
    of the digest."""
    digest = hashlib.sha256()
    for values in advantages or ():
        digest.update(b"none" if values is None else np.ascontiguousarray(values, dtype=np.float32).tobytes())
        digest.update(b"|")
    trains = any(values is not None for values in advantages or ())
    return digest.hexdigest()[:16] if trains else "none"
