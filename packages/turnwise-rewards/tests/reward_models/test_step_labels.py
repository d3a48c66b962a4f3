"""Labels of steps, by hand and by properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.types import Ending, Scored, StopReason, Trajectory, Turn, text_message
from turnwise.testing import make_group, make_trajectory, make_turn
from turnwise_rewards.reward_models.labels import (
    LABELS,
    average_equal,
    label_continuations,
    label_groups,
    label_outcomes,
    label_progress,
    label_quality,
    label_returns,
    list_continuations,
    share_right,
)
from turnwise_rewards.reward_models.quality import compute_quality


def turn(text: str, parent: int | None, state: str | None = None) -> Turn:
    return make_turn([1], [2], parent=parent, message=text_message("assistant", text), state=state)


def forked(reward: float = 1.0) -> Trajectory:
    """An attempt of three turns; two continuations from the state before each.

    Before turn 0: right, wrong. Before turn 1 (the state that turn 0 reached): right, wrong. Before turn 2: wrong,
    wrong."""
    turns = [turn("a", None), turn("b", 0), turn("c", 1)]
    endings = []
    for parent, right in ((None, 1), (None, 0), (0, 1), (0, 0), (1, 0), (1, 0)):
        turns.append(turn("x", parent))
        endings.append(
            Ending(turn=len(turns) - 1, stop=StopReason.DONE, reward=Scored(total=float(right)), kind="estimate")
        )
    return make_trajectory(*turns, reward=reward, endings=tuple(endings))


def test_continuations_label_the_state_that_a_turn_reached() -> None:
    group = make_group(forked())
    assert list_continuations(group.trajectories[0]) == [[True, False], [True, False], [False, False]]
    [soft], [hard] = label_continuations([group], hard=False), label_continuations([group], hard=True)
    # Turn 0 reached the state before turn 1 (1 of 2), turn 1 that before turn 2 (0 of 2), turn 2 the end (right).
    assert soft.labels == (0.5, 0.0, 1.0)
    assert hard.labels == (1.0, 0.0, 1.0)
    assert len(soft.trajectory.turns) == 3


def test_a_turn_whose_continuations_all_failed_has_no_label() -> None:
    whole = forked()
    failed = make_trajectory(reward=None).reward
    endings = tuple(
        Ending(turn=e.turn, stop=StopReason.ERROR, reward=failed, kind="estimate") if e.turn in (5, 6) else e
        for e in whole.endings
    )
    group = make_group(make_trajectory(*whole.turns, endings=endings))
    assert label_continuations([group], hard=False)[0].labels == (None, 0.0, 1.0)


def test_an_environment_that_was_not_forked_is_refused_in_one_line() -> None:
    group = make_group(make_trajectory(turn("a", None), turn("b", 0)))
    with pytest.raises(DataError, match=r"trajectory 0/0 has no continuations, .*credit.method = 'vine'.*'returns'"):
        label_groups([group], "soft")


@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_hard_labels_are_never_below_soft_ones(right: list[bool]) -> None:
    soft, hard = share_right(right, hard=False), share_right(right, hard=True)
    assert soft is not None
    assert hard is not None
    assert hard >= soft
    assert (hard == soft) == (soft in (0.0, 1.0))


def test_hard_labels_are_biased_upwards_and_soft_ones_are_not() -> None:
    # p = 1/2, n = 2 continuations, all four outcomes equally likely: soft (0 + 1/2 + 1/2 + 1)/4 = 1/2, hard 3/4.
    every = [[a, b] for a in (False, True) for b in (False, True)]
    assert sum(share_right(each, hard=False) or 0 for each in every) / 4 == 0.5
    assert sum(share_right(each, hard=True) or 0 for each in every) / 4 == 0.75


def attempt(*steps: tuple[str, str], reward: float, member: int = 0) -> Trajectory:
    turns = [turn(reply, index - 1 if index else None, state) for index, (state, reply) in enumerate(steps)]
    return make_trajectory(*turns, reward=reward, member=member)


def test_returns_are_means_over_equal_states_and_replies() -> None:
    right = attempt(("s", "a"), ("t", "b"), ("u", "c"), reward=1.0)
    wrong = attempt(("s", "a"), ("t", "d"), reward=0.0, member=1)
    first, second = label_returns([make_group(right, wrong)], gamma=0.5)
    # (s, a) was taken twice: returns 0.5^2 * 1 and 0.5^1 * 0, so 1/8. The others once: 0.5, 1; and 0.
    assert first.labels == (0.125, 0.5, 1.0)
    assert second.labels == (0.125, 0.0)


def test_the_discount_runs_from_the_end_so_that_values_satisfy_bellmans_equation() -> None:
    gamma, count = 0.5, 3
    [labelled] = label_returns([make_group(attempt(("s", "a"), ("t", "b"), ("u", "c"), reward=1.0))], gamma=gamma)
    # Q_t = gamma Q_{t+1} before the end, and Q_{T-1} = outcome: 1/4, 1/2, 1.
    assert labelled.labels == (0.25, 0.5, 1.0)
    # The released code multiplies the outcome by gamma^t: 1, 1/2, 1/4. The last step, which is nearest to the reward,
    # then counts least, and no step is worth gamma times the next.
    released = [gamma**t for t in range(count)]
    assert released == [1.0, 0.5, 0.25]
    assert labelled.labels[0] == gamma * labelled.labels[1]  # type: ignore[operator]
    assert released[0] != gamma * released[1]


def test_equal_states_of_other_tasks_are_other_states() -> None:
    right = attempt(("s", "a"), reward=1.0)
    other = make_trajectory(*attempt(("s", "a"), reward=0.0).turns, reward=0.0, draw=1, task_id="another")
    assert [each.labels for each in label_returns([make_group(right), make_group(other)])] == [(1.0,), (0.0,)]


def test_returns_need_states() -> None:
    with pytest.raises(DataError, match=r"turn 0 of trajectory 0/0 has no state; define state_hash\(\)"):
        label_groups([make_group(make_trajectory(turn("a", None)))], "returns")


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1)), max_size=20))
def test_averages_keep_the_sum_of_every_key(pairs: list[tuple[int, float]]) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    means = average_equal(keys, values)
    for key in set(keys):
        assert sum(m for m, k in zip(means, keys, strict=True) if k == key) == pytest.approx(
            sum(v for v, k in zip(values, keys, strict=True) if k == key)
        )


@pytest.mark.parametrize("count", [1, 2, 5])
def test_quality_rises_evenly_on_the_way_to_a_right_end(count: int) -> None:
    parents = [index - 1 if index else None for index in range(count)]
    values = compute_quality(parents, {count - 1: True})
    assert values == pytest.approx({index: (index + 1) / count for index in range(count)})


def test_quality_falls_behind_a_wrong_turn() -> None:
    # 0 -> 1 right; 0 -> 2 wrong. At the start m = 2 turns are needed: v_0 = 0 + 1/(1 + 1) = 1/2 (one more turn needed),
    # v_1 = 1/2 + (1/2)/(0 + 1) = 1. Turn 2 is wrong: its ancestor 0 needs 1, so m + 1 = 2: v_2 = 1/2 - (1/2)/2 = 1/4.
    assert compute_quality([None, 0, 0], {1: True, 2: False}) == pytest.approx({0: 0.5, 1: 1.0, 2: 0.25})
    assert compute_quality([None, 0], {1: False}) == {}


def test_quality_of_a_forked_attempt() -> None:
    # A right end is one turn from the start (a continuation), so before it m + 1 = 2. Turn 0 still needs one (the right
    # continuation from it): 0 + 1/2. Turn 1 leads to the right end in one more: 1/2 + (1/2)/2 = 3/4. Turn 2 ends: 1.
    [labelled] = label_quality([make_group(forked())])
    assert labelled.labels == pytest.approx((0.5, 0.75, 1.0))


def test_progress_is_kept_or_lost() -> None:
    # Turn 0: 1/2 before and after, kept. Turn 1: 1/2 before, 0 after, lost. Turn 2: 0 before, unknown.
    [labelled] = label_progress([make_group(forked())])
    assert labelled.labels == (1.0, 0.0, None)


def test_an_outcome_labels_the_last_turn_only() -> None:
    [labelled] = label_outcomes([make_group(attempt(("s", "a"), ("t", "b"), reward=1.0), make_trajectory(reward=None))])
    assert labelled.labels == (None, 1.0)
    assert labelled.num_labels == 1


def test_what_cannot_be_labelled_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"labels='best' is unknown; use one of outcome, soft, hard, returns, quality, "
    ):
        label_groups([], "best")
    with pytest.raises(DataError, match=r"none of 1 trajectories has a step to label"):
        label_groups([make_group(make_trajectory(turn("a", None), reward=0.0))], "quality")
    two = make_trajectory(turn("a", None), turn("b", None))
    with pytest.raises(DataError, match=r"trajectory 0/0 has several conversations or branches"):
        label_groups([make_group(two)], "outcome")
    assert set(LABELS) == {"outcome", "soft", "hard", "returns", "quality", "progress"}
