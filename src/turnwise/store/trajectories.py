"""Every trajectory of a step or an evaluation, as two files: `NAME.npz` for token data, `NAME.jsonl` for everything
else.

Each line of the JSONL is one trajectory and points into the flat arrays of the NPZ, all `[T]` over every token of the
batch in order of trajectory, turn, context, completion:

    token_ids   int32
    loss_mask   bool      True on sampled tokens
    logprobs    float32   as sampled; 0 on context
    advantages  float32   0 on context and where there is no credit (the JSONL tells the two apart)
    turn_index  int32     index of the turn in its trajectory
    versions    int32     weight version that sampled it; -1 on context, and where a completion has several and did not say which
    full_logprobs  float32   under the whole distribution, where a grammar cut the sampler's (`guided` in the JSONL); else 0

Batches from before the last two existed lack them and are read all the same. The arrays are written first, so whoever
sees the JSONL finds them. What is read back equals what was written, bit for bit; versions that are all the first's are
not spelled out. Knows nothing about tokenizers: text is written where the caller hands in `decode`."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.core.errors import StoreError
from turnwise.core.types import FloatArray, TrajectoryGroup, Turn, to_floats
from turnwise.store.rows import task_from_json, task_to_json, trajectory_from_json, trajectory_to_json
from turnwise.store.run_folder import write_bytes_atomic
from turnwise.store.sampled import token_versions

Decode = Callable[[Sequence[int]], str]

_TYPES: Mapping[str, type[np.generic]] = {
    "token_ids": np.int32,
    "loss_mask": np.bool_,
    "logprobs": np.float32,
    "advantages": np.float32,
    "turn_index": np.int32,
    "versions": np.int32,
    "full_logprobs": np.float32,
}
_LATER = frozenset({"versions", "full_logprobs"})
"""What batches of earlier versions lack."""

TurnAdvantages = list[FloatArray | None]
"""Per turn of a trajectory the advantages of its sampled tokens, `[N]` float32; None for a turn without credit."""


def save_group_batch(
    folder: Path,
    name: str,
    groups: Sequence[TrajectoryGroup],
    *,
    advantages: Mapping[tuple[str, int], float | Sequence[FloatArray | None]] | None,
    decode: Decode | None,
    with_pieces: bool = False,
) -> None:
    """Write `folder/name.npz`, then `folder/name.jsonl`, each atomically.

    Args:
        folder: made when missing.
        name: of the batch, for example "step_000012" or "heldout_000060".
        groups: in order; every one with at least one trajectory.
        advantages: per `(group_id, member)`, either one number for all sampled tokens or an array per turn (None: that
        turn has
            no credit). A member that is absent has none; None where credit was not computed (evaluations).
        decode: adds the text of contexts and completions for readers without the tokenizer; None leaves it out.
        with_pieces: also the text of every single token, for coloured views; needs `decode`.

    Raises:
        StoreError: the disk refuses; no half-written file stays.
        ValueError: a group is empty, or advantages do not fit their trajectory.
    """
    arrays = _TokenArrays()
    pieces: dict[int, str] = {}
    lines: list[str] = []
    for index, group in enumerate(groups):
        if not group.trajectories:
            raise ValueError(f"group {group.group_id!r} has no trajectories; leave it out of the batch")
        task = task_to_json(group.task)
        for trajectory in group.trajectories:
            credit = per_turn(
                None if advantages is None else advantages.get((group.group_id, trajectory.member)), trajectory.turns
            )
            row: dict[str, Any] = {"group": index, "group_id": group.group_id, "task": task} | trajectory_to_json(
                trajectory
            )
            row["has_credit"] = None if credit is None else [values is not None for values in credit]
            for number, (turn, turn_row) in enumerate(zip(trajectory.turns, row["turns"], strict=True)):
                arrays.add(turn, number, None if credit is None else credit[number], turn_row)
                if decode is not None:
                    _add_text(turn, turn_row, decode, pieces if with_pieces else None)
            lines.append(json.dumps(row) + "\n")
    write_bytes_atomic(folder / f"{name}.npz", arrays.to_npz())
    write_bytes_atomic(folder / f"{name}.jsonl", "".join(lines).encode())


def load_rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """The JSONL of a batch as plain data, one row per trajectory. Raises StoreError when it is missing or broken."""
    path = folder / f"{name}.jsonl"
    try:
        return [json.loads(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValueError) as cause:
        raise _unreadable(path, cause) from cause


def load_arrays(folder: Path, name: str) -> dict[str, np.ndarray]:
    """The flat token arrays of a batch by name; without `versions` and `full_logprobs` where it is an old one.

    Raises StoreError when the file is missing or broken.
    """
    path = folder / f"{name}.npz"
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = {key: data[key] for key in _TYPES if key in data or key not in _LATER}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as cause:
        raise _unreadable(path, cause) from cause
    return arrays


def load_groups(folder: Path, name: str) -> tuple[list[TrajectoryGroup], dict[tuple[str, int], TurnAdvantages]]:
    """What `save_group_batch` was given: the groups, and the advantages per turn of every `(group_id, member)` that had
    credit.

    Raises StoreError when a file is missing or broken.
    """
    rows = load_rows(folder, name)
    arrays = load_arrays(folder, name)
    groups: list[TrajectoryGroup] = []
    advantages: dict[tuple[str, int], TurnAdvantages] = {}
    members: list[list[dict[str, Any]]] = []
    try:
        for row in rows:
            if row["group"] == len(members):
                members.append([])
            members[row["group"]].append(row)
            if row["has_credit"] is not None:
                spans = [slice(*turn["completion"]) for turn in row["turns"]]
                advantages[row["group_id"], row["member"]] = [
                    to_floats(arrays["advantages"][span]) if credited else None
                    for span, credited in zip(spans, row["has_credit"], strict=True)
                ]
        for of_group in members:
            trajectories = tuple(trajectory_from_json(row, arrays) for row in of_group)
            task = task_from_json(of_group[0]["task"])
            groups.append(TrajectoryGroup(task=task, group_id=of_group[0]["group_id"], trajectories=trajectories))
    except (KeyError, IndexError, TypeError, ValueError) as cause:
        raise _unreadable(folder / f"{name}.jsonl", cause) from cause
    return groups, advantages


def per_turn(credit: float | Sequence[FloatArray | None] | None, turns: Sequence[Turn]) -> TurnAdvantages | None:
    """Advantages as one array per turn, whichever way they were given; None stays None.

    Raises ValueError when arrays and turns do not fit.
    """
    if credit is None:
        return None
    if not isinstance(credit, Sequence):
        return [to_floats(np.full(len(turn.completion.token_ids), credit)) for turn in turns]
    expected = [len(turn.completion.token_ids) for turn in turns]
    found = [None if values is None else len(values) for values in credit]
    if len(found) != len(expected) or any(f not in (None, e) for f, e in zip(found, expected, strict=True)):
        raise ValueError(f"advantages have {found} values per turn, the trajectory sampled {expected} tokens per turn")
    return [None if values is None else to_floats(values) for values in credit]


class _TokenArrays:
    """Collects the token data of turns and knows where each lies."""

    def __init__(self) -> None:
        self._parts: dict[str, list[np.ndarray]] = {name: [] for name in _TYPES}
        self._size = 0

    def add(self, turn: Turn, number: int, credit: FloatArray | None, row: dict[str, Any]) -> None:
        """Take one turn and note in `row` the spans `[start, end)` of its context and its completion."""
        context, completion = len(turn.context_ids), len(turn.completion.token_ids)
        middle, end = self._size + context, self._size + context + completion
        row["context"], row["completion"] = [self._size, middle], [middle, end]
        self._size = end
        nothing = np.zeros(context, np.float32)
        parts = self._parts
        parts["token_ids"] += [turn.context_ids, turn.completion.token_ids]
        parts["loss_mask"] += [np.zeros(context, np.bool_), np.ones(completion, np.bool_)]
        parts["logprobs"] += [nothing, turn.completion.logprobs]
        full = turn.completion.full_logprobs
        parts["full_logprobs"] += [nothing, np.zeros(completion, np.float32) if full is None else full]
        versions = token_versions(turn.completion)
        parts["versions"] += [np.full(context, -1), np.full(completion, -1) if versions is None else versions]
        parts["advantages"] += [nothing, np.zeros(completion, np.float32) if credit is None else credit]
        parts["turn_index"].append(np.full(context + completion, number, np.int32))

    def to_npz(self) -> bytes:
        """The file's bytes."""
        arrays = {
            key: np.concatenate([np.zeros(0, _TYPES[key]), *parts], dtype=_TYPES[key])
            for key, parts in self._parts.items()
        }
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()


def _add_text(turn: Turn, row: dict[str, Any], decode: Decode, pieces: dict[int, str] | None) -> None:
    """Text of a turn's context and completion; with a `pieces` cache also of each token."""
    for kind, tokens in (("context", turn.context_ids.tolist()), ("completion", turn.completion.token_ids.tolist())):
        row[f"{kind}_text"] = decode(tokens)
        if pieces is not None:
            for token in tokens:
                if token not in pieces:
                    pieces[token] = decode([token])
            row[f"{kind}_pieces"] = [pieces[token] for token in tokens]


def _unreadable(path: Path, cause: Exception) -> StoreError:
    return StoreError(
        f"{path} cannot be read ({type(cause).__name__}: {cause}); it is missing or damaged, run that step again"
    )
