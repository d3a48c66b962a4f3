"""The token ledger: what was sampled is trained once or dropped for a stated reason, proven before every optimizer
step.

For each step, per trajectory and in total:

    sampled = trained + dropped        dropped by reason: invalid, filtered group, too stale, truncated, over budget, ...

`reconcile` walks every sample that is about to train back to the turn it was cut from and compares token ids,
log-probabilities, mask and versions. What it proves is one line of `ledger.jsonl`, appended before the weights change:

    {"step": 3, "version": 2, "sampled": 640, "trained": 600, "dropped": {"invalid": 40}, "trajectories": [...], ...}

Knows trajectories and samples; knows nothing about why credit or a filter decided what it did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.core.errors import StoreError, TrainingError
from turnwise.core.types import BoolArray, FloatArray, Invalid, Sample, Trajectory, TrajectoryGroup
from turnwise.store.run_folder import LEDGER, append_line, read_lines
from turnwise.store.sampled import digest_advantages, digest_tokens, token_versions, training_logprobs

Key = tuple[str, int]
"""`(group_id, member)` of a trajectory."""


class DropReason(StrEnum):
    """Why sampled tokens do not train."""

    INVALID = "invalid"
    """The reward is Invalid. Follows from the trajectory; nobody has to state it."""
    RETRIED = "retried"
    """An attempt that failed and was made again. Follows from where it is; nobody has to state it."""
    FILTERED_GROUP = "filtered_group"
    """The group teaches nothing and was replaced or left out."""
    NO_CREDIT = "no_credit"
    """The credit method gave the trajectory, or these turns of it, nothing."""
    TOO_STALE = "too_stale"
    """Sampled by weights older than allowed."""
    TRUNCATED = "truncated"
    """A limit ended it and the recipe leaves such trajectories out."""
    OVER_BUDGET = "over_budget"
    """It teaches something, and the step had enough without it."""
    NOT_SELECTED = "not_selected"
    """Rejection sampling or pair mining did not choose it."""
    VALUE_ESTIMATE = "value_estimate"
    """A continuation that was sampled only to see what a state is worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A decision not to train."""

    group_id: str
    member: int
    reason: DropReason
    turns: tuple[int, ...] | None = None
    """Indices of the turns; None is the whole trajectory."""


class LedgerError(TrainingError):
    """A token would train that was not sampled so, or twice, or is lost. Raised before the weights change."""

    def __init__(self, message: str, *, group_id: str, member: int) -> None:
        super().__init__(message)
        self.group_id = group_id
        self.member = member


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One trajectory's account: `sampled == trained + sum(dropped.values())`, in tokens."""

    group_id: str
    member: int
    attempt: int
    sampled: int
    trained: int
    dropped: Mapping[str, int]
    tokens_digest: str
    """Of token ids, log-probabilities and versions of every turn (see `sampled.digest_tokens`)."""
    advantages_digest: str
    """Of the advantages that train (see `sampled.digest_advantages`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLedger:
    """The account of one step."""

    step: int
    version: int
    """Weight version that trains."""
    max_staleness: int
    """How many versions older a token may be."""
    num_updates: int
    """Optimizer steps the batch is cut into."""
    context_trained: int
    """Observation tokens that train (the unmasked-observation ablation); else 0."""
    entries: tuple[Entry, ...] = field(repr=False)

    @property
    def sampled(self) -> int:
        """Sampled tokens of all trajectories."""
        return sum(entry.sampled for entry in self.entries)

    @property
    def trained(self) -> int:
        """Those that train."""
        return sum(entry.trained for entry in self.entries)

    @property
    def dropped(self) -> dict[str, int]:
        """Those that do not, by reason."""
        total: Counter[str] = Counter()
        for entry in self.entries:
            total.update(entry.dropped)
        return dict(total)


def reconcile(
    step: int,
    groups: Sequence[TrajectoryGroup],
    updates: Sequence[Sequence[Sample]],
    drops: Iterable[Drop] = (),
    *,
    version: int,
    retried: Sequence[Trajectory] = (),
    max_staleness: int = 0,
    max_times: int | None = 1,
    observations_train: bool = False,
) -> StepLedger:
    """Prove the identity for one step, before its first optimizer step.

    Args:
        step: RL step, for messages and the record.
        groups: everything that was sampled for the step, filtered groups included.
        updates: the samples of each optimizer step, exactly as they will train.
        drops: why trajectories or turns do not train. Invalid ones need none.
        version: weight version that trains.
        retried: attempts that were thrown away for another at the same member. They never train.
        max_staleness: how many versions older a trained token may be.
        max_times: how often a token may train in this step; None where one trajectory stands in several pairs.
        observations_train: whether observation tokens may carry loss.

    Raises:
        LedgerError: naming trajectory, turn and what is wrong.
    """
    accounts: dict[Key, _Account] = {}
    for group in groups:
        for trajectory in group.trajectories:
            key = (trajectory.group_id, trajectory.member)
            if key in accounts or trajectory.group_id != group.group_id:
                raise _breach(
                    step, key, "two trajectories of this step have this name; group ids and members must be unique"
                )
            accounts[key] = _Account(step, trajectory)
    context_trained = 0
    for sample in (sample for update in updates for sample in update):
        key = (sample.origin.group_id, sample.origin.member)
        if key not in accounts:
            raise _breach(step, key, "a sample trains a trajectory that was not sampled in this step")
        context_trained += accounts[key].train(sample, version, max_staleness, observations_train)
    for drop in drops:
        key = (drop.group_id, drop.member)
        if key not in accounts:
            raise _breach(step, key, f"{drop.reason.value!r} drops a trajectory that was not sampled in this step")
        accounts[key].drop(drop)
    return StepLedger(
        step=step,
        version=version,
        max_staleness=max_staleness,
        num_updates=len(updates),
        context_trained=context_trained,
        entries=(*(account.close(max_times) for account in accounts.values()), *_list_retried(step, retried, accounts)),
    )


def _list_retried(step: int, retried: Sequence[Trajectory], accounts: Mapping[Key, _Account]) -> list[Entry]:
    """Accounts of attempts that were thrown away and had sampled something: everything is dropped."""
    entries: dict[tuple[str, int, int], Entry] = {}
    for trajectory in retried:
        key = (trajectory.group_id, trajectory.member)
        name = (*key, trajectory.attempt)
        if key not in accounts:
            raise _breach(step, key, f"attempt {trajectory.attempt} was retried, and no attempt of this member is left")
        if name in entries or trajectory.attempt >= accounts[key].attempt:
            raise _breach(
                step, key, f"attempt {trajectory.attempt} is accounted for twice, or is not before the one that counts"
            )
        if not (sampled := trajectory.num_sampled_tokens):
            continue
        entries[name] = Entry(
            group_id=trajectory.group_id,
            member=trajectory.member,
            attempt=trajectory.attempt,
            sampled=sampled,
            trained=0,
            dropped={DropReason.RETRIED.value: sampled},
            tokens_digest=digest_tokens(trajectory),
            advantages_digest=digest_advantages(None),
        )
    return list(entries.values())


class _Account:
    """Counts one trajectory's tokens, turn by turn."""

    def __init__(self, step: int, trajectory: Trajectory) -> None:
        self._step = step
        self._trajectory = trajectory
        self._key = (trajectory.group_id, trajectory.member)
        self.attempt = trajectory.attempt
        self._branches = trajectory.branches()
        self._times = [np.zeros(len(turn.completion.token_ids), np.int64) for turn in trajectory.turns]
        self._advantages: list[FloatArray | None] = [None] * len(trajectory.turns)
        self._reasons: dict[int, str] = {}

    def train(self, sample: Sample, version: int, max_staleness: int, observations_train: bool) -> int:
        """Take one sample; returns how many observation tokens of it train."""
        branch = sample.origin.branch
        if not 0 <= branch < len(self._branches):
            raise self._error(f"a sample trains branch {branch}, the trajectory has {len(self._branches)}")
        length = sum(
            len(self._trajectory.turns[i].context_ids) + len(self._trajectory.turns[i].completion.token_ids)
            for i in self._branches[branch]
        )
        if length != len(sample.token_ids):
            raise self._error(
                f"a sample of branch {branch} has {len(sample.token_ids)} tokens, its turns have {length}"
            )
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
        """Note a reason; one turn has one."""
        for index in range(len(self._times)) if drop.turns is None else drop.turns:
            if not 0 <= index < len(self._times):
                raise self._error(f"{drop.reason.value!r} drops turn {index}, the trajectory has {len(self._times)}")
            earlier = self._reasons.setdefault(index, drop.reason.value)
            if earlier != drop.reason.value:
                raise self._error(
                    f"turn {index} is dropped as {earlier!r} and as {drop.reason.value!r}; give one reason"
                )

    def close(self, max_times: int | None) -> Entry:
        """The account, balanced."""
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
                    f"sampled token {token} of turn {index} trains {times[token]} times, at most {max_times} is allowed"
                )
            reason = DropReason.INVALID.value if invalid else self._reasons.get(index)
            if once and reason is not None:
                raise self._error(
                    f"turn {index} is dropped as {reason!r} and yet {once} of its {len(times)} tokens train"
                )
            if once < len(times):
                if reason is None:
                    raise self._error(
                        f"{len(times) - once} of {len(times)} sampled tokens of turn {index} neither train nor are "
                        "dropped"
                    )
                dropped[reason] += len(times)
        trajectory = self._trajectory
        return Entry(
            group_id=trajectory.group_id,
            member=trajectory.member,
            attempt=trajectory.attempt,
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
        """How many context tokens of this turn train; a breach unless they may."""
        trained = sample.loss_mask[span]
        allowed = (
            sample.context_mask[span]
            if observations_train and len(sample.context_mask)
            else np.zeros(len(trained), np.bool_)
        )
        wrong = np.flatnonzero(trained & ~allowed)
        if len(wrong):
            raise self._error(
                f"context token {wrong[0]} of turn {index} trains; nobody sampled it (the loss mask is shifted or "
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
            found = f"{first}..{last}"
            raise self._error(
                f"turn {index} was sampled by weight version {found}, version {version} trains with max_staleness "
                f"{max_staleness}; "
                "the engine did not adopt the new weights, or the batch is stale"
            )

    def _compare(self, index: int, what: str, expected: np.ndarray, found: np.ndarray) -> None:
        different = np.flatnonzero(expected != found)
        if len(different):
            at = int(different[0])
            raise self._error(
                f"{what} {at} of turn {index} is {found[at]} in the sample, {expected[at]} was recorded at sampling"
            )

    def _error(self, text: str) -> LedgerError:
        return _breach(self._step, self._key, text)


def append_ledger(run: Path, ledger: StepLedger) -> None:
    """Append one line to `run/ledger.jsonl` and wait for the disk; readable at once. Raises StoreError when the disk
    refuses."""
    row: dict[str, Any] = {
        "step": ledger.step,
        "version": ledger.version,
        "max_staleness": ledger.max_staleness,
        "num_updates": ledger.num_updates,
        "sampled": ledger.sampled,
        "trained": ledger.trained,
        "dropped": ledger.dropped,
        "context_trained": ledger.context_trained,
        "trajectories": [
            [
                e.group_id,
                e.member,
                e.attempt,
                e.sampled,
                e.trained,
                dict(e.dropped),
                e.tokens_digest,
                e.advantages_digest,
            ]
            for e in ledger.entries
        ],
    }
    append_line(run / LEDGER, row)


def load_ledgers(run: Path) -> dict[int, StepLedger]:
    """Every step's account; empty where the run kept none. Raises StoreError naming file and step of a line that does
    not add up."""
    ledgers: dict[int, StepLedger] = {}
    for row in read_lines(run / LEDGER):
        step = row.get("step")
        try:
            entries = tuple(
                Entry(
                    group_id=group_id,
                    member=member,
                    attempt=attempt,
                    sampled=sampled,
                    trained=trained,
                    dropped=dropped,
                    tokens_digest=tokens,
                    advantages_digest=advantages,
                )
                for group_id, member, attempt, sampled, trained, dropped, tokens, advantages in row["trajectories"]
            )
            ledger = StepLedger(
                step=row["step"],
                version=row["version"],
                max_staleness=row["max_staleness"],
                num_updates=row["num_updates"],
                context_trained=row["context_trained"],
                entries=entries,
            )
            balanced = all(e.sampled == e.trained + sum(e.dropped.values()) for e in entries)
        except (KeyError, TypeError, ValueError, AttributeError) as cause:
            raise StoreError(
                f"{run / LEDGER}, step {step} is not a ledger line ({type(cause).__name__}: {cause})"
            ) from cause
        if not balanced or (ledger.sampled, ledger.trained, ledger.dropped) != (
            row["sampled"],
            row["trained"],
            row["dropped"],
        ):
            raise StoreError(
                f"{run / LEDGER}, step {step}: the totals are not the sums of the trajectories; the line was changed"
            )
        if ledger.step in ledgers:
            raise StoreError(f"{run / LEDGER} accounts for step {step} twice; the file was changed")
        ledgers[ledger.step] = ledger
    return ledgers


def _breach(step: int, key: Key, text: str) -> LedgerError:
    group_id, member = key
    message = (
        f"token ledger, step {step}, trajectory {group_id}/{member}: {text}. The weights were not changed by this step"
    )
    return LedgerError(message, group_id=group_id, member=member)
