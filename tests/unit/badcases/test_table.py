"""Counts, shares and intervals of faults."""

from turnwise.badcases.divergence import Divergence, Unknown
from turnwise.badcases.table import Badcase, build_table
from turnwise.core.faults import Fault
from turnwise.core.types import Trajectory
from turnwise.evaluation.intervals import compute_clustered_interval, compute_wilson_interval
from turnwise.testing.builders import make_completion, make_task, make_trajectory, make_turn

SUMMARY = {"name": "heldout_000000", "label": "before", "step": 0}


def attempt(draw: int, member: int = 0, reward: float = 0.0) -> Trajectory:
    return make_trajectory(make_turn([1], make_completion([2])), draw=draw, member=member, reward=reward)


def test_shares_are_of_all_attempts_with_wilson_intervals() -> None:
    played = [(make_task(str(n), kind="odd" if n % 2 else "even"), attempt(n, reward=float(n > 2))) for n in range(10)]
    names = ("lost", "lost", "limit")
    finds = (Divergence(method="oracle", turn=0, lost=0, values=(2.0,)), None, Unknown(reason="no oracle"))
    badcases = [
        Badcase(task=task, trajectory=trajectory, fault=Fault(name=name, turn=0), divergence=found)
        for (task, trajectory), name, found in zip(played, names, finds, strict=False)
    ]
    table = build_table(SUMMARY, badcases, played, {"lost": "It got lost."})
    assert (table["episodes"], table["failed"], table["invalid"]) == (10, 3, 0)
    first, second = table["faults"]
    assert (first["name"], first["count"], first["share"], first["about"]) == ("lost", 2, 0.2, "It got lost.")
    assert (first["low"], first["high"]) == compute_wilson_interval(2, 10)
    assert first["kinds"] == {"even": 1, "odd": 1}
    assert (second["name"], second["about"]) == ("limit", "")
    assert [line.split()[0] for line in table["methods"]] == ["1", "1", "1"]
    assert table["badcases"][0]["diverges"] == 0
    assert table["badcases"][2]["why_not"] == "no oracle"


def test_attempts_at_one_task_are_a_cluster() -> None:
    tasks = [make_task(str(n)) for n in range(4)]
    played = [(task, attempt(n, member)) for n, task in enumerate(tasks) for member in range(3)]
    badcases = [
        Badcase(task=task, trajectory=each, fault=Fault(name="lost", turn=0), divergence=None)
        for task, each in played[:6]
    ]
    [fault] = build_table(SUMMARY, badcases, played, {})["faults"]
    assert (fault["low"], fault["high"]) == compute_clustered_interval([[1.0] * 3, [1.0] * 3, [0.0] * 3, [0.0] * 3])
    assert fault["high"] - fault["low"] > compute_wilson_interval(6, 12)[1] - compute_wilson_interval(6, 12)[0]
