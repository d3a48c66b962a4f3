"""The groups of a run, one pair of files per draw, stored before they train so that a step can be redone from them.

    groups/000/000000012.npz     token data (see `trajectories`)
    groups/000/000000012.jsonl   everything else
    groups/000/000000000.zip     both files of draws 0 to 99, once their fate is behind a checkpoint (see `packs`)

A group is written by rename and is on disk when `save` returns: neither a killed process nor a power cut loses it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from pathlib import Path

from turnwise.core.errors import StoreError
from turnwise.core.types import TrajectoryGroup
from turnwise.store.packs import NUM_TOGETHER, drop_members, list_members, pack_files, pack_path, read_member
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
        """Load the group of a draw, as it was saved. `digest` is what `save` returned; None skips the comparison.

        Raises StoreError when a file is missing or broken, or when the files do not match the digest.
        """
        npz, jsonl = self.paths(draw)
        arrays, rows = self.read(draw, digest=digest)
        groups = build_groups(parse_rows(rows, source=jsonl), parse_arrays(arrays, source=npz), source=jsonl)
        if [group.draw.index for group in groups] != [draw]:
            raise StoreError(f"{jsonl} does not contain exactly the group of draw {draw}; restore it from a copy")
        return groups[0]

    def read(self, draw: int, *, digest: str | None = None) -> tuple[bytes, bytes]:
        """Return the bytes of a draw's NPZ and JSONL. Raises StoreError when one is missing or the digest differs."""
        npz, jsonl = self.paths(draw)
        data = self._read_file(npz, draw), self._read_file(jsonl, draw)
        if digest is not None and (digest_of_files := digest_files(*data)) != digest:
            raise StoreError(
                f"the group of draw {draw} ({npz.with_suffix('')}.*) has digest {digest_of_files}, but {digest} was "
                "written; the files were changed or damaged: restore them from a copy"
            )
        return data

    def _read_file(self, path: Path, draw: int) -> bytes:
        if not path.exists() and (data := read_member(self._pack(draw), path.name)) is not None:
            return data
        return read_file(path)

    def list_draws(self) -> list[int]:
        """List every draw with a complete pair of files, in order. Raises StoreError for a damaged pack."""
        packed = {name for pack in self._folder.glob("*/*.zip") for name in list_members(pack)}
        both = {Path(name).stem for name in packed if name.endswith(".npz") and f"{name[:-4]}.jsonl" in packed}
        return sorted({int(name) for name in both if name.isdecimal()} | set(self._list_loose()))

    def _list_loose(self) -> list[int]:
        names = {path.stem for path in self._folder.glob("*/*.npz")} & {
            path.stem for path in self._folder.glob("*/*.jsonl")
        }
        return sorted(int(name) for name in names if name.isdecimal())

    def pack(self, find_settled: Callable[[], Collection[int]]) -> None:
        """Pack the files of every hundred draws that are all among those `find_settled` returns (draws that no crash
        can reopen); it is called only where so many files exist. Raises StoreError."""
        loose = self._list_loose()
        if len(loose) < NUM_TOGETHER:
            return
        settled = set(find_settled())
        for first in sorted({draw // NUM_TOGETHER * NUM_TOGETHER for draw in loose}):
            draws = range(first, first + NUM_TOGETHER)
            if settled.issuperset(draws):
                files = [path for draw in draws for path in self.paths(draw) if path.exists()]
                pack_files(self._pack(first), files)

    def set_aside(self, draws: Collection[int], folder: Path) -> None:
        """Move the groups of some draws out of the store. Raises OSError or StoreError."""
        for draw in draws:
            for path in self.paths(draw):
                if path.exists():
                    os.rename(path, folder / path.name)
        gone = {path.name for draw in draws for path in self.paths(draw)}
        for pack in {self._pack(draw) for draw in draws}:
            for name in gone & set(list_members(pack) if pack.exists() else ()):
                (folder / name).write_bytes(read_member(pack, name) or b"")
            if pack.exists():
                drop_members(pack, lambda name: name not in gone)

    def _pack(self, draw: int) -> Path:
        folder = self.paths(draw)[0].parent
        return pack_path(folder, draw, lambda first: f"{first:09d}")

    def paths(self, draw: int) -> tuple[Path, Path]:
        """Return the paths of a draw's NPZ and JSONL."""
        stem = self._folder / f"{draw // _PER_FOLDER:03d}" / f"{draw:09d}"
        return stem.with_suffix(".npz"), stem.with_suffix(".jsonl")


def digest_files(npz: bytes, jsonl: bytes) -> str:
    """Return 16 hexadecimal digits over a group's two files; the length of the first is part of the digest."""
    digest = hashlib.sha256(len(npz).to_bytes(8, "big"))
    digest.update(npz)
    digest.update(jsonl)
    return digest.hexdigest()[:16]
