"""The advantages of one RL step, per sampled token: `steps/step_000012.npz`, written when the step's credit is known.
The files of a hundred steps before a checkpoint are in one pack, `steps/step_000000.zip` (see `packs`).

Flat arrays over K trajectories, their turns and the sampled tokens of turns with credit, in that order:

    draw, member, attempt  [K] int64    the trajectory's id
    role                   [K] text
    num_turns              [K] int64    -1 where the whole trajectory has no credit
    num_tokens             [S] int64    per turn of trajectories with credit; -1 where the turn has none
    advantages             [T] float32
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from turnwise.core.errors import StoreError
from turnwise.core.types import FloatArray, TrajectoryId, to_floats
from turnwise.store.packs import NUM_TOGETHER, drop_members, pack_files, pack_path, read_member
from turnwise.store.run_folder import check_format, write_bytes_atomic

TurnAdvantages = list[FloatArray | None]
"""Per turn of a trajectory, the advantages of its sampled tokens, `[N]` float32; None for a turn without credit."""


def save_advantages(
    run: Path, step: int, advantages: Mapping[TrajectoryId, Sequence[FloatArray | None] | None]
) -> None:
    """Write the advantages of RL step `step`, atomically, and wait for the disk.

    Each trajectory has one array per turn, None for a turn without credit; or None if no turn has credit. Raises
    StoreError when the disk refuses.
    """
    credited = [turns for turns in advantages.values() if turns is not None]
    arrays = [values for turns in credited for values in turns if values is not None]
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        draw=np.array([name.draw for name in advantages], np.int64),
        member=np.array([name.member for name in advantages], np.int64),
        attempt=np.array([name.attempt for name in advantages], np.int64),
        role=np.array([name.role for name in advantages], np.str_),
        num_turns=np.array([-1 if turns is None else len(turns) for turns in advantages.values()], np.int64),
        num_tokens=np.array(
            [-1 if values is None else len(values) for turns in credited for values in turns], np.int64
        ),
        advantages=np.concatenate([np.zeros(0, np.float32), *arrays], dtype=np.float32),
    )
    write_bytes_atomic(_path(run, step), buffer.getvalue())


def load_advantages(run: Path, step: int) -> dict[TrajectoryId, TurnAdvantages | None] | None:
    """Load what `save_advantages` was given, as float32; None if the step has no file: its algorithm has no advantages.

    Raises StoreError when the file is broken or the run has another format.
    """
    check_format(run)
    path = _path(run, step)
    stored = path if path.exists() else read_member(_pack(run, step), path.name)
    if stored is None:
        return None
    try:
        with np.load(path if isinstance(stored, Path) else io.BytesIO(stored), allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
        ids = zip(*(arrays[name].tolist() for name in ("draw", "member", "attempt", "role")), strict=True)
        num_tokens = iter(arrays["num_tokens"].tolist())
        advantages: dict[TrajectoryId, TurnAdvantages | None] = {}
        at = 0
        for (draw, member, attempt, role), num_turns in zip(ids, arrays["num_turns"].tolist(), strict=True):
            turns: TurnAdvantages = []
            for count in (next(num_tokens) for _ in range(num_turns)):
                turns.append(to_floats(arrays["advantages"][at : at + count]) if count >= 0 else None)
                at += max(count, 0)
            name = TrajectoryId(draw=draw, member=member, attempt=attempt, role=role)
            advantages[name] = None if num_turns < 0 else turns
        if at != len(arrays["advantages"]):
            raise ValueError(f"only {at} of {len(arrays['advantages'])} advantages belong to a trajectory")
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as cause:
        raise StoreError(
            f"cannot read {path} ({type(cause).__name__}: {cause}); it is damaged: run that step again"
        ) from cause
    return advantages


def pack_advantages(run: Path, *, until: int) -> None:
    """Put the advantages of every hundred steps up to `until`, the step of a checkpoint, into one pack. Raises
    StoreError."""
    loose = [int(path.stem.removeprefix("step_")) for path in (run / "steps").glob("step_*.npz")]
    for first in sorted({step // NUM_TOGETHER * NUM_TOGETHER for step in loose}):
        if first + NUM_TOGETHER - 1 <= until:
            files = [path for step in range(first, first + NUM_TOGETHER) if (path := _path(run, step)).exists()]
            pack_files(_pack(run, first), files)


def forget_packed(run: Path, *, after_step: int) -> None:
    """Remove the advantages of later steps, which are about to be rewritten, from packs that also hold earlier ones.
    Raises StoreError."""
    for pack in (run / "steps").glob("step_*.zip"):
        drop_members(pack, lambda name: int(name[5:-4]) <= after_step)


def _pack(run: Path, step: int) -> Path:
    return pack_path(run / "steps", step, lambda first: _path(run, first).stem)


def _path(run: Path, step: int) -> Path:
    return run / "steps" / f"step_{step:06d}.npz"
