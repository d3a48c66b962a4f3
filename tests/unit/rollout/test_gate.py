"""The gate, checked three ways: scenarios worked out by hand, every reachable state of small configurations against an
adversary, and random events on large ones. Ages and draws are counted here, apart from the gate's own state."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from operator import methodcaller
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.rollout.gate import AdmissionRule, Batch, Gate, Wait, meets_deadlines


def make_rule(batch_groups: int, max_staleness: int, max_open_groups: int = 8, **options: Any) -> AdmissionRule:
    return AdmissionRule(
        batch_groups=batch_groups, max_staleness=max_staleness, max_open_groups=max_open_groups, **options
    )


def open_all(gate: Gate, *draws: int) -> None:
    for draw in draws:
        gate.open(draw)


def finish_all(gate: Gate, *draws: int) -> None:
    for draw in draws:
        gate.finish(draw)


# ------------------------------------------------------------------------------------------- scenarios, by hand


def test_with_eta_0_training_is_synchronous() -> None:
    gate = Gate(make_rule(batch_groups=2, max_staleness=0), version=5)
    open_all(gate, 0, 1)
    assert not gate.may_open()  # deadlines 5 5 5 with t = 5: the third needs 5 >= 5 + 2 // 2
    gate.finish(1)
    assert gate.pick(0.0) == Wait((0,), "unfinished")
    gate.finish(0)
    assert gate.pick(0.0) == Batch((0, 1))
    gate.train_begins((0, 1))
    assert not gate.may_open()  # deadline 5, and the next batch trains version 6
    assert gate.pick(0.0) == Wait((), "busy")
    gate.publish(6)
    assert gate.may_open()
    assert gate.outstanding == ()


def test_one_version_of_staleness_holds_one_batch_more() -> None:
    gate = Gate(make_rule(batch_groups=2, max_staleness=1), version=0)
    open_all(gate, 0, 1, 2, 3)
    assert not gate.may_open()  # deadlines 1 x 5 with t = 0: the fifth needs 1 >= 0 + 4 // 2
    finish_all(gate, 0, 1)
    gate.train_begins((0, 1))
    assert not gate.may_open()  # t = 1, deadlines 1 1 1: the third needs 1 >= 1 + 2 // 2
    gate.publish(1)
    open_all(gate, 4, 5)  # deadlines 1 1 2 2 with t = 1
    assert not gate.may_open()
    finish_all(gate, 4, 5)
    # Groups 4 and 5 are a batch, but 2 and 3 would then train version 2, after their deadline 1.
    assert gate.pick(0.0) == Wait((2, 3), "deadline")
    finish_all(gate, 2)
    assert gate.pick(0.0) == Wait((3,), "deadline")
    finish_all(gate, 3)
    assert gate.pick(0.0) == Batch((2, 3))


def test_a_slow_group_is_passed_by_until_its_deadline() -> None:
    gate = Gate(make_rule(batch_groups=1, max_staleness=2), version=0)
    open_all(gate, 0, 1, 2)  # deadlines 2 2 2
    gate.finish(2)
    assert gate.pick(0.0) == Batch((2,))  # leaves 0 and 1 to versions 1 and 2
    gate.train_begins((2,))
    gate.publish(1)
    gate.open(3)
    gate.finish(3)
    # t = 1: the batches of versions 1 and 2 both belong to 0 and 1. One of the two ends the wait.
    assert gate.pick(0.0) == Wait((0,), "deadline")
    gate.finish(1)
    assert gate.pick(0.0) == Batch((1,))


def test_no_more_groups_open_than_the_rule_says_and_a_group_that_leaves_makes_room() -> None:
    gate = Gate(make_rule(batch_groups=2, max_staleness=4, max_open_groups=3), version=0)
    open_all(gate, 0, 1, 2)
    gate.finish(0)
    assert not gate.may_open()  # one that finished and did not train counts
    gate.leave(0)
    gate.open(3)
    assert gate.outstanding == (1, 2, 3)
    assert not gate.may_open()
    gate.leave(2)
    assert gate.may_open()


def test_the_last_batch_takes_what_is_left() -> None:
    gate = Gate(make_rule(batch_groups=2, max_staleness=1), version=0)
    open_all(gate, 0, 1, 2)
    gate.close()
    assert not gate.may_open()
    finish_all(gate, 0, 2)
    gate.train_begins((0, 2))
    gate.publish(1)
    assert gate.pick(0.0) == Wait((1,), "unfinished")
    gate.finish(1)
    assert gate.pick(0.0) == Batch((1,))
    gate.train_begins((1,))
    gate.publish(2)
    assert gate.outstanding == ()
    assert gate.pick(0.0) == Wait((), "unfinished")


def make_late_gate(**options: Any) -> Gate:
    """Two groups per batch, t = 1: groups 0 and 1 have deadline 1 and are open, 4 and 5 have deadline 2 and finish."""
    gate = Gate(make_rule(batch_groups=2, max_staleness=1, **options), version=0)
    open_all(gate, 0, 1, 2, 3)
    finish_all(gate, 2, 3)
    gate.train_begins((2, 3))
    gate.publish(1)
    open_all(gate, 4, 5)
    finish_all(gate, 4, 5)
    return gate


def test_late_groups_are_dropped_after_the_patience() -> None:
    gate = make_late_gate(late="drop", patience_s=10.0)
    assert gate.overdue(99.0, {}) == ()  # the first call: the clock starts at 99 s
    assert gate.pick(100.0) == Wait((0, 1), "deadline", 109.0)
    assert gate.overdue(108.9, {}) == ()
    assert gate.overdue(109.0, {}) == (0, 1)
    gate.leave(0)
    assert gate.overdue(109.0, {}) == (1,)
    gate.leave(1)
    assert gate.pick(109.0) == Batch((4, 5))


def test_late_groups_are_cut_once_they_have_enough_members() -> None:
    gate = make_late_gate(late="cut", patience_s=10.0, min_members=3)
    gate.pick(50.0)
    assert gate.overdue(59.9, {0: 7, 1: 7}) == ()
    assert gate.overdue(60.0, {0: 2, 1: 3}) == (1,)
    gate.finish(1)  # its unfinished members are cut
    assert gate.overdue(60.0, {}) == ()
    assert gate.overdue(60.0, {0: 3}) == (0,)
    gate.finish(0)
    assert gate.pick(60.0) == Batch((0, 1))


def test_patience_begins_anew_for_another_batch() -> None:
    gate = Gate(make_rule(batch_groups=1, max_staleness=1, late="drop", patience_s=10.0), version=0)
    open_all(gate, 0, 1)
    gate.finish(1)
    gate.train_begins((1,))
    gate.publish(1)
    gate.open(2)
    gate.finish(2)
    assert gate.pick(0.0) == Wait((0,), "deadline", 10.0)  # t = 1, deadlines 1 2
    gate.leave(2)
    assert gate.pick(9.0) == Wait((0,), "unfinished")  # nothing is held back
    gate.open(3)
    gate.finish(3)
    assert gate.pick(9.5) == Wait((0,), "deadline", 19.5)
    # A batch trains without a call of `pick` in between.
    gate = Gate(make_rule(batch_groups=1, max_staleness=2, late="drop", patience_s=10.0), version=0)
    open_all(gate, 0, 1, 2)
    gate.finish(2)
    gate.train_begins((2,))
    gate.publish(1)
    gate.open(3)
    gate.finish(3)
    assert gate.pick(0.0) == Wait((0,), "deadline", 10.0)  # t = 1, deadlines 2 2 3
    gate.finish(1)
    gate.train_begins((1,))
    gate.publish(2)
    assert gate.overdue(50.0, {}) == ()
    assert gate.pick(50.0) == Wait((0,), "deadline", 60.0)  # t = 2, deadlines 2 3


def test_patience_never_ends_with_wait() -> None:
    patient = make_late_gate(late="wait")
    assert patient.pick(0.0) == Wait((0, 1), "deadline", None)
    assert patient.overdue(1e9, {0: 8, 1: 8}) == ()


def test_few_finished_groups_are_no_reason_to_cut() -> None:
    gate = Gate(make_rule(batch_groups=2, max_staleness=0, late="drop"), version=0)
    open_all(gate, 0, 1)
    gate.finish(0)
    assert gate.pick(0.0) == Wait((1,), "unfinished", None)
    assert gate.overdue(1e9, {}) == ()


def test_a_resumed_gate_holds_what_had_finished() -> None:
    rule = make_rule(batch_groups=2, max_staleness=1)
    gate = Gate(rule, version=7, finished={41: 7, 40: 6, 43: 6})
    assert gate.outstanding == (40, 43, 41)
    assert gate.pick(0.0) == Batch((40, 43))  # deadlines 7 7 8 with t = 7
    open_all(gate, 42)
    assert not gate.may_open()  # deadlines 7 7 8 8 8: the fifth needs 8 >= 7 + 4 // 2
    with pytest.raises(ValueError, match="cannot all train within max_staleness=1 at version 7"):
        Gate(rule, version=7, finished={0: 6, 1: 6, 2: 6})  # deadlines 7 7 7: the third needs 7 >= 7 + 2 // 2
    with pytest.raises(ValueError, match=r"groups \[3\] started under versions newer than 7"):
        Gate(rule, version=7, finished={3: 8})


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (lambda gate: gate.open(0), "group 0 is already outstanding; open"),
        (lambda gate: gate.open(9), "group 9 may not open"),
        (lambda gate: gate.finish(9), "group 9 is not open"),
        (lambda gate: gate.finish(4), "group 4 is not open"),
        (lambda gate: gate.leave(9), "group 9 is not outstanding"),
        (lambda gate: gate.train_begins((0, 4)), r"groups \[0\] have not finished"),
        (lambda gate: gate.train_begins((4,)), r"\[4\] is not a batch of 2"),
        (lambda gate: gate.train_begins(()), "is not a batch of 2"),
        (lambda gate: gate.train_begins((4, 4)), "is not a batch of 2"),
        (lambda gate: gate.train_begins((4, 5)), "leaves behind a group that would miss its deadline"),
        (lambda gate: gate.publish(2), "version 2 cannot be published: the trainer is idle at version 1"),
    ],
)
def test_impossible_events_are_refused_and_change_nothing(event: Callable[[Gate], None], message: str) -> None:
    gate = make_late_gate()
    with pytest.raises(ValueError, match=message):
        event(gate)
    assert gate.outstanding == (0, 1, 4, 5)
    finish_all(gate, 0, 1)
    gate.train_begins((0, 1))
    with pytest.raises(ValueError, match="busy until version 2 is published"):
        gate.train_begins((4, 5))
    with pytest.raises(ValueError, match="version 3 cannot be published: the trainer trains version 2"):
        gate.publish(3)
    gate.publish(2)
    gate.close()
    with pytest.raises(ValueError, match="may not open"):
        gate.open(6)


def test_a_draw_that_left_or_trained_is_finished_no_more() -> None:
    gate = Gate(make_rule(batch_groups=1, max_staleness=1), version=0)
    gate.open(0)
    gate.finish(0)
    gate.leave(0)
    gate.open(0)  # a second attempt
    assert gate.pick(0.0) == Wait((0,), "unfinished")
    gate.finish(0)
    gate.train_begins((0,))
    gate.publish(1)
    with pytest.raises(ValueError, match=r"groups \[0\] have not finished"):
        gate.train_begins((0,))


@pytest.mark.parametrize(
    "change",
    [
        {"batch_groups": 0},
        {"max_staleness": -1},
        {"max_open_groups": 1},
        {"late": "never"},
        {"patience_s": -1.0},
        {"patience_s": float("nan")},
        {"patience_s": float("inf")},
        {"min_members": 0},
    ],
)
def test_a_contradictory_rule_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="AdmissionRule"):
        replace(make_rule(batch_groups=2, max_staleness=1), **change)


# ------------------------------------------------------------------------------------------- every reachable state


@cache
def can_train_all(deadlines: tuple[int, ...], batch_groups: int) -> bool:
    """Whether some choice of batches trains groups with these deadlines, relative to t, in time. By trying all batches
    of at most `batch_groups`: a batch that is not full stands for one filled up with groups that are newer."""
    if not deadlines:
        return True
    if min(deadlines) < 0:
        return False
    for size in range(min(batch_groups, len(deadlines)), 0, -1):
        for chosen in set(combinations(range(len(deadlines)), size)):
            others = tuple(sorted(deadlines[i] - 1 for i in range(len(deadlines)) if i not in chosen))
            if can_train_all(others, batch_groups):
                return True
    return False


class Admission(Protocol):
    """What the explorer needs of a gate."""

    def may_open(self) -> bool: ...
    def open(self, draw: int) -> None: ...
    def finish(self, draw: int) -> None: ...
    def leave(self, draw: int) -> None: ...
    def close(self) -> None: ...
    def pick(self, now_s: float) -> Batch | Wait: ...
    def train_begins(self, draws: tuple[int, ...]) -> None: ...
    def publish(self, version: int) -> None: ...


@dataclass
class World:
    """A gate and, kept beside it, what really happened."""

    gate: Admission
    version: int = 0
    busy: bool = False
    closed: bool = False
    next_draw: int = 0
    running: dict[int, int] = field(default_factory=dict)
    finished: dict[int, int] = field(default_factory=dict)
    num_gone: int = 0
    age: int = 0
    """Age of the oldest group in the batch that trains; 0 when the trainer is idle."""

    @property
    def next_version(self) -> int:
        return self.version + self.busy

    def name(self) -> tuple[object, ...]:
        """The same for worlds that differ in the names of draws and by a shift of all versions only."""
        return (
            self.busy,
            self.closed,
            self.age,
            tuple(sorted(start - self.version for start in self.running.values())),
            tuple(sorted(start - self.version for start in self.finished.values())),
        )

    def clone(self) -> "World":
        gate = copy.copy(self.gate)
        gate.__dict__.update({key: copy.copy(value) for key, value in gate.__dict__.items()})
        return replace(self, gate=gate, running=dict(self.running), finished=dict(self.finished))

    def open(self) -> None:
        self.gate.open(self.next_draw)
        self.running[self.next_draw] = self.version
        self.next_draw += 1

    def finish(self, draw: int) -> None:
        self.gate.finish(draw)
        self.finished[draw] = self.running.pop(draw)

    def leave(self, draw: int) -> None:
        self.gate.leave(draw)
        (self.running if draw in self.running else self.finished).pop(draw)
        self.num_gone += 1

    def close(self) -> None:
        self.gate.close()
        self.closed = True

    def train(self, draws: tuple[int, ...]) -> None:
        self.gate.train_begins(draws)
        self.age = self.next_version - min(self.finished[draw] for draw in draws)
        for draw in draws:
            del self.finished[draw]
        self.num_gone += len(draws)
        self.busy = True

    def publish(self) -> None:
        self.version += 1
        self.busy, self.age = False, 0
        self.gate.publish(self.version)


def one_per_start(groups: Mapping[int, int]) -> list[int]:
    """One draw for each start version: groups that started together are alike."""
    return list({start: draw for draw, start in groups.items()}.values())


def successors(world: World, *, may_close: bool, may_leave: bool) -> Iterator[World]:
    """Everything that can happen next: groups of the adversary's choice finish or leave, at any time."""
    events: list[Callable[[World], None]] = []
    if world.gate.may_open():
        events.append(World.open)
    if world.busy:
        events.append(World.publish)
    else:
        decision = world.gate.pick(0.0)
        if isinstance(decision, Batch):
            events.append(methodcaller("train", decision.draws))
    for draw in one_per_start(world.running):
        events.append(methodcaller("finish", draw))
    if may_leave:
        for draw in [*one_per_start(world.running), *one_per_start(world.finished)]:
            events.append(methodcaller("leave", draw))
    if may_close and not world.closed:
        events.append(World.close)
    for event in events:
        following = world.clone()
        event(following)
        yield following


def explore(gate: Admission, *, may_close: bool = False, may_leave: bool = True, max_age: int = 99) -> Iterator[World]:
    """Every reachable world, once. Worlds behind one with a group older than `max_age` are not visited."""
    first = World(gate)
    seen = {first.name()}
    frontier = [first]
    while frontier:
        world = frontier.pop()
        yield world
        if any(world.next_version - start > max_age for start in [*world.running.values(), *world.finished.values()]):
            continue
        for following in successors(world, may_close=may_close, may_leave=may_leave):
            if (name := following.name()) not in seen:
                seen.add(name)
                frontier.append(following)


def check_world(world: World, rule: AdmissionRule) -> None:
    """No group too old, no deadlock, no draw lost, and no decision that is stricter than the bound needs."""
    B, eta, t = rule.batch_groups, rule.max_staleness, world.next_version
    assert world.age <= eta
    assert world.num_gone + len(world.running) + len(world.finished) == world.next_draw
    starts = [*world.running.values(), *world.finished.values()]
    relative = [start + eta - t for start in starts]
    if not world.closed and len(starts) < rule.max_open_groups:
        # Necessity: where the deadline rule says no, no order of batches trains one group more in time.
        with_one_more = tuple(sorted([*relative, world.version + eta - t]))
        assert world.gate.may_open() == can_train_all(with_one_more, B)
    else:
        assert not world.gate.may_open()
    if world.busy:
        return
    decision = world.gate.pick(0.0)
    size = min(B, len(starts)) if world.closed else B
    if isinstance(decision, Wait) and decision.reason == "deadline":
        # No batch of finished groups, whichever, leaves the others feasible.
        for chosen in combinations(world.finished, size):
            others = [start + eta - t - 1 for draw, start in world.finished.items() if draw not in chosen]
            others += [start + eta - t - 1 for start in world.running.values()]
            assert not can_train_all(tuple(sorted(others)), B)
    if isinstance(decision, Wait):
        check_wait(world, decision)
    if not world.running:  # everything has finished: a batch trains, or a group opens, or the run is over
        enough = len(starts) >= size and size > 0
        assert isinstance(decision, Batch) == enough
        assert enough or world.gate.may_open() or (world.closed and not starts)


def check_wait(world: World, wait: Wait) -> None:
    """The groups that a wait names end it, and fewer of them do not."""
    assert set(wait.draws) <= set(world.running)
    assert list(wait.draws) == sorted(wait.draws, key=lambda draw: (world.running[draw], draw))
    if wait.reason == "deadline":
        assert wait.draws
        for event in (World.finish, World.leave):
            following = world.clone()
            for draw in wait.draws:
                assert isinstance(following.gate.pick(0.0), Wait)
                event(following, draw)
            assert isinstance(following.gate.pick(0.0), Batch)


SMALL = [(B, eta) for B in (1, 2, 3) for eta in (0, 1, 2, 3)]


@pytest.mark.parametrize(("batch_groups", "max_staleness"), SMALL)
def test_no_reachable_state_breaks_the_bound_or_is_stuck(batch_groups: int, max_staleness: int) -> None:
    rule = make_rule(batch_groups, max_staleness, max_open_groups=8)
    worst_age = 0
    for world in explore(Gate(rule, version=0)):
        check_world(world, rule)
        worst_age = max(worst_age, world.age)
    assert worst_age == max_staleness  # the bound is used in full


@pytest.mark.parametrize(("batch_groups", "max_staleness"), [(1, 0), (1, 2), (2, 1), (2, 2), (3, 1)])
def test_no_reachable_state_is_stuck_when_the_tasks_run_out(batch_groups: int, max_staleness: int) -> None:
    rule = make_rule(batch_groups, max_staleness, max_open_groups=6)
    num_closed = 0
    for world in explore(Gate(rule, version=0), may_close=True):
        check_world(world, rule)
        num_closed += world.closed
    assert num_closed > 0


@pytest.mark.parametrize(("batch_groups", "max_staleness"), [(1, 2), (1, 3), (2, 1), (2, 2)])
def test_while_a_batch_is_held_back_no_further_group_becomes_late(batch_groups: int, max_staleness: int) -> None:
    # So one clock measures the patience with all of them.
    num_waits = 0
    for world in explore(Gate(make_rule(batch_groups, max_staleness, max_open_groups=6), version=0)):
        before = world.gate.pick(0.0)
        if not (isinstance(before, Wait) and before.reason == "deadline"):
            continue
        num_waits += 1
        for following in successors(world, may_close=True, may_leave=True):
            after = following.gate.pick(0.0)
            if isinstance(after, Wait) and after.reason == "deadline":
                assert set(after.draws) <= set(before.draws)
    assert num_waits > 0


class CapacityRule:
    """The capacity rule of AReaL and SkyRL: (eta + version + 1) * B - (accepted + running) groups may start, and any B
    finished groups train; here those that started first, which is kind to the rule."""

    def __init__(self, batch_groups: int, max_staleness: int) -> None:
        self.batch_groups, self.max_staleness, self.version = batch_groups, max_staleness, 0
        self.num_accepted = 0
        self.running: list[int] = []
        self.finished: list[int] = []

    def may_open(self) -> bool:
        capacity = (self.max_staleness + self.version + 1) * self.batch_groups
        return capacity > self.num_accepted + len(self.running)

    def open(self, draw: int) -> None:
        self.running.append(draw)

    def finish(self, draw: int) -> None:
        self.running.remove(draw)
        self.finished.append(draw)
        self.num_accepted += 1

    def leave(self, draw: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def pick(self, now_s: float) -> Batch | Wait:
        draws = sorted(self.finished)[: self.batch_groups]
        return Batch(tuple(draws)) if len(draws) == self.batch_groups else Wait((), "unfinished")

    def train_begins(self, draws: tuple[int, ...]) -> None:
        self.finished = [draw for draw in self.finished if draw not in draws]

    def publish(self, version: int) -> None:
        self.version = version


@pytest.mark.parametrize(("batch_groups", "max_staleness"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_the_capacity_rule_is_no_bound(batch_groups: int, max_staleness: int) -> None:
    # A slow group takes one place and the others pass it by. With eta = 1 the search looks at ages up to 4 and finds
    # age 4; with eta = 2 it finds 5 of 5.
    horizon = max_staleness + 3
    worlds = explore(CapacityRule(batch_groups, max_staleness), may_leave=False, max_age=horizon)
    worst_age = max(world.age for world in worlds)
    assert worst_age == horizon > max_staleness


def test_the_capacity_rule_without_staleness_is_one() -> None:
    # With eta = 0 the batch is all there is, so that nothing can be passed by: the explorer finds no fault here.
    assert max(world.age for world in explore(CapacityRule(2, 0), may_leave=False)) == 0


@given(st.lists(st.integers(-1, 4), max_size=8).map(sorted), st.integers(1, 3), st.integers(0, 100))
def test_the_theorem_agrees_with_trying_every_order(deadlines: list[int], batch_groups: int, version: int) -> None:
    expected = can_train_all(tuple(deadlines), batch_groups)
    assert meets_deadlines([version + d for d in reversed(deadlines)], version, batch_groups) == expected


# ------------------------------------------------------------------------------------------- random events, large


RULES = st.builds(
    lambda batch_groups, eta, extra, late, patience_s: make_rule(
        batch_groups, eta, min(64, batch_groups + extra), late=late, patience_s=patience_s, min_members=2
    ),
    st.integers(1, 16),
    st.integers(0, 8),
    st.integers(0, 63),
    st.sampled_from(["wait", "cut", "drop"]),
    st.sampled_from([0.0, 5.0]),
)
EVENTS = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 1000)), min_size=100, max_size=400)


def restart(world: World, rule: AdmissionRule) -> World:
    """The world after a crash: groups that had finished are put in, those that ran start again as new draws."""
    assert not world.busy
    restored = World(Gate(rule, world.version, world.finished), version=world.version, next_draw=world.next_draw)
    restored.finished = dict(world.finished)
    restored.num_gone = world.num_gone + len(world.running)
    return restored


def play(world: World, rule: AdmissionRule, events: list[tuple[int, int]]) -> World:
    """Do what the random numbers say, as far as it is possible, with everything checked on the way."""
    now_s = 0.0
    for kind, choice in events:
        now_s += 1.0
        gate = world.gate
        assert isinstance(gate, Gate)
        running, outstanding = sorted(world.running), sorted({**world.running, **world.finished})
        if kind < 7:
            for _ in range(choice % 16 + 1):  # an orchestrator opens as many as it may
                if gate.may_open():
                    world.open()
        elif kind < 13 and running:
            world.finish(running[choice % len(running)])
        elif kind == 13 and outstanding:
            world.leave(outstanding[choice % len(outstanding)])
        elif kind < 18:
            if world.busy:
                world.publish()
            elif isinstance(decision := gate.pick(now_s), Batch):
                world.train(decision.draws)
        elif kind == 18:
            for draw in gate.overdue(now_s, dict.fromkeys(running, choice % 4)):
                assert draw in world.running
                assert rule.late != "wait"
                assert rule.late == "drop" or choice % 4 >= rule.min_members
                (world.leave if rule.late == "drop" else world.finish)(draw)
        elif not world.busy:
            world = restart(world, rule)
        starts = {**world.running, **world.finished}
        assert world.age <= rule.max_staleness
        assert len(starts) <= rule.max_open_groups
        assert sorted(world.gate.outstanding) == sorted(starts)  # type: ignore[attr-defined]
        assert world.num_gone + len(starts) == world.next_draw
    return world


@settings(max_examples=150)
@given(RULES, EVENTS)
def test_random_events_keep_the_bound_and_lose_no_draw(rule: AdmissionRule, events: list[tuple[int, int]]) -> None:
    world = play(World(Gate(rule, version=0)), rule, events)
    # The end of the run: no task is left, everything finishes, and every group trains in time.
    world.close()
    for draw in sorted(world.running, reverse=True):
        world.finish(draw)
    num_left = len(world.finished)
    num_batches = 0
    while world.finished or world.busy:
        if world.busy:
            world.publish()
            continue
        decision = world.gate.pick(0.0)
        assert isinstance(decision, Batch)
        world.train(decision.draws)
        num_batches += 1
        assert world.age <= rule.max_staleness
    assert num_batches == -(-num_left // rule.batch_groups)
    assert world.num_gone == world.next_draw


@given(RULES, st.randoms(use_true_random=False))
def test_an_orchestrator_that_opens_greedily_always_trains(rule: AdmissionRule, random: Any) -> None:
    """Groups finish in any order, and the trainer takes what it may: 20 batches train, whatever the order."""
    world = World(Gate(rule, version=0))
    for _ in range(20):
        while True:
            while world.gate.may_open():
                world.open()
            decision = world.gate.pick(0.0)
            if isinstance(decision, Batch):
                break
            world.finish(random.choice(sorted(world.running)))
        assert len(decision.draws) == rule.batch_groups
        world.train(decision.draws)
        assert world.age <= rule.max_staleness
        while world.gate.may_open():
            world.open()
        world.publish()
    assert world.version == 20
