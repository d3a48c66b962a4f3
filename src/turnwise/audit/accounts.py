"""Check that journal, ledger and stored groups agree on the fate of every draw and every sampled token."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnwise.audit.breaches import Breach
from turnwise.core.paths import take_received
from turnwise.core.sampled import digest_advantages, digest_tokens, token_versions
from turnwise.core.types import DropReason, Invalid, Trajectory, TrajectoryGroup, TrajectoryId
from turnwise.store.advantages import TurnAdvantages
from turnwise.store.journal import DrawRecord, JournalState
from turnwise.store.ledger import GroupAccount, account_dropped
from turnwise.store.token_account import Entry, LedgerError

NOT_MEMBERS = {DropReason.RETRIED.value, DropReason.LATE.value, DropReason.OVERDRAWN.value}
"""Reasons that discard a trajectory of a group that trains."""

Advantages = Mapping[TrajectoryId, TurnAdvantages | None]


def choose_accounts(accounts: Iterable[GroupAccount]) -> dict[int, GroupAccount]:
    """One account per draw, the one that shares the draw's fate: that of a role that learns, if there is one."""
    chosen: dict[int, GroupAccount] = {}
    for account in accounts:
        before = chosen.get(account.draw)
        if before is None or before.fate is DropReason.NOT_LEARNING:
            chosen[account.draw] = account
    return chosen


def check_fates(journal: JournalState, accounts: Mapping[int, GroupAccount], *, last_step: int) -> list[Breach]:
    """Check that every draw that a finished step took or dropped has one account with that fate, in the order in which
    the draws were taken, and that no other draw has one.

    `last_step` is the last finished step; draws of later steps may be in flight and are left alone. A dropped draw that
    never finished stored nothing and needs no account.
    """
    breaches = []
    for record in journal.draws.values():
        account = accounts.get(record.draw)
        text = None
        if record.step is not None and record.step > last_step:
            continue
        if account is None:
            if record.step is not None and record.digest is not None:
                text = f"the journal has it {record.fate} by step {record.step}, the ledger has no account of it"
        elif record.step is None and account.step <= last_step:
            text = f"the ledger has it {account.fate} by step {account.step}, in the journal it is {record.fate}"
        elif record.step is not None:
            text = _find_difference(journal, record, account)
        if text is not None:
            breaches.append(Breach(check="journal", step=record.step, draw=record.draw, text=text))
    for draw, account in accounts.items():
        if draw not in journal.draws and account.step <= last_step:
            text = "the ledger has an account of it, the journal never opened it"
            breaches.append(Breach(check="journal", step=account.step, draw=draw, text=text))
    for step, draws in journal.taken.items():
        order = [draw for draw, account in accounts.items() if (account.fate, account.step) == ("trained", step)]
        if step <= last_step and order != list(draws) and set(order) == set(draws):
            text = f"the journal took draws {list(draws)}, the ledger accounts for them as {order}"
            breaches.append(Breach(check="journal", step=step, text=text))
    return breaches


def _find_difference(journal: JournalState, record: DrawRecord, account: GroupAccount) -> str | None:
    fate = "trained" if record.fate == "taken" else str(record.reason)
    if (str(account.fate), account.step) != (fate, record.step):
        return (
            f"the journal has it {fate} by step {record.step}, the ledger has it {account.fate} by step {account.step}"
        )
    if account.pool != record.pool:
        return f"the journal has it drawn for {record.pool!r}, the ledger for {account.pool!r}"
    if account.start_version != record.version:
        return f"the journal opened it under version {record.version}, the ledger says {account.start_version}"
    if record.fate == "taken":
        before = journal.trained.get(account.step - 1)
        if account.version != (0 if before is None else before.version):
            version = 0 if before is None else before.version
            return f"weight version {version} trained in step {record.step}, the ledger says {account.version}"
    return None


def check_steps(journal: JournalState, steps: Sequence[int]) -> list[Breach]:
    """Check that the journal took and trained every finished step of the metrics, without a gap."""
    breaches = []
    for step in range(1, max(steps, default=0) + 1):
        if step not in steps:
            breaches.append(Breach(check="files", step=step, text="metrics.jsonl has later steps and not this one"))
        elif step not in journal.trained:
            breaches.append(Breach(check="journal", step=step, text="it is finished and the journal never trained it"))
    return breaches


def check_account(
    account: GroupAccount, group: TrajectoryGroup, advantages: Advantages | None, *, max_staleness: int
) -> list[Breach]:
    """Check that the stored group matches its account, token by token: counts, digests of tokens and advantages,
    versions.

    `advantages` are those of the step that trained it; None if its algorithm has none.
    """
    if account.fate != "trained":
        return _check_dropped(account, group)
    breaches = []
    stored = {t.id: t for t in (*group.trajectories, *(each.trajectory for each in group.discarded))}
    accounted = {entry.trajectory: entry for entry in account.entries}
    members = {t.id for t in group.trajectories}
    reasons = {each.trajectory.id: each.reason.value for each in group.discarded}
    for name in sorted(accounted.keys() | stored.keys()):
        texts: list[str] = []
        if name not in stored:
            texts.append("the ledger accounts for it, the store does not hold it")
        elif name not in accounted:
            if stored[name].num_sampled_tokens or name in members:
                texts.append("it is stored and not in the ledger")
        else:
            entry, trajectory = accounted[name], stored[name]
            texts += _compare_tokens(entry, trajectory)
            texts += _check_trained(entry, trajectory, advantages)
            texts += [] if name in reasons else _check_undelivered(entry, trajectory)
            texts += _check_ages(account, entry, trajectory, max_staleness)
            as_discarded = {reasons[name]} if name in reasons else set(entry.dropped) - NOT_MEMBERS
            if set(entry.dropped) != as_discarded:
                place = f"discarded as {reasons[name]!r}" if name in reasons else "a member"
                texts.append(f"it is stored as {place}, the ledger has it dropped as {dict(entry.dropped)}")
        breaches += [Breach(check="ledger", step=account.step, trajectory=name, text=text) for text in texts]
    if len(accounted) != len(account.entries):
        text = "the ledger line accounts for a trajectory twice"
        breaches.append(Breach(check="ledger", step=account.step, draw=account.draw, text=text))
    return breaches


def _check_dropped(account: GroupAccount, group: TrajectoryGroup) -> list[Breach]:
    """Check that the account of a group that never trained follows from what is stored."""
    try:
        recomputed = account_dropped(group, account.fate, step=account.step, version=account.version)  # type: ignore[arg-type]
    except LedgerError as cause:
        return [Breach(check="ledger", step=account.step, trajectory=cause.trajectory, text=str(cause))]
    if replace(recomputed, pool=account.pool) == account:
        return []
    text = (
        f"the ledger has {account.sampled} sampled tokens dropped as {account.dropped}, the store gives "
        f"{recomputed.sampled} dropped as {recomputed.dropped}, or other tokens"
    )
    return [Breach(check="ledger", step=account.step, draw=account.draw, text=text)]


def _compare_tokens(entry: Entry, trajectory: Trajectory) -> Iterator[str]:
    if trajectory.num_sampled_tokens != entry.sampled:
        yield f"the store has {trajectory.num_sampled_tokens} sampled tokens, the ledger {entry.sampled}"
    elif digest_tokens(trajectory) != entry.tokens_digest:
        yield (
            "its stored token ids, log-probabilities, versions, pictures or turns are not those that were reconciled "
            "before training"
        )


def _check_trained(entry: Entry, trajectory: Trajectory, advantages: Advantages | None) -> Iterator[str]:
    if entry.trained and isinstance(trajectory.reward, Invalid):
        yield "it trained although its stored reward is Invalid"
    if entry.trained and not trajectory.learns:
        yield "it trained although its role is played by a policy that does not learn"
    if advantages is None:
        return
    credited = advantages.get(entry.trajectory) or []
    trained = sum(len(values) for values in credited if values is not None)
    if trained != entry.trained:
        yield f"{trained} tokens have stored advantages, the ledger says that {entry.trained} trained"
    elif entry.trained and digest_advantages(credited) != entry.advantages_digest:
        yield "its stored advantages are not those that trained"


def _check_undelivered(entry: Entry, trajectory: Trajectory) -> Iterator[str]:
    if isinstance(trajectory.reward, Invalid):
        return
    lost = trajectory.num_sampled_tokens - take_received(trajectory).num_sampled_tokens
    stated = entry.dropped.get(DropReason.UNDELIVERED.value, 0)
    if lost != stated:
        yield f"{lost} of its stored tokens were received by nobody, the ledger has {stated} dropped for it"


def _check_ages(account: GroupAccount, entry: Entry, trajectory: Trajectory, max_staleness: int) -> Iterator[str]:
    """Compare the versions of every token with the weights that trained."""
    newest, oldest = account.version, account.version - max_staleness
    for index, turn in enumerate(trajectory.turns):
        versions = token_versions(turn.completion)
        first, last = turn.completion.version_first, turn.completion.version_last
        if versions is not None:
            first, last = int(versions.min()), int(versions.max())
        if first < account.start_version:
            started = account.start_version
            yield f"turn {index} was sampled by weight version {first}, its group was opened under version {started}"
        if entry.trained and not oldest <= first <= last <= newest:
            yield (
                f"turn {index} was sampled by weight versions {first}..{last}, the step trained on versions "
                f"{oldest} to {newest}"
            )


def check_totals(
    step: int, accounts: Sequence[GroupAccount], metrics: Mapping[str, Any], *, epochs: int = 1
) -> list[Breach]:
    """Check that the step's published metrics are the totals of its accounts. Metrics that were not recorded are not
    compared.

    `accounts` belong to the groups that the step trained, in so many epochs, or that were dropped before it.
    """
    expected: Counter[str] = Counter()
    for account in accounts:
        lead = f"{account.learner}/" if account.learner else ""
        expected["rollout/sampled_tokens"] += account.sampled
        expected[f"{lead}train/trained_tokens"] += epochs * (account.trained + account.context_trained)
    breaches = []
    for name, value in expected.items():
        published = metrics.get(name)
        if isinstance(published, (int, float)) and not math.isclose(published, value):
            text = f"metrics.jsonl says {name} = {published:g}, the ledger {value}"
            breaches.append(Breach(check="ledger", step=step, text=text))
    return breaches
