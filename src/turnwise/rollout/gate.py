"""Decides which groups may start and which train next, so that no group is too old when it trains. Pure: events in,
decisions out.

A group that starts while the engines serve version s has the *deadline* s + eta, where eta is `max_staleness`: the
weights that train it may be at most that version, so its age at training is at most eta. The next batches train
versions t, t + 1, t + 2 and so on, one after the other; each takes B groups (`batch_groups`).

**Theorem** (feasibility under earliest deadline first). Let d_0 <= d_1 <= ... be the deadlines of all outstanding
groups. Some division into batches trains every group by its deadline if and only if d_i >= t + i // B for every i.

*Necessary*: groups 0 to i have deadlines of at most d_i, and batches t to d_i take (d_i - t + 1) * B groups, so
i + 1 <= (d_i - t + 1) * B, which is i // B <= d_i - t. *Sufficient*: in the order of their deadlines, group i trains in
batch t + i // B.

The gate opens a group only if the condition holds with it, and trains a batch only if the condition holds for the
others at t + 1. Hence the bound is hard and no group is dropped to keep it. There is no deadlock: when all outstanding
groups have finished, either they are fewer than B and another may open, or the B earliest deadlines may train. Nothing
more permissive is safe: if a group opens against the condition, some group is too old when it trains, whatever the
order of the batches, unless a group leaves.

Assumptions:

- `publish` is reported after every engine serves the new version. So no token of a group is older than the version it
  started under; later tokens may be younger.
- One batch trains at a time and raises the version by one. Only the last batch of a run may hold fewer than B groups.
- Every open group eventually finishes or leaves. When a group leaves, the condition still holds.

With eta = 0 this is synchronous training: the outstanding groups are at most one batch, all of the version that
trains, and none may start while the trainer is busy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Late = Literal["wait", "cut", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRule:
    """The staleness bound, and what happens to groups that reach it. Raises ValueError for contradictory values."""

    batch_groups: int
    """Groups that train together."""
    max_staleness: int
    """Versions by which the weights that train a group may be newer than those it started under; 0 is synchronous."""
    max_open_groups: int
    """Most groups outstanding at once: running, or finished and waiting to train. At least `batch_groups`."""
    late: Late = "wait"
    """What happens to a group that holds back a full batch of finished groups because its deadline is earlier. "wait":
    the batch waits. "cut": the group trains without its unfinished members. "drop": the group leaves."""
    patience_s: float = 0.0
    """Seconds that late groups may hold back a batch before they are cut or dropped."""
    min_members: int = 1
    """Finished members that a group needs before it may be cut."""

    def __post_init__(self) -> None:
        problem = None
        if self.batch_groups < 1 or self.max_staleness < 0 or self.min_members < 1:
            problem = "batch_groups and min_members are at least 1, max_staleness is at least 0"
        elif self.max_open_groups < self.batch_groups:
            problem = "max_open_groups is less than batch_groups, so that no batch is ever full; raise it"
        elif self.late not in get_args(Late):
            problem = f"late is one of {', '.join(get_args(Late))}"
        elif not (math.isfinite(self.patience_s) and self.patience_s >= 0):
            problem = "patience_s is a finite number of seconds, at least 0"
        if problem is not None:
            raise ValueError(f"{self}: {problem}")


@dataclass(frozen=True, slots=True)
class Batch:
    """The next batch may train."""

    draws: tuple[int, ...]
    """Its groups, earliest deadline first, ties by the lowest draw."""


@dataclass(frozen=True, slots=True)
class Wait:
    """No batch may train yet."""

    draws: tuple[int, ...]
    """Open groups that would end the wait if they finished: as few as possible, earliest deadlines first. Others may
    end it as well. If fewer groups are outstanding than a batch takes, new groups are needed too."""
    reason: Literal["busy", "unfinished", "deadline"]
    """"busy": the trainer has a batch. "unfinished": fewer groups have finished than a batch takes. "deadline": enough
    have finished, but without `draws` in this batch some group could not train by its deadline."""
    overdue_at_s: float | None = None
    """Time at which patience ends (in the past while `draws` have too few members to be cut); None unless the reason is
    "deadline" and late groups are cut or dropped."""


def meets_deadlines(deadlines: Iterable[int], version: int, batch_groups: int) -> bool:
    """Return whether batches of `batch_groups` groups that train `version`, `version + 1` and so on can take every
    group by its deadline, the last version that may train it: d_i >= version + i // batch_groups in sorted order."""
    return all(deadline >= version + i // batch_groups for i, deadline in enumerate(sorted(deadlines)))


class Gate:
    """The outstanding groups, named by their draw index, and the two versions that matter: the one that engines serve
    and the one that the next batch trains.

    Call `open`, `finish`, `leave`, `train_begins`, `publish` and `close` when these things happen, and ask `may_open`,
    `pick` and `overdue` in between. An event that cannot happen in the present state raises ValueError and changes
    nothing. Clocks are arguments: seconds of any monotonic clock.
    """

    def __init__(self, rule: AdmissionRule, version: int, finished: Mapping[int, int] | None = None) -> None:
        """Start with an idle trainer and engines that serve `version`. For a resumed run, `finished` maps the draw of
        each finished, untrained group to the version it started under; groups that were open start again through
        `open`.

        Raises ValueError if the finished groups cannot all train within the bound, or are newer than `version`; groups
        held by a gate with the same rule never raise."""
        self._rule = rule
        self._version = version
        self._busy = False
        self._closed = False
        self._starts = dict(finished or {})
        self._finished = set(self._starts)
        self._held_back_since: float | None = None
        if newer := sorted(draw for draw, start in self._starts.items() if start > version):
            raise ValueError(f"groups {newer} started under versions newer than {version}; drop them")
        if not self._is_feasible(self._starts.values(), version):
            raise ValueError(
                f"the finished groups cannot all train within max_staleness={rule.max_staleness} at version {version} "
                f"(draw: start version {self._starts}); drop the oldest as too stale"
            )

    @property
    def rule(self) -> AdmissionRule:
        """The rule that the gate enforces."""
        return self._rule

    @property
    def outstanding(self) -> tuple[int, ...]:
        """Draws of the groups that are open or wait to train, earliest deadline first, ties by the lowest draw."""
        return tuple(sorted(self._starts, key=lambda draw: (self._starts[draw], draw)))

    def may_open(self) -> bool:
        """Return whether one more group may start now."""
        if self._closed or len(self._starts) >= self._rule.max_open_groups:
            return False
        return self._is_feasible([*self._starts.values(), self._version], self._next_version)

    def open(self, draw: int) -> None:
        """Record that a group starts under the version that engines serve. Raises ValueError unless `may_open()`."""
        if draw in self._starts:
            raise ValueError(f"group {draw} is already outstanding; open it only once")
        if not self.may_open():
            raise ValueError(f"group {draw} may not open; ask may_open() first")
        self._starts[draw] = self._version

    def finish(self, draw: int) -> None:
        """Record that an open group has all the members it trains with."""
        if draw not in self._starts or draw in self._finished:
            raise ValueError(f"group {draw} is not open, so it cannot finish")
        self._finished.add(draw)

    def leave(self, draw: int) -> None:
        """Record that an outstanding group will not train (dropped, failed, or its rewards teach nothing) and free its
        place."""
        if draw not in self._starts:
            raise ValueError(f"group {draw} is not outstanding, so it cannot be dropped")
        self._forget(draw)

    def close(self) -> None:
        """Record that no further group will start: a batch takes the remaining groups if they are fewer than
        `batch_groups`. Closing twice is allowed."""
        self._closed = True

    def reopen(self) -> None:
        """Allow groups again after `close`: only the batch that was short of groups is over."""
        self._closed = False

    def pick(self, now_s: float) -> Batch | Wait:
        """Return the next batch, or what it waits for. Patience with late groups begins with the first call that names
        them.

        The batch is the finished groups with the earliest deadlines. If that set leaves some group without a batch by
        its deadline, then so does every other set of finished groups."""
        if self._busy:
            return Wait((), "busy")
        order = self.outstanding
        draws = [draw for draw in order if draw in self._finished][: self._batch_size]
        num_missing = self._batch_size - len(draws)
        # Of the groups left behind, (deadline - t) * B may have at most that deadline. Where there are more, all of
        # these are open (a finished one would be preceded by a whole batch of groups with its deadline or an earlier
        # one, more than the condition allows), and the surplus must finish or leave first.
        left_behind = [draw for draw in order if draw not in draws]
        num_late = max((i + 1 - self._room_until(draw) for i, draw in enumerate(left_behind)), default=0)
        unfinished = [draw for draw in order if draw not in self._finished]
        awaited = tuple(unfinished[: max(num_missing, num_late, 0)])
        if num_missing > 0 or num_late <= 0:
            self._held_back_since = None
            # After close() with nothing outstanding there is no batch either.
            return Wait(awaited, "unfinished") if num_missing or not draws else Batch(tuple(draws))
        # While one batch is held back, `awaited` loses groups and gains none, so one clock holds for all of them.
        if self._held_back_since is None:
            self._held_back_since = now_s
        overdue_at_s = None if self._rule.late == "wait" else self._held_back_since + self._rule.patience_s
        return Wait(awaited, "deadline", overdue_at_s)

    def overdue(self, now_s: float, finished_members: Mapping[int, int]) -> tuple[int, ...]:
        """Return the groups that have held back a full batch of finished groups for `patience_s`, earliest deadline
        first.

        The caller cuts their unfinished members and calls `finish`, or drops them and calls `leave`, as `late` says.
        `finished_members` counts the finished members per draw (absent is 0): groups with fewer than `min_members` are
        not cut. Always empty for "wait", and with eta = 0, where no more than one batch is outstanding."""
        decision = self.pick(now_s)
        if isinstance(decision, Batch) or decision.overdue_at_s is None or now_s < decision.overdue_at_s:
            return ()
        min_members = self._rule.min_members if self._rule.late == "cut" else 0
        return tuple(draw for draw in decision.draws if finished_members.get(draw, 0) >= min_members)

    def train_begins(self, draws: Sequence[int]) -> None:
        """Record that the trainer takes a batch; these groups are no longer outstanding. After `close` with nothing
        outstanding the batch is empty: a step without groups. Raises ValueError for a batch that `pick` could not have
        returned: groups that are not finished, too few, too many, or one that breaks the bound."""
        if self._busy:
            raise ValueError(f"the trainer is busy until version {self._version + 1} is published; one batch at a time")
        if unfit := sorted(set(draws) - self._finished):
            raise ValueError(f"groups {unfit} have not finished, so they cannot train")
        if len(set(draws)) != len(draws) or len(draws) != self._batch_size:
            raise ValueError(f"{list(draws)} is not a batch of {self._batch_size} distinct groups")
        left_behind = [start for draw, start in self._starts.items() if draw not in draws]
        if not self._is_feasible(left_behind, self._next_version + 1):
            raise ValueError(f"training {list(draws)} leaves behind a group that would miss its deadline; train pick()")
        for draw in draws:
            self._forget(draw)
        self._held_back_since = None
        self._busy = True

    def publish(self, version: int) -> None:
        """Record that every engine serves the version that the last batch trained; the trainer is idle."""
        if not self._busy or version != self._version + 1:
            state = f"trains version {self._version + 1}" if self._busy else f"is idle at version {self._version}"
            raise ValueError(f"version {version} cannot be published: the trainer {state}")
        self._busy = False
        self._version = version

    @property
    def _next_version(self) -> int:
        """t: the version of the weights before the next batch trains them."""
        return self._version + self._busy

    @property
    def _batch_size(self) -> int:
        """Number of groups in the next batch."""
        return min(self._rule.batch_groups, len(self._starts)) if self._closed else self._rule.batch_groups

    def _is_feasible(self, starts: Iterable[int], version: int) -> bool:
        deadlines = [start + self._rule.max_staleness for start in starts]
        return meets_deadlines(deadlines, version, self._rule.batch_groups)

    def _room_until(self, draw: int) -> int:
        """Return how many groups the batches after the next one take until this group's deadline."""
        return (self._starts[draw] + self._rule.max_staleness - self._next_version) * self._rule.batch_groups

    def _forget(self, draw: int) -> None:
        del self._starts[draw]
        self._finished.discard(draw)
