"""What models write around calls: other keys, marks in strings, programs that hold tags; every reader linear."""

from __future__ import annotations

import gc
import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import RenderError
from turnwise.core.types import Message, ToolCall, ToolSpec, text_message, to_ids
from turnwise.rendering.call_grammar import build_call_grammar
from turnwise.rendering.call_texts import CALL_TEXTS, describe_tool
from turnwise.rendering.calls import parse_calls
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.tags import FORMATS, TagRenderer, read_pieces
from turnwise.rendering.tokenizer import encode_text

OBJECTS: dict[str, Callable[[str], str]] = {
    "hermes": lambda body: f"<tool_call>\n{body}\n</tool_call>",
    "fenced": lambda body: f"```tool\n{body}\n```",
    "llama": lambda body: body,
    "mistral": lambda body: f"[TOOL_CALLS][{body}]",
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ('{"name": "clear", "parameters": {"path": "x"}}', '{"path": "x"}'),
        ('{"name": "clear"}', "{}"),
        ('{"name": "clear", "args": {"path": "x"}}', '"args"'),
        ('{"name": "clear", "input": "x", "id": "1"}', '"input"'),
        ('{"name": "clear", "arguments": {}, "path": "x"}', '"path"'),
        ('{"name": "clear", "arguments": {"path": "x"}, "parameters": {}}', 'both "arguments" and "parameters"'),
        ('{"name": "clear", "thought": "it is full", "arguments": {"path": "x"}}', '{"path": "x"}'),
        ('{"arguments": "{\\"path\\": 1}", "name": "clear"}', '{"path": 1}'),
    ],
)
def test_arguments_are_read_or_their_key_is_named(name: str, body: str, outcome: str) -> None:
    _, calls, errors = CALL_TEXTS[name].read(OBJECTS[name](body), 0)
    if outcome.startswith("{"):
        assert [(call.name, call.arguments) for call in calls] == [("clear", outcome)]
        assert errors == ()
    else:
        assert calls == ()
        assert [outcome in error.message and error.kind == "bad_call" for error in errors] == [True]


def test_a_chat_renderer_drops_no_arguments(chat_tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = ChatRenderer(chat_tokenizer)
    prompt = renderer.open([text_message("user", "?")], [])

    def parse(text: str) -> Message:
        return renderer.parse(prompt, to_ids(chat_tokenizer.encode(text, add_special_tokens=False)))

    (error,) = parse('<tool_call>\n{"name": "clear", "args": {"path": "x"}}\n</tool_call><|im_end|>').tool_errors
    assert '"args"' in error.message
    (call,) = parse('<tool_call>{"name": "clear", "parameters": {"path": "x"}}</tool_call><|im_end|>').tool_calls
    assert call.arguments == '{"path": "x"}'
    message = parse('<think>hm</think>So <tool_call>{"name": "f", "arguments": {"q": "a</tool_call>b"}}</tool_call> ok')
    assert [call.arguments for call in message.tool_calls] == ['{"q": "a</tool_call>b"}']
    assert (message.reasoning, message.text) == ("hm", "So\nok")


def test_llamas_calls_are_found_beside_text_in_the_chat_renderer() -> None:
    from turnwise.rendering.tokenizer import train_tokenizer

    tokens = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>")
    tokenizer = train_tokenizer(["a b"] * 20, vocab_size=320, special_tokens=(*tokens, "<|eom_id|>"))
    renderer = ChatRenderer(tokenizer, name="llama-3")
    prompt = renderer.open([text_message("user", "?")], [])
    for text, arguments, content in (
        ('{"name": "f", "parameters": {"q": 1}}', ['{"q": 1}'], ""),
        ('Sure: {"name": "f", "parameters": {"q": 1}}', ['{"q": 1}'], "Sure:"),
        ('{"name": "f", "parameters": {"q": 1}}; {"name": "f", "parameters": {}}', ['{"q": 1}', "{}"], ""),
        ("A set {1, 2} and {x}.", [], "A set {1, 2} and {x}."),
    ):
        message = renderer.parse(prompt, to_ids(tokenizer.encode(text, add_special_tokens=False)))
        assert ([call.arguments for call in message.tool_calls], message.text) == (arguments, content)
        assert message.tool_errors == ()


@pytest.mark.parametrize(
    "program",
    [
        's = "<think>abc</think>"',
        "cat > f <<'E'\n<answer>\n\nx\n</answer>\nE",
        "a\n<interpreter>\n b </interpreter>",
        "\tx = 1\n\n\ty = 2",
        "  two spaces, and two after  ",
        "\n\nlines\n\n",
        "",
    ],
)
@pytest.mark.parametrize("name", ["retool", "shell"])
def test_what_runs_is_what_was_written(plain_tokenizer: PreTrainedTokenizerBase, name: str, program: str) -> None:
    form = FORMATS[name]
    renderer = TagRenderer(plain_tokenizer, form)
    for space in (" ", "\n", "\r\n"):
        text = f"<think> hm </think> <{form.action}>{space}{program}{space}</{form.action}>"
        message = renderer.parse(to_ids([1]), to_ids(encode_text(plain_tokenizer, text)))
        (call,) = message.tool_calls
        assert json.loads(call.arguments) == {form.argument: program}
        assert (message.reasoning, message.text) == ("hm", "")
    if "<" not in program:
        call = ToolCall(id="call_1", name=form.tool, arguments=json.dumps({form.argument: program}))
        asked = Message(role="assistant", content=(), tool_calls=(call,))
        assert renderer.parse(to_ids([1]), renderer.encode_reply(asked)) == asked


@pytest.mark.parametrize(
    ("reply", "reasoning", "content"),
    [
        ("<think> so <answer> 7 </answer>", "so <answer> 7 </answer>", ""),
        ("well <think> so \\boxed{7}", "so \\boxed{7}", "well"),
        ("<think> a </think> <think> <answer> 7 </answer> more", "a\n<answer> 7 </answer> more", ""),
    ],
)
def test_an_answer_in_an_unfinished_thought_is_none(
    plain_tokenizer: PreTrainedTokenizerBase, reply: str, reasoning: str, content: str
) -> None:
    renderer = TagRenderer(plain_tokenizer, FORMATS["retool"])
    message = renderer.parse(to_ids([1]), to_ids(encode_text(plain_tokenizer, reply)))
    assert (message.reasoning, message.text, [error.kind for error in message.tool_errors]) == (
        reasoning,
        content,
        ["unclosed"],
    )


@pytest.mark.parametrize(
    "text",
    [
        '**Action:** search\n**Action Input:** {"q": 1}',
        '**Action**: `search`\n**Action Input**: {"q": 1}',
        'Action 2: search\nAction Input 2: {"q": 1}',
        'Action: search Action Input: {"q": 1}',
        'Action: search\nAction Input:\n```json\n{"q": 1}\n```',
        'Action: search\nAction Input: ```{"q": 1}```',
        'Action: search\n\n  Action Input:   `{"q": 1}`',
        'Action: "search"\nAction Input: {"q": 1}\n**Observation:** {"made": "up"}\nAction: clear\nAction Input: {}',
    ],
)
def test_actions_as_models_dress_them_up(text: str) -> None:
    content, calls, errors = CALL_TEXTS["react"].read(f"Thought: look.\n{text}\n", 0)
    assert (content, errors) == ("Thought: look.", ())
    assert [(call.name, call.arguments) for call in calls] == [("search", '{"q": 1}')]


OPEN = ToolSpec(
    name="open",
    description="",
    parameters={
        "properties": {
            "page": {"$ref": "#/$defs/Page"},
            "whole": {"type": "boolean"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "code": {"type": "string"},
            "ids": {"type": "array"},
            "free": True,
        },
        "$defs": {"Page": {"type": "integer"}},
    },
)


@pytest.mark.parametrize(
    ("key", "value", "written"),
    [
        ("page", "3", "3"),
        ("page", "3.0", "3.0"),
        ("page", "three", '"three"'),
        ("whole", "True", "true"),
        ("note", "null", "null"),
        ("note", "7", '"7"'),
        ("code", "7", '"7"'),
        ("code", "null", '"null"'),
        ("code", "  x\n\n", json.dumps("  x\n\n")),
        ("ids", "[1.50, {}]", "[1.50, {}]"),
        ("free", "[1]", '"[1]"'),
        ("other", "1", '"1"'),
    ],
)
def test_a_value_without_quotes_is_read_by_its_schema(key: str, value: str, written: str) -> None:
    text = f"<tool_call>\n<function=open>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"
    content, (call,), errors = CALL_TEXTS["qwen_coder"].read(text, 0, [OPEN])
    assert (content, call.arguments, errors) == ("", f'{{"{key}": {written}}}', ())


@pytest.mark.parametrize(
    "value", ["a</parameter>\n</function>\n</tool_call>\nb", "a\n<parameter=x>\nb", "a</parameter>\n<parameter=x>b"]
)
def test_a_value_that_holds_the_end_of_a_call_is_never_cut(value: str) -> None:
    text = f"<tool_call>\n<function=open>\n<parameter=code>\n{value}\n</parameter>\n</function>\n</tool_call>"
    _, calls, errors = CALL_TEXTS["qwen_coder"].read(text, 0, [OPEN])
    if calls:  # two parameters, as the tags say
        assert json.loads(calls[0].arguments) == {"code": "a", "x": "b"}
    else:
        assert [error.kind for error in errors] == ["bad_call"]
    with pytest.raises(RenderError, match="cannot write this call in tags"):
        CALL_TEXTS["qwen_coder"].write(ToolCall(id="c", name="open", arguments=json.dumps({"code": value})))


def test_a_schema_that_says_little_is_described_and_its_references_move_into_a_grammar() -> None:
    for parameters in ({}, {"properties": None, "required": None}):
        assert describe_tool(ToolSpec(name="f", description="Do.", parameters=parameters)) == "f(): Do."
    grammar = build_call_grammar([ToolSpec(name="g", description="", parameters={}), OPEN], special_tokens=False)
    assert '"$ref": "#/anyOf/1/properties/arguments/$defs/Page"' in grammar.text


Q = '{"q": 1}'


@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": {"c": "mkdir t/{a,b"}}</tool_call>', [{"c": "mkdir t/{a,b"}]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"q": 1}</tool_call>', "not valid JSON"),
        ("hermes", '<tool_call>\n{"name": "f", "arguments": null}\n</tool_call>', [None]),
        ("hermes", '<tool_call>{"arguments": {"q": 1}}</tool_call>', 'with "name"'),
        ("llama", '<|python_tag|>{"name": "f", "parameters": {"a": {"b": {"c": {}}}}}', [{"a": {"b": {"c": {}}}}]),
        ("llama", f'{{"name": "f", "arguments": {Q}}};{{"name": "f", "arguments": {Q}}}', [{"q": 1}, {"q": 1}]),
        ("llama", 'Here is a user: {"name": "Alice"}.', []),
        ("llama", f'The set {{a}} is [SFC], so: {{"name": "f", "parameters": {Q}}}', [{"q": 1}]),
        ("llama", '{"name": "f", "parameters": {"c": "mkdir t/{a,b"}}', [{"c": "mkdir t/{a,b"}]),
        ("mistral", f"[TOOL_CALLS]f[ARGS]{Q}[TOOL_CALLS]f[ARGS]{Q}\n\nLet me search.", [{"q": 1}, {"q": 1}]),
        ("mistral", f'[TOOL_CALLS] [{{"name": "f", "arguments": {Q}, "id": "abcdefghi"}}]', [{"q": 1}]),
        ("mistral", f"[TOOL_CALLS]f{Q}", [{"q": 1}]),
        ("mistral", f"[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{Q}", [{"q": 1}]),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"q": "<think>a</think>"}', [{"q": "<think>a</think>"}]),
        ("deepseek_v3", f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>f```json\n{Q}```<｜tool▁call▁end｜>", [{"q": 1}]),
        ("deepseek_v31", f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```\n{Q}```<｜tool▁call▁end｜>", [{"q": 1}]),
        ("deepseek_v3", "<｜tool▁calls▁begin｜>" * 50 + "M" * 500, []),
        ("qwen_coder", "<function=f><parameter=q>IF C<1w=P-(C)</parameter></function>", [{"q": "IF C<1w=P-(C)"}]),
        ("qwen_coder", "<function=f><parameter=day>2026-01-15</parameter></function>", [{"day": "2026-01-15"}]),
        ("qwen_coder", "<tool_call><function=f><parameter=q\n1</parameter></function></tool_call>", "was not closed"),
        ("qwen_coder", "<tool_call><function=f><parameter=q>1\n</function></tool_call>", "was not closed"),
        ("qwen_coder", "<tool_call>\n<function=f>\n<parameter=q>\n1", "was not closed"),
    ],
)
def test_replies_that_other_readers_lose(name: str, text: str, read: list[Any] | str) -> None:
    _, calls, errors = CALL_TEXTS[name].read(text, 0)
    if isinstance(read, str):
        assert [(len(calls), read in error.message) for error in errors] == [(0, True)]
    else:
        assert ([json.loads(call.arguments) for call in calls], errors) == (read, ())


# ------------------------------------------------------------------------------------------------ time

UNITS = (
    *(" ", "\n", "{", "[", '"', "`", "*", "\\", "<", ":", "a", "é", "Action:", "\nAction:", "\nAction: a"),
    *('\nAction: a\nAction Input: {"', "<tool_call>", '<tool_call>{"', '<tool_call>{"</tool_call>', "</tool_call>"),
    *("```tool\n", '```json\n{"', "```", '{"a": "', '{"a":[', "[TOOL_CALLS]", '[TOOL_CALLS]a[ARGS]{"'),
    "[TOOL_CALLS][{",
    *("<function=a>", "<parameter=a>", "<tool_call><function=a><parameter=a>", "<parameter=a></parameter>"),
    *("<｜tool▁call▁begin｜>", '<｜tool▁call▁begin｜>a<｜tool▁sep｜>{"', "<｜tool▁calls▁begin｜>", "a = ", '\na = "'),
    *("<think>", "<code>", "</code>", "<answer>", "\\boxed{", "\\boxed "),
)


def read_tags(text: str) -> Any:
    form = FORMATS["retool"]
    read = read_pieces([(bool(form.pattern.fullmatch(part)), part) for part in form.pattern.split(text) if part], form)
    assert form.ends_unmarked is not None
    return read, re.match(form.ends_unmarked, text)


READERS: dict[str, Callable[[str], Any]] = {
    **{name: lambda text, name=name: CALL_TEXTS[name].read(text, 0) for name in CALL_TEXTS},  # type: ignore[misc]
    "calls": lambda text: parse_calls(text, id_prefix="c"),
    "tags": read_tags,
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_is_linear_on_runs_of_everything(name: str) -> None:
    # 16 times the text takes 16 times the processor time if linear and 256 times if quadratic.
    def measure(text: str, tries: int) -> float:
        taken = []
        for _ in range(tries):
            started = time.process_time()
            READERS[name](text)
            taken.append(time.process_time() - started)
        return min(taken)

    gc.disable()
    try:
        for unit in UNITS:
            large = measure(unit * (32_000 // len(unit)), 1)
            if large > 0.02:  # quadratic in anything that costs time at all would be far slower
                large = min(large, measure(unit * (32_000 // len(unit)), 2))
                small = max(measure(unit * (2_000 // len(unit)), 5), 1e-4)
                assert large < 64 * small, f"{name}: {unit!r} {small:.4f} s, then {large:.4f} s"
    finally:
        gc.enable()
