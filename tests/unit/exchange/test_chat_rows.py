"""Rows of a user's own conversations: every layout that supervised training is given, and one line for a bad row."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnwise.core.errors import DataError
from turnwise.core.types import TextPart, ToolSpec
from turnwise.exchange.chat_rows import ChatRow, load_chat_rows, read_chat_row
from turnwise.exchange.row_files import write_rows
from turnwise.pictures.pixels import to_data_url, to_part, to_png
from turnwise.pictures.rows import RowPictures

ASK = {"role": "user", "content": "2 + 2?"}
SAY = {"role": "assistant", "content": "4"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOLD = {"role": "tool", "tool_call_id": "c1", "content": "4"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": SCHEMA}}


def read(**row: Any) -> ChatRow:
    conversation = read_chat_row(row)
    assert conversation is not None
    return conversation


def spell(row: ChatRow) -> list[tuple[str, str, bool]]:
    return [(message.role, message.text, trains) for message, trains in zip(row.messages, row.trains, strict=True)]


def test_every_reply_of_messages_trains() -> None:
    row = read(messages=[{"role": "system", "content": "Sum."}, ASK, CALLS, TOLD, SAY, ASK, SAY], tools=[TOOL])
    assert [trains for _, _, trains in spell(row)] == [False, False, True, False, True, False, True]
    assert row.num_opening == 2
    assert row.tools == (ToolSpec(name="add", description="Add.", parameters=SCHEMA),)
    call = row.messages[2].tool_calls[0]
    assert (call.id, call.name, json.loads(call.arguments)) == ("c1", "add", {"a": 2, "b": 2})
    assert (row.messages[3].tool_call_id, row.messages[3].name) == ("c1", "add")


def test_what_comes_after_the_last_reply_is_not_read() -> None:
    assert spell(read(messages=[ASK, CALLS, TOLD])) == [("user", "2 + 2?", False), ("assistant", "", True)]


def test_replies_of_a_prompt_do_not_train() -> None:
    row = read(prompt=[ASK, SAY, ASK], completion=[SAY])
    assert [trains for _, _, trains in spell(row)] == [False, False, False, True]
    assert row.num_opening == 3
    assert spell(read(prompt="2 + 2?", completion="4")) == [("user", "2 + 2?", False), ("assistant", "4", True)]


def test_a_weight_of_0_keeps_a_reply_from_training() -> None:
    row = read(messages=[ASK, {**SAY, "weight": 0}, ASK, {**SAY, "weight": 1}])
    assert [trains for _, _, trains in spell(row)] == [False, False, False, True]
    for name in ("train", "training", "trainable", "loss_mask", "loss"):
        row = read(messages=[ASK, {**SAY, name: False}, ASK, {**SAY, name: True}])
        assert [trains for _, _, trains in spell(row)] == [False, False, False, True]
    turns = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "train": 0}]
    with pytest.raises(DataError, match="no assistant message"):
        read(conversations=turns)


def test_sharegpt_is_converted() -> None:
    turns = [
        {"from": "human", "value": "2 + 2?"},
        {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 2, "b": 2}}'},
        {"from": "observation", "value": "4"},
        {"from": "gpt", "value": "It is 4."},
    ]
    row = read(conversations=turns, system="Sum.", tools=json.dumps([TOOL["function"]]))
    assert [(role, trains) for role, _, trains in spell(row)] == [
        ("system", False),
        ("user", False),
        ("assistant", True),
        ("tool", False),
        ("assistant", True),
    ]
    assert row.messages[3].tool_call_id == row.messages[2].tool_calls[0].id  # tags are written around an answer
    assert row.tools[0].name == "add"
    assert spell(read(conversations=[ASK, SAY])) == spell(read(messages=[ASK, SAY]))  # the column, OpenAI's messages


def test_results_without_ids_answer_the_calls_in_order() -> None:
    calls = [{"function": {"name": name, "arguments": "{}"}} for name in ("left", "right")]
    results = [{"role": "tool", "content": text} for text in "ab"]
    row = read(messages=[ASK, {"role": "assistant", "tool_calls": calls}, *results, SAY])
    ids = [call.id for call in row.messages[1].tool_calls]
    assert len(set(ids)) == 2
    assert [(m.tool_call_id, m.name) for m in row.messages[2:4]] == [(ids[0], "left"), (ids[1], "right")]


@pytest.mark.parametrize("given", ["", "x1"])
def test_results_with_ids_answer_calls_without_ids_in_order(given: str) -> None:
    calls = [{"function": {"name": name, "arguments": "{}"}} for name in ("left", "right")]
    results = [{"role": "tool", "tool_call_id": given and given + text, "content": text} for text in "ab"]
    row = read(messages=[ASK, {"role": "assistant", "tool_calls": calls}, *results, SAY])
    assert [(m.text, m.name) for m in row.messages[2:4]] == [("a", "left"), ("b", "right")]


def test_results_side_by_side_are_in_the_order_of_their_calls() -> None:
    calls = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in ("left", "right", "up")]
    asked = {"role": "assistant", "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": name, "content": name} for name in ("up", "left", "right")]
    row = read(messages=[ASK, asked, *results, SAY])
    assert [message.text for message in row.messages[2:5]] == ["left", "right", "up"]
    again = [{**call, "id": "same"} for call in calls[:2]]  # two calls of one id
    results = [{"role": "tool", "tool_call_id": "same", "content": text} for text in "ab"]
    row = read(messages=[ASK, {"role": "assistant", "tool_calls": again}, *results, SAY])
    assert [message.text for message in row.messages[2:4]] == ["a", "b"]


@pytest.mark.parametrize("arguments", [{"a": 2, "b": 2}, '{"a": 2, "b": 2}'])
@pytest.mark.parametrize("wrapped", [True, False])
def test_arguments_may_be_an_object_or_its_text_with_or_without_a_wrapper(arguments: Any, wrapped: bool) -> None:
    function = {"name": "add", "arguments": arguments}
    row = read(messages=[ASK, {"role": "assistant", "tool_calls": [{"function": function} if wrapped else function]}])
    assert json.loads(row.messages[1].tool_calls[0].arguments) == {"a": 2, "b": 2}


def test_the_old_form_of_calls_and_roles_is_read() -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}}
    told = {"role": "function", "name": "add", "content": "4"}
    row = read(messages=[{"role": "developer", "content": "Sum."}, ASK, old, told, SAY], functions=[TOOL["function"]])
    assert [message.role for message in row.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert row.messages[3].tool_call_id == row.messages[2].tool_calls[0].id
    assert row.tools[0].name == "add"


def test_contents_may_be_parts_of_text_and_thoughts_have_three_names() -> None:
    parts = [{"type": "text", "text": "2 "}, {"type": "text", "text": "+ 2?"}]
    row = read(messages=[{"role": "user", "content": parts}, {**SAY, "reasoning": "sum it"}])
    assert (row.messages[0].text, row.messages[1].reasoning) == ("2 + 2?", "sum it")


def test_a_reply_that_a_limit_cut_is_not_taught() -> None:
    assert read_chat_row({"messages": [ASK, SAY], "stop": "max_turn_tokens"}) is None
    row = read(messages=[ASK, CALLS, TOLD, SAY], stop="max_turn_tokens")
    assert [trains for _, _, trains in spell(row)] == [False, True]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"messages": [ASK]}, "no assistant message"),
        ({"messages": [ASK, {**SAY, "weight": 0}]}, "no assistant message"),
        ({"messages": [ASK, {**SAY, "weight": 0.5}]}, "weight=0.5"),
        ({"messages": []}, '"messages" is \\[\\]'),
        ({"messages": "hello"}, "not valid JSON"),
        ({"messages": None}, "'messages' is null; fill it in"),
        ({"messages": [ASK, None, SAY]}, '"messages": message 1 is None; expected an object'),
        ({"messages": [{"role": "bot", "content": "x"}]}, "message 0: role='bot' is unknown; use one of system"),
        ({"messages": [{"content": "x"}, SAY]}, "message 0: role=None"),
        ({"messages": [ASK, {"role": "assistant", "content": None}]}, "message 1: .* has neither text nor a call"),
        ({"messages": [{"role": "user", "content": None}, SAY]}, 'message 0: .* no "content"'),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}, SAY]},
            "part 0 .* no picture; put it under 'image'",
        ),
        ({"messages": [{"role": "user", "content": 7}, SAY]}, "content=7"),
        ({"messages": [ASK, {"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "call 0: .* has no name"),
        ({"messages": [{**ASK, "tool_calls": [CALL]}, SAY]}, "only the assistant"),
        ({"messages": [ASK, SAY, SAY]}, "message 2: .* follows another"),
        ({"messages": [SAY, ASK, SAY]}, "starts with an assistant message"),
        ({"messages": [ASK, SAY], "tools": "[{"}, "tools is .* not valid JSON"),
        ({"messages": [ASK, SAY], "tools": [{"type": "function"}]}, "tool 0: .* has no name"),
        ({"messages": [ASK, SAY], "prompt": "a", "completion": "b"}, "keep one"),
        ({"messages": [{"role": "system", "content": "a"}, ASK, SAY], "system": "b"}, "keep one"),
        ({"prompt": [ASK, SAY], "completion": [SAY]}, "prompt ends with an assistant"),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "preference pairs"),
        ({"instruction": "a", "output": "b"}, "columns 'instruction', 'output'; expected"),
        ({"conversations": [{"from": "alien", "value": "x"}]}, "message 0: from='alien' is unknown"),
        ({"conversations": [{"from": "human", "value": None}]}, "message 0: value=None"),
        ({"messages": [ASK, TOLD, SAY]}, "message 1: tool_call_id='c1' is of no call before it; set it to"),
        ({"messages": [ASK, CALLS, TOLD, TOLD, SAY]}, "message 3: tool_call_id='c1' has its result already"),
    ],
)
def test_a_bad_row_is_one_line_that_names_the_message_and_the_remedy(row: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        read_chat_row(row)
    assert "\n" not in str(caught.value)


def test_file_and_line_are_named(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(f"{json.dumps({'messages': [ASK, SAY]})}\n\n{json.dumps({'messages': [ASK]})}\n")
    with pytest.raises(DataError, match=r"chats.jsonl:3: no assistant message"):
        load_chat_rows(file)


def test_parquet_fills_objects_with_nulls_that_are_not_read(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    other = {"id": "c2", "type": "function", "function": {"name": "get", "arguments": {"key": "x"}}}
    rows = [
        {"messages": [ASK, {**CALLS, "tool_calls": [call]}], "tools": [TOOL, {"type": "function", "function": tool}]}
        for call, tool in ((CALL, {"name": "f"}), (other, {"name": "g", "parameters": {"type": "object"}}))
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "chats.parquet")
    (_, first), (_, second) = load_chat_rows(tmp_path / "chats.parquet")
    assert first is not None
    assert second is not None
    assert json.loads(first.messages[1].tool_calls[0].arguments) == {"a": 2, "b": 2}
    assert json.loads(second.messages[1].tool_calls[0].arguments) == {"key": "x"}
    assert first.tools[0].parameters == SCHEMA
    assert second.tools[1].parameters == {"type": "object"}


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_texts_in_json_are_read_back(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"chats.{ending}"
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": null}'}}
    write_rows(file, [{"messages": json.dumps([ASK, {**CALLS, "tool_calls": [call]}]), "tools": json.dumps([TOOL])}])
    [(number, row)] = load_chat_rows(file)
    assert row is not None
    assert (number, row.messages[1].tool_calls[0].arguments, row.tools[0].name) == (1, '{"a": 2, "b": null}', "add")


A, B = (to_part(np.full((2, 3, 3), shade, np.uint8)) for shade in (10, 20))
SHOWN = {"type": "image_url", "image_url": {"url": to_data_url(A)}}


@pytest.mark.parametrize(
    ("row", "contents"),
    [
        # as `turnwise data sft` writes it
        ({"messages": [{**ASK, "content": [SHOWN, {"type": "text", "text": "Sum?"}]}, SAY]}, [(A, "Sum?"), ("4",)]),
        # TRL
        (
            {"prompt": [{**ASK, "content": [{"type": "image"}, "Sum?"]}], "completion": [SAY], "images": ["a.png"]},
            [(A, "Sum?"), ("4",)],
        ),
        (
            {
                "messages": [ASK, CALLS, {**TOLD, "content": [{"type": "image"}]}, SAY, ASK, SAY],
                "images": ["b.png"],
                "tools": [TOOL],
            },
            [("2 + 2?",), (), (B,), ("4",), ("2 + 2?",), ("4",)],
        ),
        # ShareGPT
        (
            {
                "conversations": [{"from": "human", "value": "<image><image>Sum?"}, {"from": "gpt", "value": "4"}],
                "images": ["a.png", "b.png"],
            },
            [(A, B, "Sum?"), ("4",)],
        ),
        ({"messages": [{**ASK, "content": "What is <image>?"}, SAY]}, [("What is <image>?",), ("4",)]),
    ],
)
def test_conversations_show_pictures(row: Any, contents: list[tuple[Any, ...]], tmp_path: Path) -> None:
    for name, part in (("a", A), ("b", B)):
        (tmp_path / f"{name}.png").write_bytes(to_png(part))
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps(row))
    pictures = RowPictures()
    [(_, read)] = load_chat_rows(file, pictures)
    assert read is not None
    parts = [tuple(TextPart(text=part) if isinstance(part, str) else part for part in each) for each in contents]
    assert [message.content for message in read.messages] == parts
    shown = [part for message in map(pictures.fill, read.messages) for part in message.images]
    assert all(part.pixels is not None for part in shown)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (
            {"messages": [ASK, {**SAY, "content": [SHOWN]}]},
            "message 1: an assistant message shows a picture, which no model writes; leave it out",
        ),
        (
            {"messages": [{**ASK, "content": [{"type": "image"}]}, SAY]},
            'the row has 0 pictures and its prompt 1 parts {"type": "image"}; write one for each picture',
        ),
        (
            {"messages": [ASK, SAY], "images": ["gone.png"]},
            "picture 0 of images: there is no file '{folder}/gone.png'; check the path; base64 needs "
            "data:image/png;base64, before it",
        ),
        (
            {"messages": [{**ASK, "content": [{"type": "audio"}]}, SAY]},
            "message 0: a part of its content is of type 'audio'; only text and images are supported",
        ),
    ],
)
def test_pictures_that_cannot_be_shown_are_one_line(row: Any, line: str, tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps(row))
    with pytest.raises(DataError) as raised:
        load_chat_rows(file)
    assert str(raised.value) == f"{file}:1: {line.replace('{folder}', str(tmp_path))}"
