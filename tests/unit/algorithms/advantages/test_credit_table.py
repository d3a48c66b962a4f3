"""The table of credit methods: rows say what the code does, unknown names are refused, inputs and outputs checked."""

from __future__ import annotations

import inspect
import json
import math
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from credit_batches import flatten, make_trajectory

from turnwise.algorithms.credit import CreditTrajectory, CreditTurn
from turnwise.algorithms.credit_checks import FIELD_REMEDIES, CheckedCredit
from turnwise.algorithms.credit_table import CREDIT_METHODS, TRAJECTORY_METHODS, build_credit
from turnwise.credit.annotator_table import ANNOTATORS

every_method = pytest.mark.parametrize("name", CREDIT_METHODS)


def full_trajectory(reward: float | None, group: str = "g") -> CreditTrajectory:
    """Two turns of two tokens with every optional field there."""
    turn = CreditTurn(
        num_tokens=2,
        reward=0.0,
        state="s",
        state_value=0.5,
        process_score=0.5,
        answer_probability=0.5,
        progress=0.5,
        potential=0.5,
        values=np.zeros(2),
        logprobs=np.full(2, -1.0),
        reference_logprobs=np.full(2, -1.0),
        implicit_rewards=np.zeros(2),
        squared_mass=np.full(2, 0.5),
    )
    turns = (turn, replace(turn, parent=0))
    return CreditTrajectory(
        group=group,
        reward=reward,
        turns=turns,
        parts={"a": reward or 0.0},
        greedy_reward=0.0,
        role="r",
        tree="t",
        final_value=0.0,
    )


@every_method
def test_defaults_are_those_of_the_code(name: str) -> None:
    method = CREDIT_METHODS[name]
    assert method.name == name
    signature = inspect.signature(method.build)
    assert dict(method.defaults) == {option: parameter.default for option, parameter in signature.parameters.items()}
    field_names = {field.name for field in (*fields(CreditTurn), *fields(CreditTrajectory))}
    assert set(method.needs) <= field_names
    assert set(method.needs) <= set(FIELD_REMEDIES)


@every_method
def test_a_row_asks_for_what_supplies_its_needs(name: str) -> None:
    method = CREDIT_METHODS[name]
    filled = {kind.fills for kind in ANNOTATORS.values()}
    assert {ANNOTATORS[annotator].fills for annotator in method.annotators} == set(method.needs) & filled
    assert (method.branches == "values") == ("state_value" in method.needs)
    assert (method.branches in ("random", "entropy")) == ("tree" in method.needs) == (method.compares == "leaves")
    assert (method.returns is not None) == ("values" in method.needs)
    # What is alone in its group gets 0 from a comparison within the group, and only from that.
    assert (method.compares == "nothing") == (not method.group_of_one.startswith("0"))


@every_method
def test_every_method_takes_an_ordinary_batch(name: str) -> None:
    batch = [full_trajectory(1.0), full_trajectory(0.0), full_trajectory(None), full_trajectory(1.0, "alone")]
    got = build_credit(name)(batch)
    assert [turns is None for turns in got] == [False, False, True, False]
    assert all(len(flatten(turns)) == 4 for turns in got if turns is not None)


@every_method
def test_every_method_survives_degenerate_batches(name: str) -> None:
    assert build_credit(name)([]) == []
    assert build_credit(name)([full_trajectory(None)]) == [None]
    empty = replace(full_trajectory(1.0), turns=())
    assert build_credit(name)([empty, full_trajectory(0.0)])[0] == []


@pytest.mark.parametrize("name", TRAJECTORY_METHODS)
def test_the_columns_on_degenerate_groups_are_true(name: str) -> None:
    method = TRAJECTORY_METHODS[name]
    other = [full_trajectory(1.0, "other"), full_trajectory(0.0, "other")]
    for column, group in ((method.group_of_one, [0.7]), (method.constant_group, [0.7] * 3)):
        if column == "0":
            got = build_credit(name)([full_trajectory(reward) for reward in group] + other)
            assert all(flatten(turns) == [0.0] * 4 for turns in got[: len(group)])
        elif column in ("r", "r - b", "r - r(greedy)"):  # no baseline yet, and a greedy reward of 0
            got = build_credit(name)([full_trajectory(reward) for reward in group] + other)
            assert all(flatten(turns) == [0.7] * 4 for turns in got[: len(group)])
        else:
            assert "whiten" in method.formula


def test_unknown_names_and_options_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown credit method 'rlo' \(did you mean 'rloo'\?\); known: .*grpo"):
        build_credit("rlo")
    with pytest.raises(
        ValueError,
        match=r"'grpo' has no option 'epsilom' \(did you mean 'epsilon'\?\); its options: deviation, epsilon",
    ):
        build_credit("grpo", {"epsilom": 1.0})
    with pytest.raises(ValueError, match="its options: none"):
        build_credit("rloo", {"epsilon": 1.0})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grpo", {"deviation": "samples"}),
        ("grpo", {"epsilon": -1.0}),
        ("grpo", {"epsilon": "small"}),
        ("gae", {"gamma": 1.5}),
        ("gae", {"gae_lambda": math.nan}),
        ("gae", {"bootstrap": "maybe"}),
        ("turn_gae", {"whitening": "half"}),
        ("bilevel_gae", {"token_gamma": -0.1}),
        ("reinforce_plus_plus", {"kl_coefficient": -0.1}),
        ("rae", {"decay": 2.0}),
        ("gdpo", {"weights": {}}),
        ("gdpo", {"normalization": "prompts"}),
        ("pass_at_k", {"deviation": None}),
    ],
)
def test_option_values_are_checked_when_the_method_is_built(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        build_credit(name, options)


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, method in CREDIT_METHODS.items() for field in method.needs]
)
def test_a_missing_field_is_named_with_its_method_and_a_remedy(name: str, field: str) -> None:
    whole = full_trajectory(1.0)
    missing: Any = {"role": "", "parts": {}}.get(field)
    if field in {f.name for f in fields(CreditTrajectory)}:
        lacking = replace(whole, **{field: missing})
    else:
        lacking = replace(whole, turns=(whole.turns[0], replace(whole.turns[1], **{field: missing})))
    with pytest.raises(
        ValueError,
        match=f"trajectory 1 .*{field} is missing; credit method {name!r} needs it; {FIELD_REMEDIES[field][:9]}",
    ):
        build_credit(name)([whole, lacking])


def test_a_turn_without_tokens_needs_no_values() -> None:
    (got,) = build_credit("gae", {"whitening": "none"})([make_trajectory(1.0, [0], values=[])])
    assert flatten(got) == []
    bare = CreditTrajectory(group="g", reward=1.0, turns=(CreditTurn(num_tokens=0),))
    (got,) = build_credit("gae")([bare])
    assert flatten(got) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    good = full_trajectory(1.0)
    first, second = good.turns
    for lacking in (
        replace(good, reward=bad),
        replace(good, parts={"a": bad}),
        replace(good, greedy_reward=bad),
        replace(good, turns=(replace(first, reward=bad), second)),
        replace(good, turns=(replace(first, values=np.array([0.0, bad])), second)),
    ):
        with pytest.raises(ValueError, match=r"trajectory 1 .*(nan|inf)"):
            build_credit("grpo")([good, lacking])


def test_a_wrong_turn_is_refused() -> None:
    good = full_trajectory(1.0)
    first, second = good.turns
    for turn, message in (
        (replace(second, parent=1), "parent is 1"),
        (replace(second, parent=-1), "parent is -1"),
        (replace(second, num_tokens=-2), "num_tokens is -2"),
        (replace(second, values=np.zeros(3)), r"values has shape \[3\]"),
    ):
        with pytest.raises(ValueError, match=f"turn 1: {message}"):
            build_credit("grpo")([replace(good, turns=(first, turn))])


def test_a_function_of_ones_own_is_checked_too() -> None:
    batch = [full_trajectory(1.0), full_trajectory(None)]
    for returned, message in (
        ([], "0 results for 2"),
        ([[np.zeros(2)], None], r"arrays have \[2\] tokens"),
        ([[np.zeros(2), np.full(2, np.nan)], None], "not finite"),
        ([[np.zeros(2), np.zeros(2)], [np.zeros(2), np.zeros(2)]], "reward None"),
    ):

        def give(_: object, returned: Any = returned) -> Any:
            return returned

        credit = CheckedCredit(method=CREDIT_METHODS["grpo"], function=give)
        with pytest.raises(ValueError, match=message):
            credit(batch)


def test_the_self_play_baseline_survives_a_restart() -> None:
    batch = [full_trajectory(1.0)]
    running = build_credit("rae", {"decay": 0.5})
    running(batch)
    saved = json.loads(json.dumps(running.state_dict()))
    assert saved == {"baselines": {"r": 0.5}}
    resumed = build_credit("rae", {"decay": 0.5})
    resumed.load_state_dict(saved)
    assert flatten(resumed(batch)[0]) == flatten(running(batch)[0]) == [0.5] * 4
    for wrong in ({}, {"baselines": 1.0}, {"baselines": {"r": math.nan}}):
        with pytest.raises(ValueError, match="baseline"):
            resumed.load_state_dict(wrong)


def test_a_method_without_state_takes_none() -> None:
    credit = build_credit("grpo")
    assert credit.state_dict() == {}
    credit.load_state_dict({})
    with pytest.raises(ValueError, match="has no state"):
        credit.load_state_dict({"baselines": {}})


def test_the_table_needs_no_torch() -> None:
    code = "import sys, turnwise.algorithms.credit_table; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
