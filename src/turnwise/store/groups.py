"""The groups of a run, one pair of files per draw, stored before they train so that a step can be redone from them.

    groups/000/000000012.npz     token data (see `trajectories`)
    groups/000/000000012.jsonl   everything else

A group is written by rename and is on disk when `save` returns: neither a killed process nor a power cut loses it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from turnwise.core.errors import StoreError
from turnwise.core.types import TrajectoryGroup
from turnwise.store.run_folder import check_format, disk_error, sync, write_bytes_atomic
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
        return self.prepare(group, decode)()

    def prepare(self, group: TrajectoryGroup, decode: Decode | None) -> Callable[[], str]:
        """Encode a group; the returned function does the rest of `save`, and may run in another thread."""
        data = encode_groups([group], decode=decode)
        return lambda: self._write(group.draw.index, *data)

    def _write(self, draw: int, npz: bytes, jsonl: bytes) -> str:
        paths = self.paths(draw)
        if not paths[0].parent.exists():
            try:
                paths[0].parent.mkdir(parents=True, exist_ok=True)
                sync(self._folder)
                sync(self._folder.parent)
            except OSError as cause:
                raise disk_error("make", paths[0].parent, cause) from cause
        for path, content in zip(paths, (npz, jsonl), strict=True):
            write_bytes_atomic(path, content)
        return digest_files(npz, jsonl)

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
