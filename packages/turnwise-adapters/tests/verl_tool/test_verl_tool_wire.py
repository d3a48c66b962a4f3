"""Requests and answers as other people's programs write them, and what is wrong with bad ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_adapters.verl_tool.wire import Action, Outcome, read_request, read_response, write_request, write_response


def body(**columns: Any) -> bytes:
    return json.dumps(columns).encode()


def test_a_request_of_verl_tools_agent_loop_is_read():
    sent = body(trajectory_ids=["a1"], actions=["<python>1</python>"], finish=[False], is_last_step=[False])
    assert read_request(sent) == [Action(trajectory="a1", text="<python>1</python>")]
    with_extra = body(trajectory_ids=["a1"], actions=["x"], finish=[True], is_last_step=[True], extra_fields=[{"k": 1}])
    assert read_request(with_extra) == [Action(trajectory="a1", text="x", is_finish=True, extra={"k": 1})]


def test_a_trajectory_is_closed_by_its_bare_id():
    sent = body(trajectory_ids="a1", actions=[""], finish=[True], is_last_step=[True])
    assert read_request(sent) == [Action(trajectory="a1", text="", is_finish=True)]


def test_columns_of_other_names_are_extra_fields_of_their_rows():
    sent = body(trajectory_ids=[1, "b"], actions=["x", "y"], stdin=["3", "4"], extra_fields=[{}, {"finish": True}])
    assert read_request(sent) == [
        Action(trajectory="1", text="x", extra={"stdin": "3"}),
        Action(trajectory="b", text="y", is_finish=True, extra={"finish": True, "stdin": "4"}),
    ]


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "must be a JSON object"),
        (body(), "trajectory_ids must be"),
        (body(trajectory_ids=[], actions=[]), "at least one"),
        (body(trajectory_ids=[True], actions=["x"]), "strings or integers"),
        (body(trajectory_ids=["a"]), "actions must be a list of 1 items, one per trajectory, not None"),
        (body(trajectory_ids=["a"], actions=["x", "y"]), "actions must be a list of 1 items.*not 2 items"),
        (body(trajectory_ids=["a"], actions=[7]), "items are all of type str"),
        (body(trajectory_ids=["a"], actions=["x"], finish=["no"]), "items are all of type bool"),
        (body(trajectory_ids=["a"], actions=["x"], extra_fields=[None]), "items are all of type dict"),
        (body(trajectory_ids=["a"], actions=["x"], other=3), "other must be a list of 1 items"),
    ],
)
def test_a_malformed_request_is_refused_with_the_reason(sent: bytes, problem: str):
    with pytest.raises(ValueError, match=problem):
        read_request(sent)


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b"<html>", "not JSON"),
        (body(detail="overloaded"), "observations must be a list of 1 items"),
        (body(observations=["x", "y"], dones=[0, 0], valids=[1, 1]), "1 items"),
        (body(observations=[3], dones=[False], valids=[True]), "an observation must be a string"),
        (body(observations=[{"image": "x"}], dones=[False], valids=[True]), "under 'obs'"),
        (body(observations=["x"], dones=["no"], valids=[True]), "booleans, not 'no'"),
    ],
)
def test_a_malformed_answer_is_refused_with_the_reason(sent: bytes, problem: str):
    with pytest.raises(ValueError, match=problem):
        read_response(sent, 1)


def test_both_forms_of_an_observation_are_read():
    sent = body(
        observations=[
            "7",
            {"obs": "8", "reward": 1.0},
            {"obs": "", "invalid_reason": "?"},
            {"obs": "", "error": "full"},
        ],
        dones=[0, 1, False, True],
        valids=[1, 1, False, False],
    )
    assert read_response(sent, 4) == [
        Outcome(text="7"),
        Outcome(text="8", is_done=True),
        Outcome(text="", is_valid=False, problem="?"),
        Outcome(text="", is_done=True, is_valid=False, problem="full", is_fault=True),
    ]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ACTIONS = st.builds(
    Action,
    trajectory=TEXTS,
    text=TEXTS,
    is_finish=st.booleans(),
    extra=st.dictionaries(TEXTS.filter(lambda name: name != "finish"), TEXTS, max_size=3),
)
OUTCOMES = st.one_of(
    st.builds(Outcome, text=TEXTS, is_done=st.booleans()),
    st.builds(
        Outcome,
        text=TEXTS,
        is_done=st.booleans(),
        is_valid=st.just(False),
        problem=TEXTS.filter(bool),
        is_fault=st.booleans(),
    ),
)


@given(st.lists(ACTIONS, min_size=1, max_size=4), st.lists(OUTCOMES, min_size=1, max_size=4))
def test_what_is_written_is_read_back(actions: list[Action], outcomes: list[Outcome]):
    assert read_request(write_request(actions)) == actions
    assert read_response(write_response(outcomes, 0.5), len(outcomes)) == outcomes
    assert json.loads(write_response(outcomes, 0.5))["processing_time_ms"] == 500.0
