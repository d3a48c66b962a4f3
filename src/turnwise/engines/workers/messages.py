"""Messages between the training process and an engine worker: plain JSON, each message preceded by its length in four
bytes.

A float is read back with the same bits (Python writes the shortest text that reads back equal). Nothing that a model
produced is ever unpickled.

To a worker: `generate`, `cancel`, `release`, `adopt`, `pause`, `resume`, each with an `id` where an answer is expected.
From it: `{"id", "answer"}`, `{"id", "error"}`, `{"id", "part"}` for what a request has so far or asks, and a message
without `id` as a heartbeat, all with its `statistics`. The first answer, with id 0, says that the worker is ready."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, astuple
from typing import Any

import numpy as np

from turnwise.core.keys import read_span
from turnwise.core.types import (
    ByteArray,
    Completion,
    FinishReason,
    Grammar,
    Prompt,
    SamplingParams,
    Session,
    to_experts,
    to_floats,
    to_ids,
)

READY_ID = 0
"""The answer with this id says that the worker is ready."""
_LENGTH = struct.Struct(">I")


def encode_message(message: Mapping[str, Any]) -> bytes:
    """Encode a message as length and JSON. Raises TypeError for anything but plain data."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the next message; None if the other side has closed the connection, even in the middle of a message."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        message: dict[str, Any] = json.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return message


def encode_request(prompt: Prompt, params: SamplingParams, session: Session) -> dict[str, Any]:
    """Return the fields of `generate`. Pictures are named by digest: a worker reads them from the run's store."""
    return {
        "prompt_ids": prompt.token_ids.tolist(),
        "images": [astuple(span) for span in prompt.images],
        "params": asdict(params),
        "session": asdict(session),
    }


def decode_request(fields: Mapping[str, Any]) -> tuple[Prompt, SamplingParams, Session]:
    """Return the arguments of `encode_request`."""
    params = dict(fields["params"])
    grammar = params.pop("grammar")
    for name in ("stop", "stop_token_ids"):
        params[name] = tuple(params[name])
    return (
        Prompt(token_ids=to_ids(fields["prompt_ids"]), images=tuple(map(read_span, fields["images"]))),
        SamplingParams(grammar=Grammar(**grammar) if grammar else None, **params),
        Session(**fields["session"]),
    )


def encode_completion(completion: Completion) -> dict[str, Any]:
    """Return the answer to `generate`."""
    lists = {name: getattr(completion, name) for name in ("token_ids", "logprobs", "versions", "full_logprobs")}
    return {
        **{name: None if values is None else values.tolist() for name, values in lists.items()},
        "finish_reason": completion.finish_reason.value,
        "version_first": completion.version_first,
        "version_last": completion.version_last,
        "experts": None if completion.experts is None else encode_experts(completion.experts),
    }


def encode_experts(experts: ByteArray) -> dict[str, Any]:
    """Return experts `[R, layers, k]` as plain data."""
    return {"shape": list(experts.shape), "bytes": base64.b64encode(experts.tobytes()).decode()}


def decode_completion(fields: Mapping[str, Any]) -> Completion:
    """Return the argument of `encode_completion`."""
    versions, full, experts = fields["versions"], fields["full_logprobs"], fields.get("experts")
    return Completion(
        token_ids=to_ids(fields["token_ids"]),
        logprobs=to_floats(fields["logprobs"]),
        finish_reason=FinishReason(fields["finish_reason"]),
        version_first=fields["version_first"],
        version_last=fields["version_last"],
        versions=None if versions is None else to_ids(versions),
        full_logprobs=None if full is None else to_floats(full),
        experts=None if experts is None else decode_experts(experts),
    )


def decode_experts(fields: Mapping[str, Any]) -> ByteArray:
    """Return the argument of `encode_experts`. Raises ValueError if the bytes do not fit the shape."""
    return to_experts(np.frombuffer(base64.b64decode(fields["bytes"]), np.uint8).reshape(fields["shape"]))
