"""The arguments of a call stay as the model wrote them: spacing, key order, the spelling of numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from turnwise.core.types import text_message, to_ids
from turnwise.rendering.calls import format_calls, parse_calls
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.hermes_calls import format_tool_call, parse_tool_calls
from turnwise.rendering.raw_json import find_object, split_members
from turnwise.rendering.tags import FORMATS, TagRenderer
from turnwise.rendering.tokenizer import encode_text

ODD = '{"z":1.50 ,\t"a" : [ 1E2,-0 ],  "caf\\u00e9":{ }}'
"""No JSON printer writes this."""

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
printers: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "indent": st.none() | st.just(1),
        "ensure_ascii": st.booleans(),
        "separators": st.sampled_from([(",", ":"), (" , ", "\t: "), (", ", ": ")]),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    members=st.dictionaries(st.text(max_size=4), st.tuples(values, printers), max_size=4), gap=st.sampled_from(" \n")
)
def test_members_are_split_as_they_are_written(members: dict[str, tuple[Any, dict[str, Any]]], gap: str) -> None:
    raw = {key: json.dumps(value, **printer) for key, (value, printer) in members.items()}
    text = "{" + f"{gap},".join(f"{gap}{json.dumps(key)}{gap}:{gap}{value}" for key, value in raw.items()) + gap + "}"
    assert split_members(f"{gap}{text}{gap}") == raw
    assert find_object(f"{{ not JSON [{text}] {text}", json.loads(text)) == text


def test_the_last_of_two_equal_keys_counts_and_other_text_is_refused() -> None:
    assert split_members('{"a": 1, "a": 2.0}') == {"a": "2.0"} == {"a": str(json.loads('{"a": 1, "a": 2.0}')["a"])}
    for text in ("", "[1]", "{", '{"a": NaN}', '{"a": 1} x', '{"a" 1}'):
        with pytest.raises(ValueError, match=r"Expecting|JSON|Extra"):
            split_members(text)
    assert find_object('{"a": true}', {"a": 1}) is None


def test_hermes_text_keeps_them_both_ways() -> None:
    _, (call,), errors = parse_tool_calls(f'<tool_call> {{"arguments" : {ODD}, "name":"f"}}</tool_call>')
    assert (call.name, call.arguments, errors) == ("f", ODD, ())
    assert parse_tool_calls(format_tool_call(call))[1] == (call,)


def test_a_chat_renderer_keeps_them(chat_tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = ChatRenderer(chat_tokenizer)
    prompt = renderer.open([text_message("user", "?")], [])
    written = f'<tool_call>\n{{"name": "f",  "arguments":{ODD} }}\n</tool_call><|im_end|>'
    message = renderer.parse(prompt, to_ids(chat_tokenizer.encode(written, add_special_tokens=False)))
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("f", ODD)]


def test_lines_of_calls_keep_every_value() -> None:
    # The pairs of a line have no JSON of their own; each value is what the model wrote.
    line = 'f z = 1.50 a = [1E2,  -0] b = "caf\\u00e9 x" c = 007 d = true e = {"k" :1}'
    (call,), errors = parse_calls(line, id_prefix="c")
    expected = '{"z": 1.50, "a": [1E2,  -0], "b": "caf\\u00e9 x", "c": "007", "d": true, "e": {"k" :1}}'
    assert (call.arguments, errors) == (expected, ())
    assert format_calls([call]) == line


@pytest.mark.parametrize("tag_format", FORMATS)
@pytest.mark.parametrize("tags_are_tokens", [True, False])
def test_the_text_between_tags_is_the_argument(
    tag_tokenizer: PreTrainedTokenizerBase,
    plain_tokenizer: PreTrainedTokenizerBase,
    tag_format: str,
    tags_are_tokens: bool,
) -> None:
    # The tag's content is the value of the tool's one argument, without the space the format puts around it.
    form = FORMATS[tag_format]
    tokenizer = tag_tokenizer if tags_are_tokens and tag_format == "search_r1" else plain_tokenizer
    renderer = TagRenderer(tokenizer, form)
    written = 'x  =  1.50\n    y\t= {"b":1,"a" : 2E1}'
    if tokenizer is plain_tokenizer:
        ids = encode_text(tokenizer, f"<{form.action}> {written} </{form.action}>")
    else:
        ids = tokenizer.encode(f"<{form.action}> {written} </{form.action}>", add_special_tokens=False)
    (call,) = renderer.parse(to_ids([5]), to_ids(ids)).tool_calls
    assert json.loads(call.arguments) == {form.argument: written}
