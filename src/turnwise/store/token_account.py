"""Traces the samples of one trajectory back to their turns and counts every sampled token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from turnwise.core.batch import Drop
from turnwise.core.errors import TrainingError
from turnwise.core.messages import show_digest
from turnwise.core.sampled import digest_advantages, digest_tokens, join_experts, token_versions, training_logprobs
from turnwise.core.types import BoolArray, DropReason, FloatArray, Invalid, Sample, Trajectory, TrajectoryId


class LedgerError(TrainingError):
    """A token would be lost, train twice, or train differently from how it was sampled. No weight has changed."""

    def __init__(self, message: str, *, trajectory: TrajectoryId) -> None:
        super().__init__(message)
        self.trajectory = trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One trajectory's account: `sampled == trained + sum(dropped.values())`, in tokens."""

    trajectory: TrajectoryId
    sampled: int
    trained: int
    dropped: Mapping[str, int]
    """Number of tokens per `DropReason`."""
    tokens_digest: str
    """Digest of token ids, log-probabilities and versions of every turn (see `sampled.digest_tokens`)."""
    advantages_digest: str
    """Digest of the advantages that train (see `sampled.digest_advantages`)."""


class TokenAccount:
    """Counts one trajectory's tokens, turn by turn. Methods raise LedgerError naming the turn and what is wrong."""

    def __init__(self, step: int, trajectory: Trajectory) -> None:
        """`step` is the RL step that is about to train, for messages."""
        self._step = step
        self._trajectory = trajectory
        self._branches = trajectory.branches()
        self._times = [np.zeros(len(turn.completion.token_ids), np.int64) for turn in trajectory.turns]
        self._advantages: list[FloatArray | None] = [None] * len(trajectory.turns)
        self._reasons: dict[int, str] = {}

    def train(self, sample: Sample, version: int, max_staleness: int, observations_train: bool) -> int:
        """Count one sample; returns how many of its observation tokens train."""
        branch = sample.origin.branch
        if not 0 <= branch < len(self._branches):
            raise self._error(f"a sample trains branch {branch}, but the trajectory has {len(self._branches)}")
        length = sum(
            len(self._trajectory.turns[i].context_ids) + len(self._trajectory.turns[i].completion.token_ids)
            for i in self._branches[branch]
        )
        if length != len(sample.token_ids):
            raise self._error(
                f"a sample of branch {branch} has {len(sample.token_ids)} tokens, but its turns have {length}"
            )
        self._compare_experts(branch, sample)
        self._compare_images(branch, sample)
        at = context_trained = 0
        for index in self._branches[branch]:
            turn = self._trajectory.turns[index]
            middle = at + len(turn.context_ids)
            end = middle + len(turn.completion.token_ids)
            self._compare(index, "context token id", turn.context_ids, sample.token_ids[at:middle])
            self._compare(index, "sampled token id", turn.completion.token_ids, sample.token_ids[middle:end])
            context_trained += self._check_context(index, sample, slice(at, middle), observations_train)
            mask = sample.loss_mask[middle:end]
            if mask.any():
                self._take_turn(index, sample, slice(middle, end), mask)
                self._check_version(index, version, max_staleness)
            at = end
        return context_trained

    def drop(self, drop: Drop) -> None:
        """Note a reason; a turn may have only one."""
        for index in range(len(self._times)) if drop.turns is None else drop.turns:
            if not 0 <= index < len(self._times):
                raise self._error(
                    f"{drop.reason.value!r} drops turn {index}, but the trajectory has {len(self._times)}"
                )
            earlier = self._reasons.setdefault(index, drop.reason.value)
            if earlier != drop.reason.value:
                raise self._error(
                    f"turn {index} is dropped both as {earlier!r} and as {drop.reason.value!r}; use one reason"
                )

    def close(self, max_times: int | None) -> Entry:
        """Balance and return the account."""
        invalid = isinstance(self._trajectory.reward, Invalid)
        dropped: Counter[str] = Counter()
        trained = 0
        for index, times in enumerate(self._times):
            once = int((times > 0).sum())
            trained += once
            if once and invalid:
                raise self._error(f"turn {index} trains although the reward is Invalid; leave Invalid trajectories out")
            if max_times is not None and times.max(initial=0) > max_times:
                token = int(times.argmax())
                raise self._error(
                    f"sampled token {token} of turn {index} trains {times[token]} times; at most {max_times} is allowed"
                )
            reason = DropReason.INVALID.value if invalid else self._reasons.get(index)
            if once and reason is not None:
                raise self._error(f"turn {index} is dropped as {reason!r}, yet {once} of its {len(times)} tokens train")
            if once < len(times):
                if reason is None:
                    raise self._error(
                        f"{len(times) - once} of {len(times)} sampled tokens of turn {index} are neither trained nor "
                        "dropped"
                    )
                dropped[reason] += len(times)
        trajectory = self._trajectory
        return Entry(
            trajectory=trajectory.id,
            sampled=trajectory.num_sampled_tokens,
            trained=trained,
            dropped=dict(dropped),
            tokens_digest=digest_tokens(trajectory),
            advantages_digest=digest_advantages(self._advantages),
        )

    def _take_turn(self, index: int, sample: Sample, span: slice, mask: BoolArray) -> None:
        logprobs = training_logprobs(self._trajectory.turns[index].completion)
        self._compare(index, "log-probability of sampled token", logprobs[mask], sample.behavior_logprobs[span][mask])
        self._times[index] += mask
        self._advantages[index] = np.where(mask, sample.advantages[span], np.float32(0)).astype(np.float32)

    def _check_context(self, index: int, sample: Sample, span: slice, observations_train: bool) -> int:
        """Return how many context tokens of this turn train; raises LedgerError for any unless observations may
        train."""
        trained = sample.loss_mask[span]
        allowed = (
            sample.context_mask[span]
            if observations_train and len(sample.context_mask)
            else np.zeros(len(trained), np.bool_)
        )
        wrong = np.flatnonzero(trained & ~allowed)
        if len(wrong):
            raise self._error(
                f"context token {wrong[0]} of turn {index} trains; it was not sampled (the loss mask is shifted or "
                "wrong)"
            )
        return int(trained.sum())

    def _check_version(self, index: int, version: int, max_staleness: int) -> None:
        completion = self._trajectory.turns[index].completion
        first, last = completion.version_first, completion.version_last
        versions = token_versions(completion)
        if versions is not None:
            first, last = min(first, int(versions.min())), max(last, int(versions.max()))
        if not version - max_staleness <= first <= last <= version:
            raise self._error(
                f"turn {index} was sampled by weight version {first}..{last}, but version {version} trains with "
                f"max_staleness {max_staleness}; the engine did not adopt the new weights, or the batch is stale"
            )

    def _compare(self, index: int, what: str, expected: np.ndarray, given: np.ndarray) -> None:
        different = np.flatnonzero(expected != given)
        if len(different):
            at = int(different[0])
            raise self._error(
                f"{what} {at} of turn {index} is {given[at]} in the sample, but {expected[at]} was recorded at sampling"
            )

    def _compare_experts(self, branch: int, sample: Sample) -> None:
        expected = join_experts([self._trajectory.turns[index].completion for index in self._branches[branch]])
        given = sample.experts
        if given is None or expected is None or given.shape != expected.shape:
            if given is not expected:
                shapes = [None if experts is None else experts.shape for experts in (given, expected)]
                raise self._error(
                    f"a sample of branch {branch} has experts of shape {shapes[0]}, but its turns {shapes[1]}"
                )
            return
        different = np.flatnonzero((given != expected).any((1, 2)))
        if len(different):
            at = int(different[0])
            raise self._error(
                f"token {at} of branch {branch} trains with experts {given[at].tolist()}, but was sampled with "
                f"{expected[at].tolist()}"
            )

    def _compare_images(self, branch: int, sample: Sample) -> None:
        """Raise LedgerError unless the sample has every picture of the branch's turns at its place, and no other."""
        at, expected = 0, []
        for index in self._branches[branch]:
            turn = self._trajectory.turns[index]
            expected += [(index, span.shift(at)) for span in turn.images]
            at += len(turn.context_ids) + len(turn.completion.token_ids)
        for (index, span), given in zip(expected, sample.images, strict=False):
            if span != given:
                raise self._error(
                    f"a sample of branch {branch} shows picture {show_digest(given.digest)} at tokens {given.start} to "
                    f"{given.start + given.length - 1}, but turn {index} had {show_digest(span.digest)} at tokens "
                    f"{span.start} to {span.start + span.length - 1}"
                )
        if len(sample.images) != len(expected):
            raise self._error(
                f"a sample of branch {branch} has {len(sample.images)} places of pictures, but its turns "
                f"{len(expected)}"
            )

    def _error(self, text: str) -> LedgerError:
        return breach(self._step, self._trajectory.id, text)


def drop_whole(trajectory: Trajectory, reason: DropReason) -> Entry:
    """Return the account of a trajectory that never trains: every token is dropped for `reason`."""
    sampled = trajectory.num_sampled_tokens
    return Entry(
        trajectory=trajectory.id,
        sampled=sampled,
        trained=0,
        dropped={reason.value: sampled} if sampled else {},
        tokens_digest=digest_tokens(trajectory),
        advantages_digest=digest_advantages(None),
    )


def breach(step: int, trajectory: TrajectoryId, text: str) -> LedgerError:
    """Build the error about one trajectory in a step."""
    message = f"token ledger, step {step}, trajectory {trajectory}: {text}. The weights were not changed by this step"
    return LedgerError(message, trajectory=trajectory)
