"""The search tree by hand: selection, backup, and the value targets of ReST-MCTS*."""

from __future__ import annotations

import pytest

from turnwise_worlds.planning.targets import compute_progress, compute_targets
from turnwise_worlds.planning.tree import Node, back_up, descend, select


def grow(parent: Node[str], name: str, **fields: object) -> Node[str]:
    child = Node(place=name, parent=parent, **fields)  # type: ignore[arg-type]
    parent.children.append(child)
    return child


def is_right(node: Node[str]) -> bool:
    return node.place.startswith("right")


def test_progress_of_a_tree_worked_out_by_hand() -> None:
    root = Node(place="root")
    a = grow(root, "a")
    grow(root, "right early", has_ended=True)
    b = grow(a, "b")
    right = grow(b, "right", has_ended=True)
    wrong = grow(b, "wrong", has_ended=True)
    lost = grow(root, "lost")
    deeper = grow(lost, "deeper")
    values = compute_progress(root, is_right)
    by_name = {node.place: value for node, value in values.items()}
    assert by_name["root"] == 0.0
    assert by_name["right early"] == 1.0
    assert by_name["a"] == pytest.approx(1 / 3)  # two replies more: 1 / (2 + 1)
    assert by_name["b"] == pytest.approx(2 / 3)  # 1/3 + (2/3) / (1 + 1)
    assert values[right] == pytest.approx(1.0)
    assert values[wrong] == pytest.approx(2 / 3 - (1 / 3) / 2)  # b needs one reply, so its divisor is 2
    assert values[lost] == values[deeper] == 0.0  # never below 0
    reached = compute_targets(root, is_right, kind="reached")
    assert {node.place for node, value in reached.items() if value} == {"root", "a", "b", "right", "right early"}


def test_a_wrong_step_late_costs_less_and_a_second_one_more() -> None:
    root = Node(place="root")
    a = grow(root, "a")
    b = grow(a, "b")
    grow(b, "right", has_ended=True)
    wrong = grow(a, "wrong")
    worse = grow(wrong, "worse", has_ended=True)
    values = compute_progress(root, is_right)
    assert values[wrong] == pytest.approx(1 / 3 - (2 / 3) / 3)  # a needs 2 replies
    assert values[worse] == 0.0  # 1/9 - (8/9) / 3


def test_without_a_right_end_there_is_no_progress() -> None:
    root = Node(place="root")
    grow(root, "wrong", has_ended=True)
    assert compute_progress(root, is_right) == {}
    assert set(compute_targets(root, is_right, kind="reached").values()) == {0.0}


def test_values_are_counted_all_the_way_up() -> None:
    root = Node(place="root")
    a = grow(root, "a")
    b = grow(a, "b")
    back_up(b, 1.0)
    back_up(a, 0.0)
    assert (root.visits, root.mean, a.mean, b.mean) == (2, 0.5, 0.5, 1.0)


def test_an_arm_is_chosen_by_value_prior_and_visits() -> None:
    root = Node(place="root", value=0.9, visits=4, total=2.0, num_proposals=2)
    a = grow(root, "a", prior=0.6, visits=1, total=0.9)
    b = grow(root, "b", prior=0.2, visits=1, total=0.2)
    # a: 0.9 + 1 * 0.6 * 2 / 2 = 1.5; b: 0.2 + 0.2; unseen: 0.5 + 0.2 * 2 / 3 = 0.63
    assert select(root, 1.0) is a
    a.has_ended = True
    assert select(root, 1.0) is root
    b.total = 0.6  # 0.8
    assert select(root, 1.0) is b
    b.has_ended = True
    assert not root.is_exhausted
    b.prior = 0.4
    assert root.is_exhausted


def test_the_straightest_way_down_leads_past_what_has_ended() -> None:
    root = Node(place="root", value=0.9)
    assert descend(root) is root
    grow(root, "end", value=0.9, has_ended=True)
    a, b = grow(root, "a", value=0.3), grow(root, "b", value=0.4)
    assert descend(root) is b
    deep = grow(b, "deep", value=0.1)
    assert descend(root) is deep
    assert a.depth == 1
    assert deep.depth == 2
