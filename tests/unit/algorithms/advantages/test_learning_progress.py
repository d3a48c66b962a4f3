"""What proposals are paid for the change of their kind's solve rate, by hand; the means survive a restart."""

from __future__ import annotations

import json
import math

import pytest
from credit_batches import flatten, make_trajectory
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.advantages.learning_progress import compute_progress
from turnwise.algorithms.credit import CreditTrajectory
from turnwise.algorithms.credit_table import build_credit


def propose(reward: float | None, kind: str, rate: float, number: int, group: str = "g") -> CreditTrajectory:
    return make_trajectory(reward, [1], group=group, parts={f"solved_{kind}": rate, "proposal": float(number)})


def test_progress_is_the_distance_from_a_running_mean_that_starts_at_one() -> None:
    progress, means = compute_progress({"easy": [1.0, 0.5], "hard": [0.0]}, {"easy": 0.5}, decay=0.5)
    assert progress == {"easy": 0.25, "hard": 1.0}
    assert means == {"easy": 0.75 - 0.25 * 0.25, "hard": 0.5}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_proposals_does_not_matter(rates: list[float], random: object) -> None:
    progress, means = compute_progress({"k": rates}, {}, decay=0.9)
    again, same = compute_progress({"k": sorted(rates)}, {}, decay=0.9)
    assert progress == again
    assert means == same
    assert 0 <= means["k"] <= 1


def test_a_kind_that_stays_impossible_is_paid_less_and_less() -> None:
    means: dict[str, float] = {}
    paid = []
    for _ in range(30):
        progress, means = compute_progress({"hard": [0.0] * 10}, means, decay=0.98)
        paid.append(progress["hard"])
    assert paid == pytest.approx([0.98 ** (10 * step) for step in range(30)])


def test_proposals_are_paid_by_kind_and_less_where_they_are_the_same() -> None:
    batch = [
        propose(0.5, "1hop", 1.0, 1),
        propose(0.5, "1hop", 0.5, 1),
        propose(0.75, "2hop", 0.5, 7),
        make_trajectory(0.0, [1], parts={"ill_formed": 1.0}),
    ]
    credit = build_credit("learning_progress", {"progress": 2.0, "duplicates": 0.3, "decay": 0.5, "scale": 3.0})
    # means start at 1: progress .25 and .5; each of the two equal proposals has one of three others like it
    paid = [0.5 + 2 * 0.25 - 0.1, 0.5 + 2 * 0.25 - 0.1, 0.75 + 2 * 0.5, 0.0]
    got = [flatten(turns)[0] for turns in credit(batch)]
    assert got == pytest.approx([3 * (reward - sum(paid) / 4) for reward in paid])
    assert credit.state_dict() == {"means": {"1hop": 0.75 + 0.25 * 0.25, "2hop": 0.75}, "steps": 1}


def test_the_same_proposal_about_something_else_is_no_duplicate() -> None:
    apart = [propose(0.5, "k", 1.0, 1), propose(0.0, "k", 1.0, 2), propose(0.5, "k", 1.0, 1, "h")]
    credit = build_credit("learning_progress")
    assert [flatten(turns)[0] for turns in credit(apart)] == pytest.approx([0.25, -0.25, 0.0])


def test_what_is_no_proposal_is_credited_as_by_grpo() -> None:
    batch = [make_trajectory(reward, [1], parts={"success": 1.0}) for reward in (1.0, 0.0, 0.5)]
    ours, theirs = build_credit("learning_progress")(batch), build_credit("grpo")(batch)
    assert [flatten(turns) for turns in ours] == [flatten(turns) for turns in theirs]


def test_an_unscored_proposal_is_left_out() -> None:
    credit = build_credit("learning_progress", {"decay": 0.0})
    got = credit([propose(None, "k", 0.0, 1), propose(0.5, "k", 0.5, 1), propose(0.0, "k", 0.5, 2)])
    assert got[0] is None
    assert credit.state_dict()["means"] == {"k": 0.5}


def test_the_means_survive_a_restart() -> None:
    batch = [propose(0.5, "easy", 0.5, 1), propose(0.5, "hard", 0.0, 2)]
    running = build_credit("learning_progress")
    running(batch)
    saved = json.loads(json.dumps(running.state_dict()))
    resumed = build_credit("learning_progress")
    resumed.load_state_dict(saved)
    assert [flatten(turns) for turns in resumed(batch)] == [flatten(turns) for turns in running(batch)]
    for means in (None, 1.0, {"k": 2.0}, {"k": math.nan}):
        with pytest.raises(ValueError, match="mean"):
            resumed.load_state_dict({"means": means, "steps": 1})


def test_in_the_first_steps_proposals_alone_train() -> None:
    batch = [
        propose(0.0, "k", 1.0, 1, "g"),
        propose(0.5, "k", 1.0, 2, "g"),
        make_trajectory(1.0, [1], group="s"),
        make_trajectory(0.0, [1], group="s"),
    ]
    credit = build_credit("learning_progress", {"lead": 2})
    resumed = build_credit("learning_progress", {"lead": 2})
    assert [turns is None for turns in credit(batch)] == [False, False, True, True]
    resumed.load_state_dict(credit.state_dict())
    assert [turns is None for turns in resumed(batch)] == [False, False, True, True]
    assert [turns is None for turns in resumed(batch)] == [False] * 4
