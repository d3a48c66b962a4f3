"""Several calls in one reply: exact tokens, round trips, malformed lines, and what cannot be written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import RenderError
from turnwise.core.types import Message, ToolCall, ToolSpec, text_message, to_ids
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer, format_calls, parse_calls
from turnwise.rendering.stability import check_prefix_stable
from turnwise.rendering.tokenizer import encode_text, train_tokenizer

PROPERTY = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PROMPT = to_ids([50, 51, 52])
SPECS = [
    ToolSpec(
        name="babak", description="weather", parameters={"type": "object", "properties": {"denmip": {"type": "string"}}}
    )
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["</tool_call>", "a = b", "7", "null", "NaN", "1e999"]
)
names = st.text(st.characters(exclude_categories=("Cs", "Z", "C"), exclude_characters='="<>'), min_size=1, max_size=8)
values = (
    texts
    | st.integers()
    | st.booleans()
    | st.none()
    | st.lists(st.integers(), max_size=2)
    | st.dictionaries(texts, texts, max_size=2)
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    """Every tag and every word of the examples is one token."""
    sample = ["babak denmip = Aldor kizun = 7\n soflur", "weather babak denmip = city kizun = day"] * 40
    return train_tokenizer(sample, vocab_size=400, special_tokens=CALLS_FORMAT.special_tokens)


def calls_reply(*calls: tuple[str, dict[str, Any]]) -> Message:
    made = [
        ToolCall(id=f"call_3_{i}", name=name, arguments=json.dumps(a, ensure_ascii=False))
        for i, (name, a) in enumerate(calls)
    ]
    return Message(role="assistant", content=(), tool_calls=tuple(made))


def test_two_calls_in_exact_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = CallsRenderer(tokenizer)
    ids = renderer.encode_reply(calls_reply(("babak", {"denmip": "Aldor", "kizun": 7}), ("soflur", {})))
    opened, closed = (int(tokenizer.convert_tokens_to_ids(tag)) for tag in ("<tool_call>", "</tool_call>"))
    words = encode_text(tokenizer, " babak denmip = Aldor kizun = 7\n soflur")
    assert len(words) == 9  # seven words, a newline, a word
    assert ids.tolist() == [opened, *words, closed]
    assert closed in renderer.stop_token_ids


def test_the_renderer_is_prefix_stable(tokenizer: PreTrainedTokenizerBase) -> None:
    check_prefix_stable(CallsRenderer(tokenizer), tokenizer.decode, [text_message("user", "weather ?")], SPECS)
    plain = train_tokenizer(["weather"], vocab_size=300, special_tokens=("<|endoftext|>",))
    check_prefix_stable(CallsRenderer(plain), plain.decode, [text_message("user", "weather ?")], SPECS)


@PROPERTY
@given(
    calls=st.lists(st.tuples(names, st.dictionaries(names, values, max_size=3)), min_size=1, max_size=3),
    thought=st.none() | st.just("hm"),
)
@example(calls=[("f", {"x": '"quoted" text\nand a line', "y": "[a", "z": "true"}), ("f", {})], thought=None)
def test_calls_come_back_whatever_is_in_them(
    tokenizer: PreTrainedTokenizerBase, calls: list[tuple[str, dict[str, Any]]], thought: str | None
) -> None:
    renderer = CallsRenderer(tokenizer)
    message = Message(role="assistant", content=(), reasoning=thought, tool_calls=calls_reply(*calls).tool_calls)
    ids = renderer.encode_reply(message)
    assert renderer.parse(PROMPT, ids) == message
    assert sum(int(token) in renderer.stop_token_ids for token in ids) == 1


@PROPERTY
@given(st.lists(st.integers(-3, 420)) | st.lists(st.integers(0, 12)))
def test_parse_is_total(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> None:
    message = CallsRenderer(tokenizer).parse(PROMPT, to_ids(ids))
    assert message.tool_calls or message.tool_errors or "</answer>" in message.text


@pytest.mark.parametrize(
    ("block", "calls", "problems"),
    [
        ("f a = 1 b = x", [("f", {"a": 1, "b": "x"})], []),
        ("f\n g a = -2.5", [("f", {}), ("g", {"a": -2.5})], []),
        ('f a="x = y" b=[1, 2]', [("f", {"a": "x = y", "b": [1, 2]})], []),
        ("f a = NaN b = 1e999 c = 007", [("f", {"a": "NaN", "b": "1e999", "c": "007"})], []),
        ("f a = x\n g h", [("f", {"a": "x"})], ["'=' was expected after 'h'"]),
        ("f a = 1 a = 2", [], ["'a' is given twice"]),
        ("f a =", [], ["a name was expected"]),
        ('f a = "x', [], ["not valid JSON"]),
        ("", [], ["a name was expected"]),
        ("= 3", [], ["a name was expected"]),
    ],
)
def test_lines_are_calls_or_errors(block: str, calls: list[tuple[str, dict[str, Any]]], problems: list[str]) -> None:
    parsed, errors = parse_calls(block, id_prefix="call_9")
    assert [(call.name, json.loads(call.arguments)) for call in parsed] == calls
    assert [call.id for call in parsed] == [f"call_9_{index}" for index in range(len(calls))]
    assert len(errors) == len(problems)
    assert all(
        problem in error.message and error.kind == "bad_call" for problem, error in zip(problems, errors, strict=True)
    )


@pytest.mark.parametrize(
    ("name", "arguments"), [("two words", "{}"), ("f", "[1]"), ("f", "{"), ("f", '{"a b": 1}'), ("", "{}")]
)
def test_what_cannot_be_written_is_refused(name: str, arguments: str) -> None:
    with pytest.raises(RenderError, match="cannot write this call as name argument = value"):
        format_calls([ToolCall(id="call_0", name=name, arguments=arguments)])


def test_words_instead_of_calls_need_the_answer_tags(tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = CallsRenderer(tokenizer)
    asked = text_message("assistant", "<answer> which city </answer>")
    assert renderer.parse(PROMPT, renderer.encode_reply(asked)) == asked
    bare = renderer.parse(PROMPT, to_ids([*encode_text(tokenizer, " which city"), tokenizer.eos_token_id]))
    assert [error.kind for error in bare.tool_errors] == ["no_action"]
