"""The hermes parser: total, and the inverse of its printer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.types import ToolCall
from turnwise.rendering.hermes_calls import format_tool_call, parse_tool_calls

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text().filter(lambda s: "tool_call>" not in s),
    lambda x: st.lists(x),
    max_leaves=5,
)
fragments = st.sampled_from(
    ["<tool_call>", "</tool_call>", '{"name": "a"', ', "arguments": {}', "}", "[", "NaN", '"', "\n"]
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=5).filter(lambda s: "tool_call>" not in s), values), st.integers(0, 9))
def test_round_trip(arguments: dict[str, object], first_id: int) -> None:
    call = ToolCall(id=f"call_{first_id}", name="search", arguments=json.dumps(arguments, ensure_ascii=False))
    assert parse_tool_calls(f"so {format_tool_call(call)}", first_id=first_id) == ("so", (call,), ())


@settings(max_examples=50, deadline=None)
@given(st.text() | st.lists(fragments | st.text(max_size=3), max_size=12).map("".join))
def test_any_text_gives_a_result(text: str) -> None:
    content, calls, errors = parse_tool_calls(text)
    assert "<tool_call>" not in content or not text.count("<tool_call>")
    assert len(calls) + len(errors) == text.count("<tool_call>")


def test_a_call_whose_arguments_are_no_object_keeps_them() -> None:
    call = ToolCall(id="call_0", name="search", arguments="{not json")
    assert parse_tool_calls(format_tool_call(call))[1] == (call,)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("<tool_call>{</tool_call>", ["bad_json"]),
        ('<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>', ["bad_json"]),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", ["bad_json"]),
        ("<tool_call>[1]</tool_call>", ["bad_call"]),
        ('<tool_call>{"name": 3}</tool_call>', ["bad_call"]),
        ('<tool_call>{"name": ""}</tool_call>', ["bad_call"]),
        ('<tool_call>{"name": "a"}', ["unclosed"]),
        ("<tool_call><tool_call>1</tool_call>", ["unclosed", "bad_call"]),
    ],
)
def test_malformed_calls_are_typed(text: str, kinds: list[str]) -> None:
    content, calls, errors = parse_tool_calls(text)
    assert (content, calls) == ("", ())
    assert [error.kind for error in errors] == kinds
    assert all(error.message for error in errors)


def test_good_and_bad_calls_in_one_reply_keep_their_order_and_ids() -> None:
    good, bad = '<tool_call>{"name": "a"}</tool_call>', "<tool_call>{</tool_call>"
    text = f'first {good}{bad}<tool_call>{{"name": "b", "arguments": "raw"}}</tool_call> last'
    content, calls, errors = parse_tool_calls(text, first_id=7)
    assert content == "first  last"
    assert [(call.id, call.name, call.arguments) for call in calls] == [("call_7", "a", "{}"), ("call_8", "b", "raw")]
    assert len(errors) == 1
