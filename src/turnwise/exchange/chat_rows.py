"""Rows of a user's own conversations, in the layouts that other libraries use for supervised training.

    {"messages": [...], "tools": [...]}             OpenAI's and TRL's; `turnwise data sft` writes it
    {"prompt": [...], "completion": [...]}          TRL's: replies of the prompt do not train
    {"prompt": "...", "completion": "..."}          a question and a reply
    {"conversations": [{"from", "value"}, ...]}     ShareGPT's, with `system` and `tools` beside it

Lists, tools and arguments may be JSON texts, as Parquet has them. Messages may show pictures, in themselves or from
the columns `images` and `image` (`pictures.rows`). Columns that are not named here are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.core.messages import ImagePart, Part, join_texts
from turnwise.core.types import Message, Role, StopReason, TextPart, ToolCall, ToolSpec
from turnwise.environments.canaries import refuse_canary
from turnwise.environments.data_rows import load_rows
from turnwise.pictures.rows import COLUMNS, RowPictures

Row = Mapping[str, Any]

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_SPEAKERS = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "tool": "tool",
}
"""ShareGPT's names of roles."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Names under which a message keeps its thoughts, beside its content."""
_WEIGHTS = ("weight", "train", "training", "trainable", "loss_mask", "loss")
"""Names of the flag by which a message says whether it trains: OpenAI's, and those of other trainers."""
_LAYOUTS = (
    'expected "messages", or "prompt" and "completion", or "conversations" (docs/data.md, conversations of your own)'
)
_NOTHING = (TextPart(text=""),)
_MADE_UP = re.compile(r"call_\d+_\d+")
"""The id of a call that the row gave none."""
_CUT = frozenset({StopReason.MAX_TURN_TOKENS.value, StopReason.MAX_TOKENS.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRow:
    """One conversation, up to its last reply that trains."""

    messages: tuple[Message, ...]
    trains: tuple[bool, ...]
    """Whether a message is a reply that trains, one per message."""
    tools: tuple[ToolSpec, ...] = ()
    role: str = "agent"
    """The role that gave the replies."""
    num_opening: int
    """The opening messages: those before the first reply, or the whole prompt."""


def load_chat_rows(
    path: Path, pictures: RowPictures | None = None, *, trains: bool = True
) -> list[tuple[int, ChatRow | None]]:
    """(line or row number, conversation) of every row; the conversation is None if a limit cut its only reply. Its
    pictures are without pixels: `pictures`, if given, finds them. Rows that are trained on (`trains`) may not have a
    canary string.

    Raises DataError naming file and line with the remedy, ConfigError for Parquet without pyarrow.
    """
    is_parquet = path.suffix == ".parquet"
    found = pictures or RowPictures()

    def read(row: dict[str, Any]) -> ChatRow | None:
        if trains:
            refuse_canary(row)
        return read_chat_row(_drop_nulls(row) if is_parquet else row, pictures=found, folder=path.parent)

    return load_rows(path, read)


def read_chat_row(row: Row, *, pictures: RowPictures | None = None, folder: Path | None = None) -> ChatRow | None:
    """The conversation in a row; None if the only reply that would train was cut by a limit (`"stop"` of `turnwise data
    sft`). Paths of pictures are relative to `folder`. Raises DataError saying what is wrong with it."""
    prompt, replies = _find_messages(row)
    shown = {name: row[name] for name in COLUMNS if name in row}
    placed = (pictures or RowPictures()).take({**shown, "messages": [*prompt, *replies]}, ("messages",), folder)[
        "messages"
    ]
    prompt, replies = placed[: len(prompt)], placed[len(prompt) :]
    messages = [read_message(message, index) for index, message in enumerate([*prompt, *replies])]
    messages = order_results(link_results(messages))
    weights = [_read_weight(message, index) for index, message in enumerate([*prompt, *replies])]
    system = row.get("system")
    if isinstance(system, str) and system:
        if messages[0].role == "system":
            raise DataError('the row has "system" and also a first message of role system; keep one of them')
        messages.insert(0, Message(role="system", content=(TextPart(text=system),)))
        weights.insert(0, False)
    num_prompt = len(messages) - len(replies)
    _check_order(messages, num_prompt)
    trains = [
        message.role == "assistant" and weight and index >= num_prompt
        for index, (message, weight) in enumerate(zip(messages, weights, strict=True))
    ]
    if True not in trains:
        raise DataError("no assistant message to train on; add a reply, or leave the row out")
    if row.get("stop") in _CUT:  # the last reply was cut off, and must not train an end
        trains[max(index for index, message in enumerate(messages) if message.role == "assistant")] = False
        if True not in trains:
            return None
    end = max(index for index, each in enumerate(trains) if each) + 1
    first = next(index for index, message in enumerate(messages) if message.role == "assistant")
    return ChatRow(
        messages=tuple(messages[:end]),
        trains=tuple(trains[:end]),
        tools=read_tools(row.get("tools") or row.get("functions")),
        role=str(row.get("role") or "agent"),
        num_opening=max(first, num_prompt),
    )


def _find_messages(row: Row) -> tuple[list[Row], list[Row]]:
    """The messages of the prompt, whose replies do not train, and all other messages."""
    has_pair = row.get("prompt") is not None and row.get("completion") is not None
    if row.get("messages") is not None and has_pair:
        raise DataError('the row has "messages" as well as "prompt" and "completion"; keep one of them')
    if row.get("messages") is not None:
        return [], _read_list(row["messages"], "messages")
    if has_pair:
        prompt = _as_messages(row["prompt"], "prompt", "user")
        if prompt[-1].get("role") == "assistant":
            raise DataError("the prompt ends with an assistant message; move it to the start of the completion")
        return prompt, _as_messages(row["completion"], "completion", "assistant")
    if row.get("conversations") is not None:
        turns = _read_list(row["conversations"], "conversations")
        return [], [turn if "role" in turn else _read_turn(turn, index) for index, turn in enumerate(turns)]
    if row.get("chosen") is not None:
        raise DataError('"chosen" and "rejected" are preference pairs; write the chosen reply as "completion"')
    names = ("messages", "prompt", "completion", "conversations")
    if empty := [name for name in names if name in row and row[name] is None]:
        raise DataError(f"{' and '.join(map(repr, empty))} is null; fill it in, or leave the row out")
    raise DataError(f"columns {', '.join(map(repr, row)) or 'none'}; {_LAYOUTS}")


def _as_messages(value: Any, name: str, role: str) -> list[Row]:
    """A list of messages, or one message of `role` if the value is a text."""
    if isinstance(value, str) and not value.lstrip().startswith("[{"):
        return [{"role": role, "content": value}]
    return _read_list(value, name)


def _read_list(value: Any, name: str) -> list[Row]:
    value = _parse_if_text(value, f'"{name}"')
    if not isinstance(value, list) or not value:
        raise DataError(f'"{name}" is {_show(value)}; expected a list of messages')
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise DataError(f'"{name}": message {index} is {_show(item)}; expected an object with "role" and "content"')
    return value


def _read_turn(turn: Row, index: int) -> Row:
    """Convert a turn of ShareGPT to a message."""
    speaker, value = turn.get("from"), turn.get("value")
    if not isinstance(speaker, str) or speaker not in _SPEAKERS:
        raise DataError(
            f"message {index}: from={_show(speaker)} is unknown; use one of {', '.join(_SPEAKERS)}, or messages with "
            '"role" and "content"'
        )
    if not isinstance(value, str):
        raise DataError(f"message {index}: value={_show(value)} is not text")
    if speaker != "function_call":
        return {"role": _SPEAKERS[speaker], "content": value, **{name: turn[name] for name in _WEIGHTS if name in turn}}
    calls = _parse_if_text(value, f"message {index}: a function_call")
    return {"role": "assistant", "content": None, "tool_calls": calls if isinstance(calls, list) else [calls]}


def read_message(message: Row, index: int) -> Message:
    """Convert a message of OpenAI's layout. Raises DataError naming it by its index, from 0."""
    where = f"message {index}"
    name = message.get("role")
    if not isinstance(name, str) or name not in _ROLES:
        raise DataError(f"{where}: role={_show(name)} is unknown; use one of {', '.join(_ROLES)}")
    role = _ROLES[name]
    content = _read_content(message.get("content"), where)
    calls = _parse_if_text(message.get("tool_calls"), f"{where}: tool_calls") or []
    if not isinstance(calls, list):
        raise DataError(f"{where}: tool_calls={_show(calls)} is not a list of calls")
    if message.get("function_call") is not None:
        calls = [*calls, message["function_call"]]
    if calls and role != "assistant":
        raise DataError(f"{where}: a message of role {name!r} calls a tool; only the assistant can")
    if role != "assistant":
        if message.get("content") is None:
            raise DataError(f'{where}: a message of role {name!r} has no "content"; add text')
        tool = _read_text(message.get("name"), f"{where}: name")
        answers = _read_text(message.get("tool_call_id"), f"{where}: tool_call_id") or None
        return Message(role=role, content=content, tool_call_id=answers, name=tool)
    if any(isinstance(part, ImagePart) for part in content):
        raise DataError(f"{where}: an assistant message shows a picture, which no model writes; leave it out")
    thoughts = [message[key] for key in _THOUGHTS if message.get(key)]
    reasoning = _read_text(thoughts[0], f"{where}: reasoning_content") if thoughts else None
    if content == _NOTHING and not calls and reasoning is None:
        raise DataError(f"{where}: an assistant message has neither text nor a call; leave it out")
    return Message(
        role="assistant",
        content=() if content == _NOTHING else content,
        reasoning=reasoning,
        tool_calls=tuple(
            _read_call(call, f"{where}: call {number}", f"call_{index}_{number}") for number, call in enumerate(calls)
        ),
    )


def _read_content(value: Any, where: str) -> tuple[Part, ...]:
    """The parts of a message's content: a text, parts of text, pictures that were taken from the row, or nothing."""
    if value is None or isinstance(value, str):
        return (TextPart(text=value or ""),)
    if not isinstance(value, list):
        raise DataError(f"{where}: content={_show(value)} is neither text nor a list of text parts")
    parts: list[Part] = []
    for part in value:
        if isinstance(part, ImagePart):
            parts.append(part)
            continue
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise DataError(f"{where}: a part of its content is of type {kind!r}; only text and images are supported")
        parts.append(TextPart(text=text))
    return join_texts(parts)


def _read_call(call: Any, where: str, call_id: str) -> ToolCall:
    """Convert a call, with or without `function` around it; arguments are an object or its JSON text."""
    function = _parse_if_text(call.get("function", call), where) if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
        raise DataError(f'{where}: {_show(call)} has no name; expected {{"function": {{"name", "arguments"}}}}')
    arguments = function.get("arguments", function.get("parameters"))
    if arguments is None:
        arguments = {}
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    given = call.get("id")
    return ToolCall(id=given if isinstance(given, str) and given else call_id, name=name, arguments=written or "{}")


def _read_weight(message: Row, index: int) -> bool:
    """Whether a reply may train, according to any of `_WEIGHTS`."""
    given = {name: message[name] for name in _WEIGHTS if message.get(name) is not None}
    for name, weight in given.items():
        if weight not in (0, 1):
            raise DataError(f"message {index}: {name}={_show(weight)}; 1 or true trains a reply, 0 or false does not")
    return all(given.values())


def read_tools(value: Any) -> tuple[ToolSpec, ...]:
    """The tools of a row: OpenAI's functions, with or without their wrapper, or their JSON text. Raises DataError."""
    value = _parse_if_text(value, "tools")
    if value is None:
        return ()
    if not isinstance(value, list):
        raise DataError(f"tools={_show(value)} is not a list of functions")
    return tuple(_read_tool(_parse_if_text(item, "a tool"), index) for index, item in enumerate(value))


def _read_tool(item: Any, index: int) -> ToolSpec:
    function = item.get("function", item) if isinstance(item, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
        raise DataError(f'tool {index}: {_show(item)} has no name; expected {{"function": {{"name", "parameters"}}}}')
    parameters = _parse_if_text(function.get("parameters", function.get("input_schema")), f"parameters of {name}")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise DataError(f"tool {index}: parameters={_show(parameters)} of {name!r} is not a JSON schema")
    return ToolSpec(
        name=name,
        description=str(function.get("description") or ""),
        parameters=parameters or {"type": "object", "properties": {}},
    )


def link_results(messages: Sequence[Message]) -> list[Message]:
    """Add to every tool result that lacks them the id of the call that it answers and the tool's name.

    Results come in the order of the calls before them; so do those with ids, where calls have none. One that answers no
    call (a malformed one) stays without.
    """
    linked: list[Message] = []
    waiting: list[ToolCall] = []
    names: dict[str, str] = {}
    answered = {message.tool_call_id for message in messages}
    made = {call.id for message in messages for call in message.tool_calls}
    for message in messages:
        if message.role == "assistant":
            waiting = [call for call in message.tool_calls if call.id not in answered]
            names = {call.id: call.name for call in message.tool_calls}
        elif message.role == "tool":
            call_id, name = message.tool_call_id, message.name
            if call_id not in made and waiting and (call_id is None or _MADE_UP.fullmatch(waiting[0].id)):
                call_id = waiting.pop(0).id
            if name is None and call_id is not None:
                name = names.get(call_id)
            message = replace(message, tool_call_id=call_id, name=name)
        linked.append(message)
    return linked


def order_results(messages: Sequence[Message]) -> list[Message]:
    """Put results side by side into the order of the calls that they answer, as a rollout has them: no template says
    which call a result belongs to.

    Raises DataError for a result of a call that no message made, and for more results of an id than calls with it.
    """
    ordered: list[Message] = []
    open_calls: dict[str, list[int]] = {}
    run: list[tuple[int, Message]] = []
    for index, message in enumerate(messages):
        if message.role != "tool":
            ordered += [each for _, each in sorted(run, key=lambda placed: placed[0])]
            ordered.append(message)
            run = []
            for number, call in enumerate(message.tool_calls):
                open_calls.setdefault(call.id, []).append(number)
            continue
        place = run[-1][0] if run else -1  # one that answers no call stays behind the one before it
        if message.tool_call_id is not None:
            if not open_calls.get(message.tool_call_id):
                known = "has its result already" if message.tool_call_id in open_calls else "is of no call before it"
                raise DataError(
                    f"message {index}: tool_call_id={_show(message.tool_call_id)} {known}; set it to the id of the "
                    "call it answers, or leave the message out"
                )
            place = open_calls[message.tool_call_id].pop(0)
        run.append((place, message))
    return ordered + [each for _, each in sorted(run, key=lambda placed: placed[0])]


def _check_order(messages: Sequence[Message], num_prompt: int) -> None:
    """Raise DataError for two replies in a row, which a renderer would treat as one, and for a conversation that begins
    with a reply."""
    for index, (before, message) in enumerate(pairwise(messages), start=1):
        if before.role == message.role == "assistant" and index >= num_prompt:
            raise DataError(f"message {index}: an assistant message follows another one; merge them")
    if all(message.role == "system" for message in messages[: _find_first_reply(messages)]):
        raise DataError("the conversation starts with an assistant message; put a user message before it")


def _find_first_reply(messages: Sequence[Message]) -> int:
    return next((at for at, message in enumerate(messages) if message.role == "assistant"), len(messages))


def _read_text(value: Any, where: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise DataError(f"{where}={_show(value)} is not text")
    return value


def _parse_if_text(value: Any, where: str) -> Any:
    """The value of a JSON text; any other value as it is. Raises DataError for a text that is not JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError) as cause:
        raise DataError(f"{where} is {_show(value)}, which is not valid JSON ({cause})") from None


def _drop_nulls(value: Any) -> Any:
    """A value without the nulls that Parquet adds to objects, because its columns have one type each."""
    if isinstance(value, Mapping):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    return [_drop_nulls(item) for item in value] if isinstance(value, list) else value


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
