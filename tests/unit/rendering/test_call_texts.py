"""Calls as text: every call that is written is read back, malformed ones are typed, any text is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import RenderError
from turnwise.core.types import ToolCall, ToolSpec
from turnwise.rendering.call_texts import CALL_TEXTS, describe_tool

words = st.text(max_size=20) | st.sampled_from(
    ["</tool_call>", "<tool_call>", "```", "```tool\n", "\nObservation: x", "\nAction: y\nAction Input: {}", "{", "\\"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | words, lambda inner: st.lists(inner, max_size=2), max_leaves=4
)


QUOTED = [name for name in CALL_TEXTS if name != "qwen_coder"]
"""Formats whose arguments are JSON."""


@pytest.mark.parametrize("calls", QUOTED)
@given(arguments=st.dictionaries(words, json_values, max_size=3), content=st.sampled_from(["", "Let me look.\n\nYes:"]))
def test_what_is_written_is_read_back(calls: str, arguments: dict[str, Any], content: str) -> None:
    form = CALL_TEXTS[calls]
    call = ToolCall(id="call_3", name="search", arguments=json.dumps(arguments, ensure_ascii=False))
    second = ToolCall(id="call_4", name="open_page", arguments="{}")
    read_content, read_calls, errors = form.read("\n".join([content, form.write(call), form.write(second)]), 3)
    assert (read_content, errors) == (content, ())
    assert [(each.id, each.name, json.loads(each.arguments)) for each in read_calls] == [
        ("call_3", "search", arguments),
        ("call_4", "open_page", {}),
    ]


@pytest.mark.parametrize("calls", QUOTED)
def test_arguments_keep_their_spelling(calls: str) -> None:
    form = CALL_TEXTS[calls]
    call = ToolCall(id="call_0", name="search", arguments='{ "a" : 1e3, "b":25.0,"é": "caf\\u00e9" }')
    assert form.read(form.write(call), 0)[1] == (call,)


@pytest.mark.parametrize(
    ("calls", "text", "kind"),
    [
        ("hermes", '<tool_call>{"name": "search"', "unclosed"),
        ("hermes", "<tool_call>[1]</tool_call>", "bad_call"),
        ("fenced", "```tool\n{broken}\n```", "bad_json"),
        ("fenced", '```tool\n{"arguments": {}}\n```', "bad_call"),
        ("fenced", '```tool\n{"name": "search"', "unclosed"),
        ("react", "Action: search", "bad_call"),
        ("react", "Action:\nAction Input: {}", "bad_call"),
        ("react", "Action: search\nAction Input: Blue Lantern", "bad_json"),
        ("react", "Action: search\nAction Input: [1]", "bad_call"),
        ("react", "Action: search\nAction Input:", "bad_json"),
    ],
)
def test_malformed_calls_are_typed(calls: str, text: str, kind: str) -> None:
    content, read_calls, errors = CALL_TEXTS[calls].read(f"First.\n{text}", 0)
    assert (content, read_calls, [error.kind for error in errors]) == ("First.", (), [kind])


def test_what_only_looks_like_a_call_is_content() -> None:
    data = '```json\n{"name": "Mira", "age": 4}\n```'
    assert CALL_TEXTS["fenced"].read(data, 0) == (data, (), ())
    code = "```python\nprint(1)\n```\nDone."
    assert CALL_TEXTS["fenced"].read(code, 0) == (code, (), ())
    content, (call,), errors = CALL_TEXTS["fenced"].read('```json\n{"name": "search", "arguments": {"q": 1}}\n```', 0)
    assert (content, call.name, call.arguments, errors) == ("", "search", '{"q": 1}', ())


def test_a_result_that_the_model_made_up_is_no_part_of_its_reply() -> None:
    text = 'Thought: look\nAction: search\nAction Input: {"query": "x"}\nObservation: Mira\nAction: search'
    content, calls, errors = CALL_TEXTS["react"].read(text, 0)
    assert (content, len(calls), errors) == ("Thought: look", 1, ())


def test_a_call_that_two_lines_cannot_express_is_refused() -> None:
    for call in (
        ToolCall(id="c", name="two\nlines", arguments="{}"),
        ToolCall(id="c", name="search", arguments="Blue Lantern"),
    ):
        with pytest.raises(RenderError, match=r'renderer.calls="hermes"'):
            CALL_TEXTS["react"].write(call)


@pytest.mark.parametrize("calls", CALL_TEXTS)
@given(
    text=st.text()
    | st.lists(
        st.sampled_from(
            ["<tool_call>", "</tool_call>", "```tool\n", "```", "\nAction:", "\nAction Input:", "{", "}", " "]
        )
    ).map("".join)
)
def test_any_text_is_read(calls: str, text: str) -> None:
    _, read_calls, errors = CALL_TEXTS[calls].read(text, 0)
    assert len({call.id for call in read_calls}) == len(read_calls)
    assert all(error.message for error in errors)


def tool(properties: dict[str, Any], **parameters: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, **parameters}
    return ToolSpec(name="look", description="Look up\n a word.", parameters=schema)


def test_a_tool_with_plain_arguments_is_one_line() -> None:
    word, limit = {"type": "string", "description": "The word."}, {"type": "integer"}
    described = describe_tool(tool({"word": word, "limit": limit}, required=["word"], additionalProperties=False))
    assert described == "look(word: string, limit?: integer): Look up a word. word: The word."
    assert describe_tool(tool({})) == "look(): Look up a word."


@pytest.mark.parametrize(
    ("properties", "parameters"),
    [
        ({"words": {"type": "array", "items": {"type": "string"}}}, {}),
        ({"word": {"type": "string", "enum": ["a", "b"]}}, {}),
        ({"word": {"type": "integer", "minimum": 1}}, {}),
        ({"word": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, {}),
        ({"word": True}, {}),
        ({"word": {"type": "string"}}, {"$defs": {"x": {}}}),
    ],
)
def test_what_a_signature_cannot_say_stays_json(properties: dict[str, Any], parameters: dict[str, Any]) -> None:
    spec = tool(properties, **parameters)
    assert json.loads(describe_tool(spec)) == {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
    }
