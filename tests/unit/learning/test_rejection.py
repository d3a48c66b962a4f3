"""Rejection sampling on drawn groups: what is kept, how often it trains, and that the ledger has the rest by reason."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnwise.building.learners import build_learner
from turnwise.building.resolved import resolve
from turnwise.config.load import load_config
from turnwise.core.batch import Assignment, Columns, Drop
from turnwise.core.types import DropReason, Scored, StopReason, Trajectory, TrajectoryGroup, TrajectoryId
from turnwise.store.ledger import GroupAccount, account_batch
from turnwise.store.token_account import LedgerError
from turnwise.testing import make_group, make_task, make_trajectory, make_turn

NUM_KEPT, PASSES, UPDATES = 3, 4, 4
CONFIG = load_config(
    [Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"],
    [
        "train.algorithm=rejection",
        "rollout.train_truncated=false",
        f"rejection.passes={PASSES}",
        f"rejection.num_kept={NUM_KEPT}",
        f"loss.updates_per_step={UPDATES}",
    ],
)
"""Cap 3, four passes of four updates, nothing that a limit ended."""

attempts = st.lists(
    st.tuples(
        st.sampled_from([1.0, 1.0, 0.0, 0.5, None]),
        st.lists(st.lists(st.integers(5, 6), min_size=1, max_size=2), min_size=1, max_size=2),
        st.sampled_from([StopReason.DONE, StopReason.DONE, StopReason.MAX_TOKENS]),
    ),
    min_size=1,
    max_size=8,
)
Drawn = list[tuple[int, list[tuple[float | None, list[list[int]], StopReason]]]]
batches = st.lists(st.tuples(st.integers(0, 2), attempts), min_size=1, max_size=4)
"""Groups of three tasks: some tasks are drawn twice in a step."""


def build(drawn: Drawn) -> list[TrajectoryGroup]:
    groups = []
    for draw, (task, members) in enumerate(drawn):
        made = []
        for index, (reward, replies, stop) in enumerate(members):
            turns = [make_turn([1], reply, parent=at - 1 if at else None) for at, reply in enumerate(replies)]
            made.append(make_trajectory(*turns, reward=reward, member=index, draw=draw, stop=stop))
        groups.append(make_group(*made, task=make_task(str(task))))
    return groups


def assign(groups: list[TrajectoryGroup]) -> Assignment:
    return build_learner(resolve(CONFIG)).assign(groups, Columns(), 1)


def account(groups: list[TrajectoryGroup], made: Assignment, *, max_times: int = PASSES) -> list[GroupAccount]:
    updates = [[made.batch.samples[index] for index in update] for update in made.batch.updates]
    return account_batch(groups, updates, made.drops, step=1, version=0, max_staleness=0, max_times=max_times)


def trained(made: Assignment) -> Counter[TrajectoryId]:
    return Counter(made.batch.samples[index].origin.trajectory for update in made.batch.updates for index in update)


def replies(trajectory: Trajectory) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(turn.completion.token_ids.tolist()) for turn in trajectory.turns)


def test_the_recipe_is_the_one_these_tests_are_about() -> None:
    assert (CONFIG.train.algorithm, CONFIG.rejection.num_kept) == ("rejection", NUM_KEPT)
    assert (CONFIG.rejection.passes, CONFIG.loss.updates_per_step) == (PASSES, UPDATES)
    assert CONFIG.rejection.first_threshold == CONFIG.rejection.last_threshold == 1.0
    assert not CONFIG.rollout.train_truncated


@settings(max_examples=40, deadline=None)
@given(batches)
@example([(0, [(1.0, [[5 + n]], StopReason.DONE) for n in range(at, at + 3)]) for at in (0, 3)])
def test_what_trains_repaired_its_task_and_the_ledger_says_why_the_rest_does_not(
    drawn: Drawn,
) -> None:
    groups = build(drawn)
    made = assign(groups)
    kept = trained(made)
    # Written anew from the rules: per task, in order, the first three different repairs that no limit ended.
    wanted: dict[str, dict[tuple[tuple[int, ...], ...], TrajectoryId]] = {}
    for group in groups:
        for t in group.trajectories:
            if t.reward == Scored(total=1.0) and t.stop is StopReason.DONE:
                repairs = wanted.setdefault(group.task.id, {})
                if len(repairs) < NUM_KEPT:
                    repairs.setdefault(replies(t), t.id)
    assert kept == {name: PASSES for repairs in wanted.values() for name in repairs.values()}
    assert len(made.batch.updates) == PASSES * UPDATES
    assert made.metrics["train/kept_trajectories"].value == len(kept)
    assert made.metrics["train/solved_tasks"].value == len(wanted)

    tokens: Counter[str] = Counter()
    for group in groups:
        for t in group.trajectories:
            if t.id in kept:
                continue
            reason = DropReason.NOT_SELECTED
            if not isinstance(t.reward, Scored):
                reason = DropReason.INVALID
            elif t.stop.is_truncated:
                reason = DropReason.TRUNCATED
            elif replies(t) in wanted.get(group.task.id, {}):
                reason = DropReason.DUPLICATE
            tokens[reason.value] += t.num_sampled_tokens
    dropped: Counter[str] = Counter()
    for each in account(groups, made):
        dropped.update(each.dropped)
        assert each.sampled == each.trained + sum(each.dropped.values())
    assert dropped == tokens


def test_every_pass_has_an_order_of_its_own_and_trains_everything_once() -> None:
    groups = [make_group(make_trajectory(make_turn([1], [5]), draw=d), task=make_task(str(d))) for d in range(9)]
    updates = assign(groups).batch.updates
    passes = [updates[at : at + UPDATES] for at in range(0, len(updates), UPDATES)]
    assert [sorted(index for update in each for index in update) for each in passes] == [list(range(9))] * PASSES
    assert len(set(passes)) == PASSES
    assert assign(groups).batch.updates == updates, "a step that is redone is cut in the same way"


REPAIRED = [make_group(*(make_trajectory(make_turn([1], [5 + m]), member=m, reward=m % 2) for m in range(4)))]


def train_a_failure(made: Assignment) -> Assignment:
    """A filter that lets one attempt through that did not repair anything, and states its drop nevertheless."""
    failed = make_trajectory(make_turn([1], [5]), reward=0)
    extra = assign([make_group(replace(failed, reward=Scored(total=1.0)))]).batch.samples
    samples = (*made.batch.samples, *extra)
    updates = (*made.batch.updates[:-1], (*made.batch.updates[-1], len(samples) - 1))
    return replace(made, batch=replace(made.batch, samples=samples, updates=updates))


def forget_a_drop(made: Assignment) -> Assignment:
    return replace(made, drops=made.drops[1:])


def drop_what_trains(made: Assignment) -> Assignment:
    [kept, *_] = trained(made)
    return replace(made, drops=(*made.drops, Drop(trajectory=kept, reason=DropReason.NOT_SELECTED)))


def train_once_more(made: Assignment) -> Assignment:
    first, *rest = made.batch.updates
    return replace(made, batch=replace(made.batch, updates=((*first, *first), *rest)))


@pytest.mark.parametrize("fault", [train_a_failure, forget_a_drop, drop_what_trains, train_once_more])
def test_the_ledger_refuses_a_step_with_a_planted_fault(fault: Callable[[Assignment], Assignment]) -> None:
    made = assign(REPAIRED)
    assert account(REPAIRED, made)
    with pytest.raises(LedgerError):
        account(REPAIRED, fault(made))
