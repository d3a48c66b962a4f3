"""Trees: what leaves get, what shared turns get, and when a branch is made."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import compute_grpo_advantages
from turnwise.algorithms.credit import CreditTrajectory, CreditTurn
from turnwise.algorithms.turns.branching import build_arpo, compute_sampled_entropy, should_branch
from turnwise.algorithms.turns.tree import build_tree, compute_tree_advantages, find_shared_turns, share_advantages

numbers = st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 2))


def turn(*logprobs: float, state: str | None = None) -> CreditTurn:
    return CreditTurn(num_tokens=len(logprobs), logprobs=np.array(logprobs), state=state)


def leaf(reward: float | None, *turns: CreditTurn, tree: str | None = "t") -> CreditTrajectory:
    return CreditTrajectory(group="g", reward=reward, turns=turns, tree=tree)


def test_intra_and_inter_by_hand() -> None:
    # Trees {1, 0} and {0, 0}, centring only. Across the group: mean 1/4: 3/4 -1/4 -1/4 -1/4.
    # Within trees: +-1/2 in the first, 0 in the second (constant). Sum: 5/4 -3/4 -1/4 -1/4.
    got = compute_tree_advantages([1, 0, 0, 0], ["a", "a", "b", "b"], deviation="none")
    assert got == [1.25, -0.75, -0.25, -0.25]
    assert compute_tree_advantages([1, 0, 0, 0], ["a", "a", "b", "b"], inter=0.0, deviation="none") == [
        0.5,
        -0.5,
        0.0,
        0.0,
    ]


@settings(max_examples=50)
@given(st.lists(st.none() | numbers, min_size=1, max_size=8))
def test_one_leaf_per_tree_is_grpo(rewards: list[float | None]) -> None:
    assert compute_tree_advantages(rewards, [f"t{i}" for i in range(len(rewards))]) == compute_grpo_advantages(rewards)
    assert compute_tree_advantages(rewards, [None] * len(rewards)) == compute_grpo_advantages(rewards)


@settings(max_examples=50)
@given(st.lists(st.integers(-5, 5), min_size=4, max_size=4))
def test_normalizing_by_group_and_then_by_tree_is_the_tree_alone(rewards: list[int]) -> None:
    trees = ["a", "a", "b", "b"]
    first = compute_grpo_advantages(rewards, epsilon=0.0)
    twice = compute_tree_advantages(first, trees, inter=0.0, epsilon=0.0)
    assert twice == pytest.approx(compute_tree_advantages(rewards, trees, inter=0.0, epsilon=0.0), abs=1e-6)


def test_shared_turns_are_found_by_their_path() -> None:
    root, left, right = turn(-0.1, -0.2), turn(-0.3), turn(-0.4)
    leaves = [leaf(1, root, left), leaf(0, root, right), leaf(0, root, left, tree="other"), leaf(0, turn(-9.0), left)]
    shared = find_shared_turns(leaves)
    assert shared[0][0] == shared[1][0]
    assert shared[0][1] != shared[1][1]
    # Another tree, and the same reply after another first turn, are turns of their own.
    assert len({number for row in shared for number in row}) == 7


def test_turns_without_logprobs_are_never_taken_for_the_same() -> None:
    same = CreditTurn(num_tokens=2, state="s")
    shared = find_shared_turns([leaf(1, same), leaf(0, same)])
    assert shared[0][0] != shared[1][0]


def test_a_shared_turn_weighs_as_one_turn() -> None:
    # Leaf advantages 3 1 -1 under one root; the first two share a second turn.
    shared = [[0, 1], [0, 1], [0, 2]]
    # once: root (3 + 1 - 1) / 3 = 1 over 3 copies; turn 1: (3 + 1) / 2 = 2 over 2 copies; turn 2 alone.
    assert share_advantages([3, 1, -1], shared, sharing="once") == [
        pytest.approx([1 / 3, 1.0]),
        pytest.approx([1 / 3, 1.0]),
        [1 / 3, -1.0],
    ]
    assert share_advantages([3, 1, -1], shared, sharing="mean") == [[1.0, 2.0], [1.0, 2.0], [1.0, -1.0]]
    assert share_advantages([3, 1, -1], shared, sharing="each") == [[3, 3], [1, 1], [-1, -1]]


@settings(max_examples=50)
@given(st.lists(numbers, min_size=1, max_size=6), st.data())
def test_sharing_conserves_what_reaches_a_turn(advantages: list[float], data: st.DataObject) -> None:
    turns = [data.draw(st.integers(0, 2)) for _ in advantages]
    shared = [[0, 10 + t] for t in turns]
    weights = {sharing: share_advantages(advantages, shared, sharing=sharing) for sharing in ("once", "mean", "each")}
    # All copies of the root together: the mean of the leaves once, n times the mean otherwise.
    mean = math.fsum(advantages) / len(advantages)
    assert math.fsum(row[0] for row in weights["once"]) == pytest.approx(mean, abs=1e-9)
    assert math.fsum(row[0] for row in weights["mean"]) == pytest.approx(len(advantages) * mean, abs=1e-9)
    assert math.fsum(row[0] for row in weights["each"]) == pytest.approx(len(advantages) * mean, abs=1e-9)


def test_tree_end_to_end_leaves_out_unscored_leaves() -> None:
    root = turn(-0.5, -0.5)
    batch = [leaf(1.0, root, turn(-0.1)), leaf(None, root, turn(-0.2)), leaf(0.0, root, turn(-0.3))]
    first, none, last = build_tree(deviation="none")(batch)
    assert none is None
    assert first is not None
    assert last is not None
    # Both parts give +-1/2, so leaves +-1; the root's mean over two scored leaves is 0.
    assert [a.tolist() for a in first] == [[0.0, 0.0], [1.0]]
    assert [a.tolist() for a in last] == [[0.0, 0.0], [-1.0]]


def test_arpo_soft_form_gives_every_copy_its_leaf() -> None:
    root = turn(-0.5)
    batch = [leaf(1.0, root, turn(-0.1)), leaf(0.0, root, turn(-0.2))]
    soft = build_arpo(deviation="none")(batch)
    hard = build_arpo(deviation="none", sharing="mean")(batch)
    assert [[float(a[0]) for a in turns or []] for turns in soft] == [[0.5, 0.5], [-0.5, -0.5]]
    assert [[float(a[0]) for a in turns or []] for turns in hard] == [[0.0, 0.5], [0.0, -0.5]]
    with pytest.raises(ValueError, match="sharing"):
        build_arpo(sharing="twice")  # type: ignore[arg-type]


def test_sampled_entropy_by_hand() -> None:
    # Tokens of probability 1/2 in a vocabulary of 4: log 2 / log 4 = 1/2 per position; a certain token adds nothing.
    half = math.log(0.5)
    assert compute_sampled_entropy([half, 0.0], vocab_size=4) == pytest.approx(0.5)
    assert compute_sampled_entropy([half] * 30, vocab_size=4, max_tokens=20) == pytest.approx(10.0)
    assert compute_sampled_entropy([], vocab_size=4) == 0.0


def test_branch_decision_by_hand() -> None:
    # u - 0.2 (H - H_0) <= 0.5: at equal entropies u decides at 0.5; two nats more move the line to 0.9.
    assert should_branch(1.0, 1.0, 0.5)
    assert not should_branch(1.0, 1.0, 0.51)
    assert should_branch(3.0, 1.0, 0.89)
    assert not should_branch(3.0, 1.0, 0.91)
    assert not should_branch(1.0, 4.0, 0.0)


def test_numbers_that_are_no_logprobs_are_refused() -> None:
    with pytest.raises(ValueError, match="at position 1"):
        compute_sampled_entropy([-1.0, 0.5], vocab_size=4)
    with pytest.raises(ValueError, match="nan"):
        compute_sampled_entropy([math.nan], vocab_size=4)
    with pytest.raises(ValueError, match="uniform"):
        should_branch(1.0, 1.0, 1.0)
