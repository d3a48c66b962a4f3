"""What was sampled, as ledger, training and audit read it: log-probabilities that train, versions per token,
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
    """`[N]` log-probabilities under the policy that trains: those of the whole distribution where a grammar cut the
    sampler's."""
    return completion.logprobs if completion.full_logprobs is None else completion.full_logprobs


def token_versions(completion: Completion) -> IntArray | None:
    """`[N]` weight version of every token; None where they are several and were not recorded token by token."""
    if completion.versions is not None:
        return completion.versions
    if completion.version_first != completion.version_last:
        return None
    return to_ids(np.full(len(completion.token_ids), completion.version_first))


def spell_versions(completion: Completion) -> IntArray | None:
    """The versions of a completion that has several; None where every token has the first's."""
    versions = completion.versions
    if versions is None or (versions == completion.version_first).all():
        return None
    return versions


def keep_own_experts(completion: Completion, num_context: int) -> Completion:
    """The completion as a turn with `num_context` context tokens holds it: with the experts of the tokens that the
    turn's request computed and its ancestors' did not, from the last of its parent on."""
    if completion.experts is None:
        return completion
    own = completion.experts[-(num_context + len(completion.token_ids)) :]
    return replace(completion, experts=to_experts(own))


def join_experts(completions: Sequence[Completion]) -> ByteArray | None:
    """The experts of every token of a path of turns but the last, `[N - 1, layers, k]`; None where a turn has none."""
    recorded = [completion.experts for completion in completions if completion.experts is not None]
    return to_experts(np.concatenate(recorded)) if recorded and len(recorded) == len(completions) else None


def keep_version_experts(trajectory: Trajectory, version: int) -> Trajectory:
    """The trajectory with the experts that weight `version` took, and `UNRECORDED` for those of other versions.

    The experts of a token are of the version that sampled the next token of its path that was sampled: a token whose
    keys and values newer weights computed again took other experts then, which are not on record.
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

    Log-probabilities of the whole distribution and experts count where there are any, and versions one by one where
    they differ.
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
    return digest.hexdigest()[:16]


def digest_advantages(advantages: Sequence[FloatArray | None] | None) -> str:
    """16 hexadecimal digits of the advantages per turn, float32; None (the turn, or all of it, does not train) counts
    as such."""
    digest = hashlib.sha256()
    for values in advantages or ():
        digest.update(b"none" if values is None else np.ascontiguousarray(values, dtype=np.float32).tobytes())
        digest.update(b"|")
    trains = any(values is not None for values in advantages or ())
    return digest.hexdigest()[:16] if trains else "none"
