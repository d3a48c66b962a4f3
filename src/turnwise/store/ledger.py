"""The token ledger proves that every sampled token is trained once or dropped for a stated reason.

The proof precedes every optimizer step. For each group, per trajectory and in total:

    sampled = trained + dropped        dropped by reason: see `core.types.DropReason`

`account_batch` and `account_group` walk every sample that is about to train back to the turn it was cut from and
compare token ids, log-probabilities, mask and versions. The result is one line of `ledger.jsonl` per group, appended
before the weights change; a group that never trains has a line too (`account_dropped`):

    {"draw": 57, "fate": "trained", "step": 8, "version": 7, "start_version": 6, "trajectories": [...], ...}

A group's baseline is not a rollout and has no account.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from turnwise.core.batch import Drop
from turnwise.core.errors import StoreError
from turnwise.core.roles import learns
from turnwise.core.sampled import token_versions
from turnwise.core.types import DropReason, Invalid, Sample, TrajectoryGroup, TrajectoryId
from turnwise.store.run_folder import LEDGER, append_lines, check_format, read_lines
from turnwise.store.token_account import Entry, TokenAccount, breach, drop_whole

REMEDY = (
    "the file was changed, or two processes wrote it; restore it from a copy, or keep what can be proven with "
    "`turnwise train --resume`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAccount:
    """The account of one group."""

    draw: int
    role: str
    fate: DropReason | Literal["trained"]
    """"trained" if the group was part of a batch, even if none of its tokens carried loss."""
    step: int
    """The step that trained it, or, for a dropped group, the next step to train."""
    version: int
    """Weight version that trained, or that was the next to train when the group was dropped."""
    start_version: int
    """Weight version when the group started."""
    oldest_version: int | None
    """Weight version of its oldest sampled token; None if no token has one."""
    max_staleness: int | None
    """How many versions older than `version` a trained token may be; None for a dropped group."""
    context_trained: int
    """Number of observation tokens that train (the unmasked-observation ablation); else 0."""
    entries: tuple[Entry, ...] = field(repr=False)
    learner: str = ""
    """The learner that trained it; empty for the first learner, and if nothing was trained."""
    pool: str = ""
    """What a curriculum drew it for; empty without one."""

    @property
    def sampled(self) -> int:
        """Number of sampled tokens in all trajectories."""
        return sum(entry.sampled for entry in self.entries)

    @property
    def trained(self) -> int:
        """Number of those tokens that train."""
        return sum(entry.trained for entry in self.entries)

    @property
    def dropped(self) -> dict[str, int]:
        """Number of tokens that do not train, by reason."""
        total: Counter[str] = Counter()
        for entry in self.entries:
            total.update(entry.dropped)
        return dict(total)


def account_batch(
    groups: Sequence[TrajectoryGroup],
    samples_by_update: Sequence[Sequence[Sample]],
    drops: Iterable[Drop] = (),
    *,
    step: int,
    version: int,
    max_staleness: int,
    max_times: int | None = 1,
    observations_train: bool = False,
    learner: str = "",
) -> list[GroupAccount]:
    """Prove the identity for every group of a step, before its first optimizer step.

    Args:
        groups: the groups that the step trains on, each draw and role once.
        samples_by_update: the samples of each optimizer step, exactly as they will train.
        drops: why trajectories or turns do not train. Invalid and discarded ones need none.
        step: RL step, for messages and the record.
        version: weight version that trains.
        max_staleness: how many versions older a trained token may be.
        max_times: how often a token may train in this step; None if one trajectory may be in several pairs.
        observations_train: whether observation tokens may carry loss.
        learner: the learner that trains all of them; the first has no name.

    Raises:
        LedgerError: naming trajectory, turn and what is wrong.
    """
    samples: list[list[Sample]] = [[] for _ in groups]
    stated: list[list[Drop]] = [[] for _ in groups]
    owners: dict[TrajectoryId, int] = {}
    for index, group in enumerate(groups):
        for trajectory in group.trajectories:
            if owners.setdefault(trajectory.id, index) != index:
                raise breach(step, trajectory.id, "two groups of this batch have a trajectory with the same name")
    for sample in (sample for update in samples_by_update for sample in update):
        owner = owners.get(sample.origin.trajectory)
        if owner is None:
            raise breach(step, sample.origin.trajectory, "a sample trains a trajectory that is not in the batch")
        samples[owner].append(sample)
    for drop in drops:
        owner = owners.get(drop.trajectory)
        if owner is None:
            raise breach(step, drop.trajectory, f"{drop.reason.value!r} drops a trajectory that is not in the batch")
        stated[owner].append(drop)
    return [
        account_group(
            group,
            samples[index],
            stated[index],
            step=step,
            version=version,
            max_staleness=max_staleness,
            max_times=max_times,
            observations_train=observations_train,
            learner=learner,
        )
        for index, group in enumerate(groups)
    ]


def account_group(
    group: TrajectoryGroup,
    samples: Sequence[Sample],
    drops: Iterable[Drop] = (),
    *,
    step: int,
    version: int,
    max_staleness: int,
    max_times: int | None = 1,
    observations_train: bool = False,
    learner: str = "",
) -> GroupAccount:
    """Prove the identity for one group, before the first optimizer step that trains it.

    Arguments and errors as in `account_batch`.
    """
    accounts = {t.id: TokenAccount(step, t) for t in group.trajectories}
    _check_names(group, step)
    context_trained = 0
    for sample in samples:
        name = sample.origin.trajectory
        if name not in accounts:
            raise breach(step, name, "a sample trains a trajectory that is not a member of its group")
        context_trained += accounts[name].train(sample, version, max_staleness, observations_train)
    for drop in drops:
        if drop.trajectory not in accounts:
            text = f"{drop.reason.value!r} drops a trajectory that is not a member of its group"
            raise breach(step, drop.trajectory, text)
        accounts[drop.trajectory].drop(drop)
    return GroupAccount(
        draw=group.draw.index,
        role=group.role,
        fate="trained",
        step=step,
        version=version,
        start_version=group.version,
        oldest_version=_find_oldest_version(group, step),
        max_staleness=max_staleness,
        context_trained=context_trained,
        entries=(*(account.close(max_times) for account in accounts.values()), *_list_discarded(group)),
        learner=learner,
    )


def account_dropped(group: TrajectoryGroup, reason: DropReason, *, step: int, version: int) -> GroupAccount:
    """Return the account of a group that never trains: every token of a scored member is dropped for `reason`, or
    because its role does not learn.

    `step` is the next step that trains, `version` the weights it starts from. Raises LedgerError when two trajectories
    of the group have the same name.
    """
    _check_names(group, step)
    reason = reason if learns(group) else DropReason.NOT_LEARNING
    return GroupAccount(
        draw=group.draw.index,
        role=group.role,
        fate=reason,
        step=step,
        version=version,
        start_version=group.version,
        oldest_version=_find_oldest_version(group, step),
        max_staleness=None,
        context_trained=0,
        entries=(
            *(
                drop_whole(t, DropReason.INVALID if isinstance(t.reward, Invalid) else reason)
                for t in group.trajectories
            ),
            *_list_discarded(group),
        ),
    )


def append_accounts(run: Path, accounts: Sequence[GroupAccount]) -> None:
    """Append one line per account to `run/ledger.jsonl` and wait for the disk once; readable at once.

    Raises StoreError when the disk refuses; then none of the lines is kept.
    """
    append_lines(run / LEDGER, [_to_row(account) for account in accounts])


def load_accounts(run: Path) -> list[GroupAccount]:
    """Load the account of every group that trained or was dropped, in the order of the file; empty if there is none
    yet.

    Raises StoreError naming file and draw for a line that does not add up or a second line for one draw, or when the
    run has another format.
    """
    check_format(run)
    accounts: dict[tuple[int, str], GroupAccount] = {}
    for row in read_lines(run / LEDGER):
        try:
            account = parse_account(row)
        except ValueError as cause:
            raise StoreError(f"{run / LEDGER}, draw {row.get('draw')}{cause}; {REMEDY}") from cause
        if (account.draw, account.role) in accounts:
            raise StoreError(f"{run / LEDGER} accounts for draw {account.draw} twice; {REMEDY}")
        accounts[account.draw, account.role] = account
    return list(accounts.values())


def parse_account(row: Mapping[str, Any]) -> GroupAccount:
    """Return the account in a line. Raises ValueError saying why it is not an account, or does not add up."""
    try:
        account = _from_row(row)
        balanced = all(entry.sampled == entry.trained + sum(entry.dropped.values()) for entry in account.entries)
        totals = (row["sampled"], row["trained"], row["dropped"])
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise ValueError(f" is not a ledger line ({type(cause).__name__}: {cause})") from cause
    if not balanced or (account.sampled, account.trained, account.dropped) != totals:
        raise ValueError(": the totals are not the sums of the trajectories")
    return account


def _check_names(group: TrajectoryGroup, step: int) -> None:
    """Raise LedgerError unless names, draws and roles of the trajectories fit the group.

    Every trajectory must have a unique name with the group's draw and role, and every retried attempt must precede
    another attempt at the same member.
    """
    names: set[TrajectoryId] = set()
    baseline = () if group.baseline is None else (group.baseline,)
    for trajectory in (*group.trajectories, *(each.trajectory for each in group.discarded), *baseline):
        name = trajectory.id
        if name in names or (name.draw, name.role) != (group.draw.index, group.role):
            text = f"its name must be unique in its group, of draw {group.draw.index} and role {group.role!r}"
            raise breach(step, name, text)
        names.add(name)
    attempts = [t.id for t in (*group.trajectories, *(each.trajectory for each in group.discarded))]
    for name in (each.trajectory.id for each in group.discarded if each.reason is DropReason.RETRIED):
        if not any(other.member == name.member and other.attempt > name.attempt for other in attempts):
            text = f"attempt {name.attempt} was retried, and no later attempt of this member is left"
            raise breach(step, name, text)


def _list_discarded(group: TrajectoryGroup) -> list[Entry]:
    """Return the accounts of discarded trajectories that sampled anything: all their tokens are dropped."""
    return [drop_whole(each.trajectory, each.reason) for each in group.discarded if each.trajectory.num_sampled_tokens]


def _find_oldest_version(group: TrajectoryGroup, step: int) -> int | None:
    """Return the version of the oldest token; None if nothing was sampled, and for a role that does not learn, whose
    versions are not those of the trained weights. Raises LedgerError when a token is older than the group's start."""
    oldest: int | None = None
    if not learns(group):
        return None
    for trajectory in (*group.trajectories, *(each.trajectory for each in group.discarded)):
        for index, turn in enumerate(trajectory.turns):
            versions = token_versions(turn.completion)
            first = turn.completion.version_first if versions is None else int(versions.min())
            if first < group.version:
                text = (
                    f"turn {index} was sampled by weight version {first}, its group was opened under version "
                    f"{group.version}"
                )
                raise breach(step, trajectory.id, text)
            oldest = first if oldest is None else min(oldest, first)
    return oldest


def _to_row(account: GroupAccount) -> dict[str, Any]:
    return {
        "draw": account.draw,
        "role": account.role,
        **({"learner": account.learner} if account.learner else {}),
        **({"pool": account.pool} if account.pool else {}),
        "fate": str(account.fate),
        "step": account.step,
        "version": account.version,
        "start_version": account.start_version,
        "oldest_version": account.oldest_version,
        "max_staleness": account.max_staleness,
        "sampled": account.sampled,
        "trained": account.trained,
        "dropped": account.dropped,
        "context_trained": account.context_trained,
        "trajectories": [
            [
                entry.trajectory.member,
                entry.trajectory.attempt,
                entry.sampled,
                entry.trained,
                dict(entry.dropped),
                entry.tokens_digest,
                entry.advantages_digest,
            ]
            for entry in account.entries
        ],
    }


def _from_row(row: Mapping[str, Any]) -> GroupAccount:
    draw, role = row["draw"], row["role"]
    return GroupAccount(
        draw=draw,
        role=role,
        learner=row.get("learner", ""),
        pool=row.get("pool", ""),
        fate="trained" if row["fate"] == "trained" else DropReason(row["fate"]),
        step=row["step"],
        version=row["version"],
        start_version=row["start_version"],
        oldest_version=row["oldest_version"],
        max_staleness=row["max_staleness"],
        context_trained=row["context_trained"],
        entries=tuple(
            Entry(
                trajectory=TrajectoryId(draw=draw, member=member, attempt=attempt, role=role),
                sampled=sampled,
                trained=trained,
                dropped=dropped,
                tokens_digest=tokens,
                advantages_digest=advantages,
            )
            for member, attempt, sampled, trained, dropped, tokens, advantages in row["trajectories"]
        ),
    )
