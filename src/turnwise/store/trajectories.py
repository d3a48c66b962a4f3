"""Groups of trajectories as two files: `NAME.npz` for token data, `NAME.jsonl` for everything else.

Each line of the JSONL is one trajectory and points into the flat arrays of the NPZ, all `[T]` over every token of the
file in order of line, turn, context, completion:

    token_ids      int32
    loss_mask      bool     True on sampled tokens
    logprobs       float32  as sampled; 0 on context
    turn_index     int32    index of the turn in its trajectory
    versions       int32    weight version that sampled it; -1 on context, and where a completion has several and does
                            not say which
    full_logprobs  float32  under the whole distribution, where a grammar cut the sampler's (`guided` in the JSONL);
                            else 0
    experts        uint8    of turns of a mixture-of-experts model, end to end in the order of turns; `experts` in a
                            turn's JSON has their start and their shape `[R, layers, k]` (see `Completion`). It is
                            not `[T]`, and missing where no turn has any

A group's lines are its members, then its baseline, then what was discarded; `place` says which of these a line is,
`reason` why a trajectory was discarded. `group` holds what belongs to the group as a whole, and its `index` in the
file. Advantages are not here: they are known only after credit (see `advantages`).

The arrays are written first, so a reader who finds the JSONL finds them. What is read equals what was written, bit for
bit; versions that all equal the first token's are not listed. Text is written where the caller passes `decode`; where a
context has pictures, its text names them, and `context_parts` has text and pictures in turn.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from turnwise.core.errors import StoreError
from turnwise.core.messages import ImagePart, Part, describe_part, list_images, show_digest
from turnwise.core.sampled import token_versions
from turnwise.core.types import Discarded, Draw, DropReason, Task, TextPart, Trajectory, TrajectoryGroup, Turn
from turnwise.store.rows import (
    part_to_json,
    task_from_json,
    task_to_json,
    trajectory_from_json,
    trajectory_to_json,
)
from turnwise.store.run_folder import write_bytes_atomic

Decode = Callable[[Sequence[int]], str]
Place = Literal["member", "baseline", "discarded"]

ARRAY_TYPES: Mapping[str, type[np.generic]] = {
    "token_ids": np.int32,
    "loss_mask": np.bool_,
    "logprobs": np.float32,
    "turn_index": np.int32,
    "versions": np.int32,
    "full_logprobs": np.float32,
    "experts": np.uint8,
}
"""Types of the flat arrays, by name."""
OPTIONAL_ARRAYS = ("experts",)


def save_groups(
    folder: Path, name: str, groups: Sequence[TrajectoryGroup], *, decode: Decode | None, with_pieces: bool = False
) -> None:
    """Write `folder/name.npz`, then `folder/name.jsonl`, each atomically, and wait for the disk.

    Args:
        folder: made when missing.
        name: of the file pair, for example "heldout_000060".
        groups: in order; every one with at least one trajectory.
        decode: adds the text of contexts and completions for readers without the tokenizer; None leaves it out.
        with_pieces: also the text of every single token, for coloured views; needs `decode`.

    Raises:
        StoreError: the disk refuses; no half-written file stays.
        ValueError: a group has no trajectory.
    """
    npz, jsonl = encode_groups(groups, decode=decode, with_pieces=with_pieces)
    write_bytes_atomic(folder / f"{name}.npz", npz)
    write_bytes_atomic(folder / f"{name}.jsonl", jsonl)


def load_groups(folder: Path, name: str) -> list[TrajectoryGroup]:
    """Load what `save_groups` was given. Raises StoreError when a file is missing or broken."""
    rows, arrays = load_rows(folder, name), load_arrays(folder, name)
    return build_groups(rows, arrays, source=folder / f"{name}.jsonl")


def load_rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """The JSONL as plain data, one row per trajectory. Raises StoreError when it is missing or broken."""
    path = folder / f"{name}.jsonl"
    return parse_rows(read_file(path), source=path)


def load_arrays(folder: Path, name: str) -> dict[str, np.ndarray]:
    """The flat arrays by name. Raises StoreError when the file is missing or broken."""
    path = folder / f"{name}.npz"
    return parse_arrays(read_file(path), source=path)


def read_file(path: Path) -> bytes:
    """The file's bytes. Raises StoreError when it is missing or cannot be read."""
    try:
        return path.read_bytes()
    except OSError as cause:
        raise _unreadable(path, cause) from cause


def parse_rows(data: bytes, *, source: Path) -> list[dict[str, Any]]:
    """Parse the bytes of a JSONL into rows; `source` is named by the StoreError for a broken one."""
    try:
        return [json.loads(line) for line in data.splitlines()]
    except ValueError as cause:
        raise _unreadable(source, cause) from cause


def parse_arrays(data: bytes, *, source: Path) -> dict[str, np.ndarray]:
    """Parse the bytes of an NPZ into arrays; `source` is named by the StoreError for a broken one."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in ARRAY_TYPES if name in arrays or name not in OPTIONAL_ARRAYS}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as cause:
        raise _unreadable(source, cause) from cause


def build_groups(
    rows: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray], *, source: Path
) -> list[TrajectoryGroup]:
    """Build the groups from rows and arrays; `source` is named by the StoreError for a row that is not a trajectory."""
    by_group: dict[int, list[Mapping[str, Any]]] = {}
    try:
        for row in rows:
            by_group.setdefault(row["group"]["index"], []).append(row)
        return [_build_group(rows_of_group, arrays) for rows_of_group in by_group.values()]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as cause:
        raise _unreadable(source, cause) from cause


def encode_groups(
    groups: Sequence[TrajectoryGroup], *, decode: Decode | None, with_pieces: bool = False
) -> tuple[bytes, bytes]:
    """Return the bytes of the NPZ and of the JSONL. Raises ValueError when a group has no trajectory."""
    arrays, rows = flatten_groups(groups, decode=decode, with_pieces=with_pieces)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue(), "".join(json.dumps(row) + "\n" for row in rows).encode()


def flatten_groups(
    groups: Sequence[TrajectoryGroup], *, decode: Decode | None, with_pieces: bool = False
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Return the flat token arrays by name and the rows, one per trajectory, as `build_groups` takes them. Raises
    ValueError when a group has no trajectory."""
    arrays = _TokenArrays()
    pieces: dict[int, str] = {}
    rows: list[dict[str, Any]] = []
    for index, group in enumerate(groups):
        placed = list(list_placed(group))
        if not placed:
            raise ValueError(f"the group of draw {group.draw.index} has no trajectories; leave it out")
        shared = {
            "group": {
                "index": index,
                "draw": group.draw.index,
                "attempt": group.draw.attempt,
                "role": group.role,
                "version": group.version,
            },
            "task": task_to_json(group.task),
        }
        for trajectory, place, reason in placed:
            row: dict[str, Any] = shared | {"place": place, "reason": reason} | trajectory_to_json(trajectory)
            shown = _list_shown(group.task, trajectory) if decode is not None else {}
            for number, (turn, turn_row) in enumerate(zip(trajectory.turns, row["turns"], strict=True)):
                arrays.add(turn, number, turn_row)
                if decode is not None:
                    _add_text(turn, turn_row, decode, pieces if with_pieces else None)
                    if turn.images:
                        _add_pictures(turn, turn_row, decode, shown)
            rows.append(row)
    return arrays.join(), rows


def list_placed(group: TrajectoryGroup) -> Iterator[tuple[Trajectory, Place, DropReason | None]]:
    """Iterate over every trajectory of a group in the order of its lines, with its place; for a discarded one also its
    reason."""
    for trajectory in group.trajectories:
        yield trajectory, "member", None
    if group.baseline is not None:
        yield group.baseline, "baseline", None
    for discarded in group.discarded:
        yield discarded.trajectory, "discarded", discarded.reason


def _build_group(rows: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray]) -> TrajectoryGroup:
    members: list[Trajectory] = []
    baselines: list[Trajectory] = []
    discarded: list[Discarded] = []
    for row in rows:
        trajectory = trajectory_from_json(row, arrays)
        if row["place"] == "discarded":
            discarded.append(Discarded(trajectory=trajectory, reason=DropReason(row["reason"])))
        else:
            {"member": members, "baseline": baselines}[row["place"]].append(trajectory)
    if len(baselines) > 1:
        raise ValueError(f"group {rows[0]['group']} has {len(baselines)} baselines")
    group = rows[0]["group"]
    return TrajectoryGroup(
        draw=Draw(index=group["draw"], task=task_from_json(rows[0]["task"]), attempt=group["attempt"]),
        trajectories=tuple(members),
        version=group["version"],
        role=group["role"],
        baseline=baselines[0] if baselines else None,
        discarded=tuple(discarded),
    )


class _TokenArrays:
    """Collects the token data of turns and remembers where the data of each turn starts."""

    def __init__(self) -> None:
        self._parts: dict[str, list[np.ndarray]] = {name: [] for name in ARRAY_TYPES}
        self._size = self._num_experts = 0

    def add(self, turn: Turn, number: int, row: dict[str, Any]) -> None:
        """Add one turn and note in `row` the spans `[start, end)` of its context and its completion, and where its
        experts are."""
        context, completion = len(turn.context_ids), len(turn.completion.token_ids)
        middle, end = self._size + context, self._size + context + completion
        row["context"], row["completion"] = [self._size, middle], [middle, end]
        self._size = end
        experts = turn.completion.experts
        if experts is not None:
            row["experts"] = {"at": self._num_experts, "shape": list(experts.shape)}
            self._num_experts += experts.size
            self._parts["experts"].append(experts.reshape(-1))
        zeros = np.zeros(context, np.float32)
        parts = self._parts
        parts["token_ids"] += [turn.context_ids, turn.completion.token_ids]
        parts["loss_mask"] += [np.zeros(context, np.bool_), np.ones(completion, np.bool_)]
        parts["logprobs"] += [zeros, turn.completion.logprobs]
        full = turn.completion.full_logprobs
        parts["full_logprobs"] += [zeros, np.zeros(completion, np.float32) if full is None else full]
        versions = token_versions(turn.completion)
        parts["versions"] += [np.full(context, -1), np.full(completion, -1) if versions is None else versions]
        parts["turn_index"].append(np.full(context + completion, number, np.int32))

    def join(self) -> dict[str, np.ndarray]:
        """Return the flat arrays by name."""
        return {
            name: np.concatenate([np.zeros(0, ARRAY_TYPES[name]), *parts], dtype=ARRAY_TYPES[name])
            for name, parts in self._parts.items()
            if parts or name not in OPTIONAL_ARRAYS
        }


def _add_text(turn: Turn, row: dict[str, Any], decode: Decode, pieces: dict[int, str] | None) -> None:
    """Add the text of a turn's context and completion to `row`; with a `pieces` cache also that of each token."""
    for kind, tokens in (("context", turn.context_ids.tolist()), ("completion", turn.completion.token_ids.tolist())):
        row[f"{kind}_text"] = decode(tokens)
        if pieces is not None:
            for token in tokens:
                if token not in pieces:
                    pieces[token] = decode([token])
            row[f"{kind}_pieces"] = [pieces[token] for token in tokens]


def _list_shown(task: Task, trajectory: Trajectory) -> dict[str, ImagePart]:
    """Return the pictures of a trajectory's messages by digest; empty if no prompt shows one."""
    if not any(turn.images for turn in trajectory.turns):
        return {}
    messages = [*task.prompt, *(message for each in trajectory.conversations for message in each.messages)]
    messages += [message for turn in trajectory.turns for message in turn.observations]
    return {part.digest: part for part in list_images(messages)}


def _add_pictures(turn: Turn, row: dict[str, Any], decode: Decode, shown: Mapping[str, ImagePart]) -> None:
    """Put pictures where the context's text has placeholders: as parts in `context_parts`, as words in `context_text`.

    A picture that is cut into pieces is shown at its first one.
    """
    parts: list[Part] = []
    at = 0
    for span in turn.images:
        parts.append(TextPart(text=decode(turn.context_ids[at : span.start].tolist())))
        if span.offset == 0:
            lost = TextPart(text=f"[picture {show_digest(span.digest)}, which no message has]")
            parts.append(shown.get(span.digest, lost))
        at = span.start + span.length
    parts.append(TextPart(text=decode(turn.context_ids[at:].tolist())))
    row["context_parts"] = [part_to_json(part) for part in parts if part != TextPart(text="")]
    row["context_text"] = "".join(map(describe_part, parts))


def _unreadable(path: Path, cause: Exception) -> StoreError:
    return StoreError(
        f"cannot read {path} ({type(cause).__name__}: {cause}); it is missing or damaged: create it again"
    )
