"""Properties every step- and turn-level method has to keep, run over the whole table."""

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import compute_grpo_advantages
from turnwise.algorithms.credit import CreditTrajectory, CreditTurn, TokenAdvantages
from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.credit_table import TURN_METHODS

OPTIONS: dict[str, dict[str, object]] = {"prime": {"whitening": "none"}, "vspo": {"max_reward": 9.0}}
"""Whitening mixes all groups of a batch by design; the totals drawn here exceed 1."""


def run(name: str, batch: list[CreditTrajectory], **options: object) -> list[TokenAdvantages | None]:
    method = TURN_METHODS[name]
    return CheckedCredit(method=method, function=method.build(**{**OPTIONS.get(name, {}), **options}))(batch)


def flat(credited: list[TokenAdvantages | None]) -> list[list[float] | None]:
    return [None if turns is None else [float(x) for array in turns for x in array] for turns in credited]


@st.composite
def turns(draw: st.DrawFn, rewarded: bool = True) -> CreditTurn:
    num_tokens = draw(st.integers(0, 3))
    share = st.floats(0, 1).map(lambda x: round(x, 2))
    per_token = np.array([draw(share) for _ in range(num_tokens)])
    return CreditTurn(
        num_tokens=num_tokens,
        reward=draw(share) if rewarded else 0.0,
        state=draw(st.sampled_from("ab")),
        state_value=draw(share),
        process_score=draw(share),
        answer_probability=draw(share),
        progress=draw(share),
        potential=draw(share),
        logprobs=-per_token,
        implicit_rewards=per_token,
    )


@st.composite
def batches(draw: st.DrawFn) -> list[CreditTrajectory]:
    return [
        CreditTrajectory(
            group=draw(st.sampled_from("xy")),
            reward=draw(st.none() | st.sampled_from([-1.0, 0.0, 0.5])),
            turns=tuple(draw(st.lists(turns(), max_size=3))),
            tree=draw(st.sampled_from(["s", "t"])),
        )
        for _ in range(draw(st.integers(0, 6)))
    ]


@pytest.mark.parametrize("name", TURN_METHODS)
def test_the_table_says_what_the_builder_takes(name: str) -> None:
    method = TURN_METHODS[name]
    parameters = inspect.signature(method.build).parameters
    assert method.name == name
    assert dict(method.defaults) == {key: parameter.default for key, parameter in parameters.items()}


@pytest.mark.parametrize("name", TURN_METHODS)
@settings(max_examples=15, deadline=None)
@given(batches(), st.randoms(use_true_random=False))
def test_order_does_not_matter_and_unscored_members_change_nothing(
    name: str, batch: list[CreditTrajectory], random: object
) -> None:
    expected = flat(run(name, batch))
    assert [row is None for row in expected] == [trajectory.reward is None for trajectory in batch]
    order = list(range(len(batch)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = flat(run(name, [batch[i] for i in order]))
    for i, row in zip(order, shuffled, strict=True):
        assert row is None if expected[i] is None else row == pytest.approx(expected[i], abs=1e-7)
    if name != "vspo":  # there an unscored group gives its place away
        scored = flat(run(name, [trajectory for trajectory in batch if trajectory.reward is not None]))
        assert scored == [row if row is None else pytest.approx(row, abs=1e-7) for row in expected if row is not None]


@pytest.mark.parametrize("name", sorted(set(TURN_METHODS) - {"vspo"}))
@settings(max_examples=10, deadline=None)
@given(batches())
def test_an_unrelated_group_changes_nothing(name: str, batch: list[CreditTrajectory]) -> None:
    both = flat(run(name, batch))
    for group in "xy":
        alone = flat(run(name, [trajectory for trajectory in batch if trajectory.group == group]))
        assert alone == [row for row, trajectory in zip(both, batch, strict=True) if trajectory.group == group]


@pytest.mark.parametrize("name", [name for name, method in TURN_METHODS.items() if method.group_of_one.startswith("0")])
@settings(max_examples=15, deadline=None)
@given(st.lists(turns(), min_size=1, max_size=3))
def test_a_group_of_one_gives_exactly_zero(name: str, row: list[CreditTurn]) -> None:
    (got,) = flat(run(name, [CreditTrajectory(group="x", reward=0.7, turns=tuple(row), tree="t")]))
    assert got is not None
    assert all(value == 0.0 for value in got)


@pytest.mark.parametrize("name", ["multi_turn_grpo", "turn_discount", "arpo", "vspo", "scheduled_mix", "gigpo", "tree"])
@pytest.mark.parametrize("reward", [0.1, 0.3, 0.7])
def test_a_constant_group_is_exactly_zero_also_in_float32(name: str, reward: float) -> None:
    row = (
        CreditTurn(num_tokens=2, state="a", logprobs=np.array([-0.1, -0.2])),
        CreditTurn(num_tokens=1, state="b", logprobs=np.zeros(1)),
    )
    got = run(name, [CreditTrajectory(group="x", reward=reward, turns=row, tree="t") for _ in range(7)])
    assert all((array.astype(np.float32) == 0).all() for member in got for array in member or [])


OUTCOME_ONLY: dict[str, dict[str, Any]] = {
    "multi_turn_grpo": {"epsilon": 1e-6},
    "turn_discount": {"gamma": 1.0},
    "gigpo": {"omega": 0.0, "deviation": "sample"},
}


@pytest.mark.parametrize("name", [*OUTCOME_ONLY, "arpo"])
@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.3, 1.0]), st.lists(st.integers(0, 4), min_size=1, max_size=4)),
        min_size=1,
        max_size=6,
    )
)
def test_how_a_trajectory_is_cut_into_turns_changes_nothing(name: str, members: list[tuple[float, list[int]]]) -> None:
    def batch(cut: bool) -> list[CreditTrajectory]:
        return [
            CreditTrajectory(
                group="x",
                reward=reward,
                tree="t",
                turns=tuple(
                    CreditTurn(num_tokens=n, state="s", logprobs=np.full(n, -0.1 * i))
                    for n in (lengths if cut else [sum(lengths)])
                ),
            )
            for i, (reward, lengths) in enumerate(members)
        ]

    whole = flat(run(name, batch(cut=False), **OUTCOME_ONLY.get(name, {})))
    expected = compute_grpo_advantages([reward for reward, _ in members])
    assert whole == [pytest.approx([a] * sum(n)) for a, (_, n) in zip(expected, members, strict=True)]
    assert flat(run(name, batch(cut=True), **OUTCOME_ONLY.get(name, {}))) == [
        row and pytest.approx(row) for row in whole
    ]


@pytest.mark.parametrize("name", TURN_METHODS)
def test_empty_batches_unscored_batches_and_trajectories_without_tokens(name: str) -> None:
    full = {
        "state": "s",
        "state_value": 0.0,
        "process_score": 0.5,
        "answer_probability": 0.5,
        "progress": 0.5,
        "potential": 0.5,
    }
    bare = CreditTurn(num_tokens=0, **full)  # type: ignore[arg-type]
    assert run(name, []) == []
    unscored = [CreditTrajectory(group="x", reward=None, turns=(bare,), tree="t") for _ in range(2)]
    assert run(name, unscored) == [None, None]
    rows = ((1.0, (bare,)), (0.0, ()), (0.5, (bare, bare)))
    silent = [CreditTrajectory(group="x", reward=reward, turns=row, tree="t") for reward, row in rows]
    assert flat(run(name, silent)) == [[], [], []]


@pytest.mark.parametrize("name", [name for name, method in TURN_METHODS.items() if method.needs])
def test_a_field_that_is_missing_is_named(name: str) -> None:
    batch = [CreditTrajectory(group="x", reward=reward, turns=(CreditTurn(num_tokens=1),)) for reward in (0.0, 1.0)]
    with pytest.raises(ValueError, match=TURN_METHODS[name].needs[0]):
        run(name, batch)


@pytest.mark.parametrize("name", ["multi_turn_grpo", "turn_discount", "vspo", "scheduled_mix"])
def test_a_reward_that_is_not_finite_raises_without_the_checks_too(name: str) -> None:
    batch = [
        CreditTrajectory(group="x", reward=reward, turns=(CreditTurn(num_tokens=1),)) for reward in (float("nan"), 1.0)
    ]
    with pytest.raises(ValueError, match="finite"):
        TURN_METHODS[name].build()(batch)
