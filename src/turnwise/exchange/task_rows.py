"""A question with its answers, as a row of Turnwise, verl, TRL or SkyRL.

    turnwise   {"prompt": [{"role", "content"}] or "question": "...", "answers": [...][, "kind"]}
    verl       {"data_source", "prompt": [...], "ability", "reward_model": {"style", "ground_truth"}}
    trl        {"prompt": [...] or "...", "solution": "..." or "answers": [...][, "kind"]}; read also with the answer in
               "answer", "ground_truth", "completion" or the last of "messages"
    skyrl      {"data_source", "prompt": [...], "env_class", "reward_spec": {"method", "ground_truth"}}

A `ground_truth` is the one answer, or `{"target": [...]}`, Search-R1's form. A `ground_truth` in another form (a
number, a list, an object for another judge) is kept beside the answers read from it, and written again. All other
columns of a row stay as they are. Every function raises DataError naming the field, its value and what was expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from turnwise.core.errors import DataError
from turnwise.core.types import Message, Role, text_message
from turnwise.pictures.rows import refuse_pictures

Row = dict[str, Any]
DEFAULT_KIND = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One question."""

    prompt: tuple[Message, ...]
    """At least one message, text only."""
    answers: tuple[str, ...]
    """Accepted answers; empty if something else judges, such as the tests of a Harbor task."""
    kind: str = DEFAULT_KIND
    """Groups rows in reports."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The row's other columns, JSON values without null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One layout of rows: both directions."""

    read: Callable[[Row], TaskRow]
    write: Callable[[TaskRow], Row]


def read_turnwise(row: Row) -> TaskRow:
    """Read a row in Turnwise's own layout, including one of `turnwise tasks --export`, whose answers are in its
    "payload"."""
    columns = _columns(row)
    if "prompt" in columns:
        prompt = _prompt(columns.pop("prompt"))
    else:  # kept among the other columns, where the families read it
        prompt = (text_message("user", _text(columns.get("question"), "question")),)
    payload = columns.get("payload")
    judged = payload if "answers" not in columns and isinstance(payload, dict) else columns
    answers = _answer_list(judged.get("answers"))
    kind = _text(judged.get("kind", DEFAULT_KIND), "kind")
    extra = {name: value for name, value in columns.items() if name not in ("answers", "kind")}
    return TaskRow(prompt=prompt, answers=answers, kind=kind, extra=extra)


def write_turnwise(task: TaskRow) -> Row:
    """Write a row that `read_turnwise` reads, as do search_qa and math_code."""
    return _with_extra(
        {"prompt": _write_prompt(task), "answers": list(task.answers), "kind": task.kind}, task, reserved=()
    )


def read_verl(row: Row) -> TaskRow:
    """Read a row of verl."""
    columns = _columns(row)
    prompt = _prompt(columns.pop("prompt", None), as_messages=True)
    kind = _text(columns.pop("data_source", None), "data_source")
    answers = _take_ground_truth(columns, "reward_model", {"style": "rule"})
    _drop_default(columns, "ability", "unknown")
    return TaskRow(prompt=prompt, answers=answers, kind=kind, extra=columns)


def write_verl(task: TaskRow) -> Row:
    """Write a row for verl; its style is "rule" and its ability "unknown" unless the columns say otherwise."""
    row = {
        "data_source": task.kind,
        "prompt": _write_prompt(task),
        "ability": task.extra.get("ability", "unknown"),
        "reward_model": _ground_truth(task, "reward_model", {"style": "rule"}),
    }
    return _with_extra(row, task, reserved=("ability", "reward_model"))


def read_skyrl(row: Row) -> TaskRow:
    """Read a row of SkyRL."""
    columns = _columns(row)
    prompt = _prompt(columns.pop("prompt", None), as_messages=True)
    env_class = _text(columns.get("env_class"), "env_class")
    kind = _text(columns.pop("data_source", env_class), "data_source")
    answers = _take_ground_truth(columns, "reward_spec", {"method": "rule"})
    _drop_default(columns, "env_class", kind)
    return TaskRow(prompt=prompt, answers=answers, kind=kind, extra=columns)


def write_skyrl(task: TaskRow) -> Row:
    """Write a row for SkyRL; its environment class is the row's kind unless the columns say otherwise."""
    row = {
        "data_source": task.kind,
        "prompt": _write_prompt(task),
        "env_class": task.extra.get("env_class", task.kind),
        "reward_spec": _ground_truth(task, "reward_spec", {"method": "rule"}),
    }
    return _with_extra(row, task, reserved=("env_class", "reward_spec"))


def read_trl(row: Row) -> TaskRow:
    """Read a row of TRL: a prompt with the columns that reward functions read, or a demonstration, whose reply is the
    answer."""
    columns = _columns(row)
    if pair := sorted(columns.keys() & {"chosen", "rejected"}):
        raise DataError(f"{' and '.join(map(repr, pair))}: preferences between replies; expected one answer, or none")
    answers: tuple[str, ...] = ()
    if "prompt" in columns:
        prompt = _prompt(columns.pop("prompt"))
    else:
        messages = _prompt(columns.pop("messages", None), name="prompt or messages", as_messages=True)
        if messages[-1].role != "assistant" or len(messages) < 2:
            raise DataError('"messages" does not end with an assistant reply to a prompt; expected one')
        prompt, answers = messages[:-1], (messages[-1].text,)
    if "completion" in columns:
        answers = tuple(m.text for m in _prompt(columns.pop("completion"), name="completion", role="assistant"))
    for name in ("answer", "ground_truth", "solution"):
        if name in columns:
            answers = _read_answers(columns.pop(name), name)
            break
    if "answers" in columns:
        answers = _answer_list(columns.pop("answers"))
    kind = _text(columns.pop("kind", DEFAULT_KIND), "kind")
    return TaskRow(prompt=prompt, answers=answers, kind=kind, extra=columns)


def write_trl(task: TaskRow) -> Row:
    """Write a row for TRL: the first answer is "solution", and several are also "answers"."""
    row: Row = {"prompt": _write_prompt(task), "kind": task.kind}
    if task.answers:
        row["solution"] = task.answers[0]
    if len(task.answers) > 1:
        row["answers"] = list(task.answers)
    taken = {"solution", "answer", "answers", "ground_truth", "completion", "messages"} & set(task.extra)
    if taken:
        raise DataError(f"column {min(taken)!r} would be read as an answer by TRL; rename it")
    return _with_extra(row, task, reserved=())


LAYOUTS: Mapping[str, Layout] = {
    "turnwise": Layout(read=read_turnwise, write=write_turnwise),
    "verl": Layout(read=read_verl, write=write_verl),
    "trl": Layout(read=read_trl, write=write_trl),
    "skyrl": Layout(read=read_skyrl, write=write_skyrl),
}


def _columns(row: Row) -> Row:
    """The row without its nulls: Parquet adds a null if other rows have a column. Raises DataError for pictures, which
    each layout shows in other places of the prompt."""
    row = refuse_pictures(row)
    return {name: value for name, value in row.items() if value is not None}


def _drop_default(columns: Row, name: str, default: str) -> None:
    if columns.get(name) == default:
        del columns[name]


def _prompt(
    value: object, *, name: str = "prompt", role: Role = "user", as_messages: bool = False
) -> tuple[Message, ...]:
    """Messages, or a text as one message of `role`, unless only messages are allowed."""
    if isinstance(value, str) and not as_messages:
        return (text_message(role, _text(value, name)),)
    if not isinstance(value, list) or not value:
        raise DataError(f'"{name}" is {_short(value)}; expected a list of messages {{"role", "content"}}')
    messages = []
    for index, message in enumerate(value):
        place = f"{name}[{index}]"
        if not isinstance(message, dict) or message.get("role") not in get_args(Role):
            raise DataError(f'"{place}" is {_short(message)}; expected {{"role", "content"}} with a known role')
        others = sorted(key for key, item in message.items() if key not in ("role", "content") and item is not None)
        if others:
            raise DataError(f'"{place}" has {others}; expected a text prompt with only "role" and "content"')
        messages.append(text_message(message["role"], _text(message.get("content"), f"{place}.content")))
    return tuple(messages)


def _write_prompt(task: TaskRow) -> list[Row]:
    return [{"role": message.role, "content": message.text} for message in task.prompt]


def _answer_list(value: object, name: str = "answers") -> tuple[str, ...]:
    if not isinstance(value, list):
        raise DataError(f'"{name}" is {_short(value)}; expected a list of strings')
    return tuple(_text(answer, f"{name}[{index}]") for index, answer in enumerate(value))


def _take_ground_truth(columns: Row, name: str, default: Mapping[str, Any]) -> tuple[str, ...]:
    """The answers in a column such as verl's "reward_model"; the rest of the column is kept unless it is the
    default."""
    model = columns.pop(name, None)
    if not isinstance(model, dict) or "ground_truth" not in model:
        raise DataError(f'"{name}" is {_short(model)}; expected an object with "ground_truth"')
    truth, place = model["ground_truth"], f"{name}.ground_truth"
    rest = {key: value for key, value in model.items() if key != "ground_truth" and value is not None}
    answers = _find_answers(truth, place)
    if not answers or repr(_write_truth(answers)) != repr(truth):
        rest["ground_truth"] = truth
    if rest != default:
        columns[name] = rest
    return answers


def _find_answers(truth: object, place: str) -> tuple[str, ...]:
    """The answers in a ground truth; none if its form is one for another judge."""
    if truth is None or (isinstance(truth, float) and not math.isfinite(truth)):
        raise DataError(f'"{place}" is {_short(truth)}; expected an answer')
    if isinstance(truth, dict):
        return _find_answers(truth["target"], f"{place}.target") if truth.get("target") is not None else ()
    if isinstance(truth, list):
        found = [_find_answers(each, f"{place}[{index}]") for index, each in enumerate(truth)]
        return tuple(each[0] for each in found) if all(len(each) == 1 for each in found) else ()
    if isinstance(truth, bool):
        return ()
    return (str(truth),) if isinstance(truth, int | float) else (_text(truth, place),)


def _read_answers(value: object, name: str) -> tuple[str, ...]:
    answers = _find_answers(value, name)
    if not answers:
        raise DataError(f'"{name}" is {_short(value)}; expected text, a number, or a list of these')
    return answers


def _write_truth(answers: tuple[str, ...]) -> Any:
    return answers[0] if len(answers) == 1 else {"target": list(answers)}


def _ground_truth(task: TaskRow, name: str, default: Mapping[str, Any]) -> Row:
    given = task.extra.get(name, default)
    if not isinstance(given, Mapping):
        raise DataError(f"column {name!r} is {_short(given)}, but the name has a special meaning there; rename it")
    rest = {key: value for key, value in given.items() if key != "ground_truth"}
    for column in (name, "reward_model", "reward_spec"):  # in the column of another layout if the row came from there
        kept = task.extra.get(column)
        if isinstance(kept, Mapping) and "ground_truth" in kept:
            truth = kept["ground_truth"]
            if _find_answers(truth, f"{column}.ground_truth") == task.answers:
                return {**rest, "ground_truth": truth}
    if not task.answers:
        raise DataError(f'the row has no answers, but "{name}" needs a ground_truth')
    return {**rest, "ground_truth": _write_truth(task.answers)}


def _with_extra(row: Row, task: TaskRow, *, reserved: tuple[str, ...]) -> Row:
    clash = sorted((set(row) & set(task.extra)) - set(reserved))
    if clash:
        raise DataError(f"column {clash[0]!r} has a special meaning there; rename it")
    return {**row, **{name: value for name, value in task.extra.items() if name not in reserved}}


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DataError(f'"{name}" is {_short(value)}; expected a non-empty string')
    return value


def _short(value: object) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
