"""The groups of a run, one pair of files per draw, stored before they train so that a step can be redone from them.

    groups/000/000000012.npz     token data (see `trajectories`)
    groups/000/000000012.jsonl   everything else

A group is written by rename and does not wait for the disk: a killed process loses nothing that `save` returned from.
A power cut can lose what was not synced; `sync` waits for the disk, and a run calls it before a batch trains.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from turnwise.core.errors import StoreError
from turnwise.core.types import TrajectoryGroup
from turnwise.store.run_folder import check_format, disk_error, sync
from turnwise.store.trajectories import Decode, build_groups, encode_groups, parse_arrays, parse_rows, read_file

_PER_FOLDER = 1000


class GroupStore:
    """The groups of one run. Raises StoreError when the run folder has another format."""

    def __init__(self, run: Path) -> None:
        check_format(run)
        self._folder = run / "groups"

    def save(self, group: TrajectoryGroup, decode: Decode | None) -> str:
        """Write a group and return the digest of its two files; a group of the same draw is replaced.

        `decode` adds text for readers without the tokenizer; None leaves it out. Raises StoreError when the disk
        refuses, ValueError when the group has no trajectory.
        """
        data = encode_groups([group], decode=decode)
        paths = self.paths(group.draw.index)
        try:
            paths[0].parent.mkdir(parents=True, exist_ok=True)
            for path, content in zip(paths, data, strict=True):
                temporary = path.with_name(f".{path.name}.tmp")
                temporary.write_bytes(content)
                os.replace(temporary, path)
        except OSError as cause:
            raise disk_error("write group", paths[0].with_suffix(""), cause) from cause
        return digest_files(*data)

    def load(self, draw: int, *, digest: str | None = None) -> TrajectoryGroup:
        """The group of a draw, as it was saved. `digest` is what `save` returned; None reads without comparing.

        Raises StoreError when a file is missing or broken, or when the files are not those of the digest.
        """
        npz, jsonl = self.paths(draw)
        arrays, rows = self.read(draw, digest=digest)
        groups = build_groups(parse_rows(rows, source=jsonl), parse_arrays(arrays, source=npz), source=jsonl)
        if [group.draw.index for group in groups] != [draw]:
            raise StoreError(f"{jsonl} does not hold the one group of draw {draw}; restore it from a copy")
        return groups[0]

    def read(self, draw: int, *, digest: str | None = None) -> tuple[bytes, bytes]:
        """The bytes of a draw's NPZ and JSONL. Raises StoreError when one is missing or the digest differs."""
        npz, jsonl = self.paths(draw)
        data = read_file(npz), read_file(jsonl)
        if digest is not None and (digest_of_files := digest_files(*data)) != digest:
            raise StoreError(
                f"the group of draw {draw} ({npz.with_suffix('')}.*) has digest {digest_of_files}, {digest} was "
                "written; the files were changed or damaged: restore them from a copy"
            )
        return data

    def sync(self, draws: Collection[int]) -> None:
        """Wait until the groups of these draws, and the names of their files, are on disk. Raises StoreError."""
        files = [path for draw in draws for path in self.paths(draw)]
        folders = {path.parent for path in files}
        try:
            for path in (*files, *sorted(folders), *([self._folder, self._folder.parent] if files else [])):
                sync(path)
        except OSError as cause:
            raise disk_error("sync", Path(cause.filename or self._folder), cause) from cause

    def list_draws(self) -> list[int]:
        """Every draw with a whole pair of files, in order."""
        names = {path.stem for path in self._folder.glob("*/*.npz")} & {
            path.stem for path in self._folder.glob("*/*.jsonl")
        }
        return sorted(int(name) for name in names if name.isdecimal())

    def paths(self, draw: int) -> tuple[Path, Path]:
        """The NPZ and the JSONL of a draw."""
        stem = self._folder / f"{draw // _PER_FOLDER:03d}" / f"{draw:09d}"
        return stem.with_suffix(".npz"), stem.with_suffix(".jsonl")


def digest_files(npz: bytes, jsonl: bytes) -> str:
    """16 hexadecimal digits over a group's two files; the length of the first is part of it."""
    digest = hashlib.sha256(len(npz).to_bytes(8, "big"))
    digest.update(npz)
    digest.update(jsonl)
    return digest.hexdigest()[:16]
