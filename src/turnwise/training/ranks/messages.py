"""Messages between the trainer's process and a rank: plain JSON, followed by the bytes of its arrays.

Nothing is unpickled. A message is the length of the JSON text, the text, and its arrays in order; in the text an array
is `{"array": [dtype, shape]}`. Floats are read back with the same bits.

To a rank: `{"kind", ...}`. From it: `{"answer"}`, `{"refused": [error, text]}` if all ranks refuse alike and continue,
`{"failed": text}` after which they cannot continue, and in between `{"alive": true}`, `{"rows": pieces}` and `{"file":
piece}` from a rank that shares neither memory nor disk with the trainer (`pieces.py`)."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, fields
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from turnwise.core.batch import Columns, Pair, StepReport, TrainingBatch
from turnwise.core.errors import CheckpointError, TrainingError
from turnwise.core.keys import read_span
from turnwise.core.metrics import Metric
from turnwise.core.types import Origin, Sample, TrajectoryId

_LENGTH = struct.Struct(">Q")
_ARRAY = "array"
METRICS: dict[str, type[Metric]] = {kind.__name__: kind for kind in get_args(Metric)}
REFUSALS = {error.__name__: error for error in (TrainingError, CheckpointError)}
"""Errors that all ranks raise together and survive."""
SAMPLE_ARRAYS = ("token_ids", "loss_mask", "behavior_logprobs", "advantages", "context_mask", "versions", "experts")


def encode_message(message: Mapping[str, Any]) -> bytes:
    """Encode a tree of plain data and arrays. Raises TypeError for anything else."""
    arrays: list[bytes] = []
    text = json.dumps(_flatten(message, arrays), separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(text)), _LENGTH.pack(sum(map(len, arrays))), text, *arrays))


def read_message(end: socket.socket) -> dict[str, Any] | None:
    """Return the next message; None if the other side has closed the socket, even in the middle of a message. Raises
    TimeoutError if no byte arrives before the socket's deadline."""
    head = _read_exactly(end, 2 * _LENGTH.size)
    if head is None:
        return None
    (length,), (num_bytes,) = _LENGTH.unpack(head[: _LENGTH.size]), _LENGTH.unpack(head[_LENGTH.size :])
    text, arrays = _read_exactly(end, length), _read_exactly(end, num_bytes)
    if text is None or arrays is None:
        return None
    message: dict[str, Any] = _restore(json.loads(bytes(text)), memoryview(arrays), [0])
    return message


def _read_exactly(end: socket.socket, count: int) -> bytearray | None:
    read = bytearray(count)
    view, done = memoryview(read), 0
    while done < count:
        try:
            got = end.recv_into(view[done:])
        except ConnectionError:
            return None
        if not got:
            return None
        done += got
    return read


def _flatten(tree: Any, arrays: list[bytes]) -> Any:
    if isinstance(tree, np.ndarray):
        arrays.append(np.ascontiguousarray(tree).tobytes())
        return {_ARRAY: [tree.dtype.str, list(tree.shape)]}
    if isinstance(tree, Mapping):
        return {key: _flatten(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_flatten(value, arrays) for value in tree]
    return tree.item() if isinstance(tree, np.generic) else tree


def _restore(tree: Any, arrays: memoryview, at: list[int]) -> Any:
    if isinstance(tree, list):
        return [_restore(value, arrays, at) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.keys() != {_ARRAY}:
        return {key: _restore(value, arrays, at) for key, value in tree.items()}
    dtype, shape = np.dtype(tree[_ARRAY][0]), tree[_ARRAY][1]
    count = int(np.prod(shape))
    array = np.frombuffer(arrays, dtype, count, at[0]).reshape(shape)
    at[0] += count * dtype.itemsize
    return array


def encode_samples(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return samples as one table, with their arrays joined."""
    table: dict[str, Any] = {"lengths": np.array([len(s.token_ids) for s in samples], np.int64)}
    for name in SAMPLE_ARRAYS:
        arrays = [getattr(s, name) for s in samples]
        table[name] = {
            "joined": np.concatenate([array for array in arrays if array is not None] or [np.zeros(0)]),
            "counts": [None if array is None else len(array) for array in arrays],
        }
    table["others"] = [
        [s.version_first, s.version_last, asdict(s.origin), [astuple(span) for span in s.images]] for s in samples
    ]
    return table


def decode_samples(table: Mapping[str, Any]) -> tuple[Sample, ...]:
    """Return the argument of `encode_samples`."""
    arrays = {name: _split(**table[name]) for name in SAMPLE_ARRAYS}
    return tuple(
        Sample(
            version_first=first,
            version_last=last,
            origin=Origin(**{**origin, "trajectory": TrajectoryId(**origin["trajectory"])}),
            images=tuple(map(read_span, images)),
            **{name: arrays[name][index] for name in SAMPLE_ARRAYS},  # type: ignore[arg-type]
        )
        for index, (first, last, origin, images) in enumerate(table["others"])
    )


def _split(joined: NDArray[Any], counts: Sequence[int | None]) -> list[NDArray[Any] | None]:
    ends = np.cumsum([count or 0 for count in counts])
    return [
        None if count is None else joined[end - count : end] for count, end in zip(counts, ends.tolist(), strict=True)
    ]


def encode_columns(columns: Columns) -> dict[str, Any]:
    """Return columns by name, without those that nothing computed."""
    present = {each.name: getattr(columns, each.name) for each in fields(columns)}
    return {
        name: {"joined": np.concatenate(column or [np.zeros(0)]), "counts": [len(array) for array in column]}
        if name != "final_values"
        else list(column)
        for name, column in present.items()
        if column is not None
    }


def decode_columns(table: Mapping[str, Any]) -> Columns:
    """Return the argument of `encode_columns`."""
    return Columns(
        **{name: tuple(value if name == "final_values" else _split(**value)) for name, value in table.items()}
    )


def encode_batch(batch: TrainingBatch) -> dict[str, Any]:
    """Return a training batch as plain data and arrays."""
    plain = ("step", "objective", "updates", "kl_coefficient", "entropy_coefficient")
    return {
        "samples": encode_samples(batch.samples),
        "columns": encode_columns(batch.columns),
        "pairs": [{each.name: getattr(pair, each.name) for each in fields(pair)} for pair in batch.pairs],
        **{name: getattr(batch, name) for name in plain},
    }


def decode_batch(table: Mapping[str, Any]) -> TrainingBatch:
    """Return the argument of `encode_batch`."""
    return TrainingBatch(
        **{
            **table,
            "samples": decode_samples(table["samples"]),
            "columns": decode_columns(table["columns"]),
            "updates": tuple(tuple(update) for update in table["updates"]),
            "pairs": tuple(Pair(**{name: tuple(value) for name, value in pair.items()}) for pair in table["pairs"]),
        }
    )


def encode_report(report: StepReport) -> dict[str, Any]:
    """Return a trainer's report of a step as plain data."""
    metrics = {name: [type(metric).__name__, asdict(metric)] for name, metric in report.metrics.items()}
    return {"metrics": metrics, "optimizer_steps": report.optimizer_steps, "sums": dict(report.sums)}


def decode_report(table: Mapping[str, Any]) -> StepReport:
    """Return the argument of `encode_report`."""
    metrics: dict[str, Metric] = {name: METRICS[kind](**values) for name, (kind, values) in table["metrics"].items()}
    return StepReport(metrics=metrics, optimizer_steps=table["optimizer_steps"], sums=table["sums"])
