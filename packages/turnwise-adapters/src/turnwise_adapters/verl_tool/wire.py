"""Requests and answers of the protocol's single call, `POST /get_observation`. Pure functions of JSON.

A request is columns of equal length: `trajectory_ids`, `actions` (what the model wrote), and as needed `finish`,
`is_last_step`, `extra_fields` and columns of any other name, which count as extra fields. The answer is the columns
`observations` (a text, or an object with the text under `obs`), `dones` and `valids`. Source: the server and the agent
loop of TIGER-AI-Lab/verl-tool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PATH = "/get_observation"
_OWN_COLUMNS = ("trajectory_ids", "actions", "extra_fields", "finish", "is_last_step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One row of a request."""

    trajectory: str
    text: str
    """What the model wrote."""
    is_finish: bool = False
    """The trajectory is over: its state is freed and `text` is not run."""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One row of an answer."""

    text: str
    is_done: bool = False
    """The server has ended the trajectory."""
    is_valid: bool = True
    """Whether the action named a tool and supplied its arguments."""
    problem: str = ""
    """Why the action was not valid; empty if it was."""
    is_fault: bool = False
    """Whether the problem is the server's fault, not the model's."""


def write_request(actions: Sequence[Action]) -> bytes:
    """Return the body of a request."""
    return json.dumps(
        {
            "trajectory_ids": [action.trajectory for action in actions],
            "actions": [action.text for action in actions],
            "finish": [action.is_finish for action in actions],
            "is_last_step": [action.is_finish for action in actions],
            "extra_fields": [dict(action.extra) for action in actions],
        }
    ).encode()


def read_request(body: bytes) -> list[Action]:
    """Return the rows of a request. Raises ValueError saying what is wrong with it.

    Deviation: a single id need not be in a list, as the agent loop sends it when it closes a trajectory.
    """
    columns = _read_object(body)
    ids = columns.get("trajectory_ids")
    if isinstance(ids, str | int) and not isinstance(ids, bool):
        ids = [ids]
    if not isinstance(ids, list) or not ids or not all(_is_id(each) for each in ids):
        raise ValueError("trajectory_ids must be a list of strings or integers, with at least one")
    texts = _read_column(columns, "actions", len(ids), "")
    finish = _read_column(columns, "finish", len(ids), False)
    extras = _read_column(columns, "extra_fields", len(ids), {})
    for name, values, kind in (("actions", texts, str), ("finish", finish, bool), ("extra_fields", extras, dict)):
        if not all(isinstance(value, kind) for value in values):
            raise ValueError(f"{name} must be a list whose items are all of type {kind.__name__}")
    further = {name: _read_column(columns, name, len(ids), None) for name in columns if name not in _OWN_COLUMNS}
    rows = [{**extra, **{name: column[row] for name, column in further.items()}} for row, extra in enumerate(extras)]
    return [
        Action(trajectory=str(each), text=text, is_finish=is_finish or row.get("finish") is True, extra=row)
        for each, text, is_finish, row in zip(ids, texts, finish, rows, strict=True)
    ]


def write_response(outcomes: Sequence[Outcome], seconds: float) -> bytes:
    """Return the body of an answer; `seconds` is how long the request took."""
    observations = [_write_observation(outcome) for outcome in outcomes]
    answer = {
        "observations": observations,
        "dones": [outcome.is_done for outcome in outcomes],
        "valids": [outcome.is_valid for outcome in outcomes],
        "processing_time_ms": round(seconds * 1000, 3),
    }
    return json.dumps(answer).encode()


def read_response(body: bytes, num_rows: int) -> list[Outcome]:
    """Return the rows of an answer. Raises ValueError saying what is wrong with it."""
    columns = _read_object(body)
    observations, dones, valids = (
        _read_column(columns, name, num_rows, None) for name in ("observations", "dones", "valids")
    )
    return [_read_outcome(*row) for row in zip(observations, dones, valids, strict=True)]


def _write_observation(outcome: Outcome) -> str | dict[str, str]:
    if not outcome.problem:
        return outcome.text
    return {"obs": outcome.text, "error" if outcome.is_fault else "invalid_reason": outcome.problem}


def _read_outcome(observation: Any, done: Any, valid: Any) -> Outcome:
    """Read one row. Servers write truth values as booleans or as 0 and 1."""
    if done not in (0, 1) or valid not in (0, 1):
        raise ValueError(f"dones and valids must be booleans, not {done!r:.40} and {valid!r:.40}")
    parts = {"obs": observation} if isinstance(observation, str) else observation
    if not isinstance(parts, dict) or not isinstance(parts.get("obs"), str):
        raise ValueError("an observation must be a string, or an object with a string under 'obs'")
    problem = parts.get("error") or parts.get("invalid_reason") or ""
    return Outcome(
        text=parts["obs"],
        is_done=bool(done),
        is_valid=bool(valid),
        problem=str(problem),
        is_fault=not valid and bool(parts.get("error")),
    )


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("the body must be a JSON object")
    return value


def _read_column(columns: Mapping[str, Any], name: str, num_rows: int, default: Any) -> list[Any]:
    """Return a column of `num_rows` values. An optional column that is missing is filled with `default`."""
    column = columns.get(name)
    if column is None and name in ("extra_fields", "finish"):
        return [default] * num_rows
    if not isinstance(column, list) or len(column) != num_rows:
        found = f"{len(column)} items" if isinstance(column, list) else f"{column!r:.40}"
        raise ValueError(f"{name} must be a list of {num_rows} items, one per trajectory, not {found}")
    return column


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
