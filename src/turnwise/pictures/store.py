"""The pictures of a run, one PNG file each, found by digest."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from turnwise.core.errors import PictureError, StoreError
from turnwise.core.messages import hash_pixels
from turnwise.core.pictures import Pixels, find_fault, is_digest
from turnwise.core.types import ImagePart
from turnwise.pictures.decode import load_file
from turnwise.pictures.pixels import to_pixels, to_png

FOLDER = "images"
"""The store's folder in a run folder."""
KEPT_BYTES = 1 << 26
"""Pixels that a store on disk keeps decoded in memory; the longest unused are dropped first."""


class PictureStore:
    """Implements `core.pictures.Pictures`. Pictures of equal pixels are one file, `ab/abcdef....png`.

    A picture is in its file when `put` returns, so that other processes see it and a killed process loses nothing; it
    reaches the disk a moment later, in a thread, because a run shows thousands of pictures and each wait for a disk
    takes milliseconds. Several processes may write and read one folder at once. A deep copy of a store is the store
    itself: models that hold it are copied.
    """

    def __init__(self, folder: Path | None) -> None:
        """Keeps pictures in `folder`, which is made when the first one comes; None keeps all of them in memory."""
        self.folder = folder
        self._kept: OrderedDict[str, Pixels] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="pictures")
        self._problem: OSError | None = None
        """Why a picture did not reach the disk; raised by the next `put`."""

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[PictureStore], tuple[Path]]:
        if self.folder is None:
            raise StoreError("another process cannot read pictures that are kept in memory; give their store a folder")
        return PictureStore, (self.folder,)

    def find_path(self, digest: str) -> Path | None:
        """Return where the file of a picture is, or would be; None for a store in memory. Raises StoreError for what is
        no digest."""
        if not is_digest(digest):
            raise StoreError(f"{digest!r:.80} is no digest of a picture; a digest has 64 hexadecimal digits")
        return None if self.folder is None else self.folder / digest[:2] / f"{digest}.png"

    def put(self, part: ImagePart) -> None:
        """Keep the pixels of a part; one that has none must be there already.

        Raises StoreError if the part has no pixels and is not there, if its pixels differ from its digest or size, and
        if the disk refuses.
        """
        path = self.find_path(part.digest)
        with self._lock:
            if part.digest in self._kept:
                return
        if path is not None and path.exists():
            return
        if part.pixels is None:
            raise _missing(part.digest, path)
        if (fault := find_fault(part)) is not None:
            raise StoreError(f"cannot keep a picture {fault}; build it with read_picture")
        if path is not None:
            with _naming(path):
                if self._problem is not None:
                    raise self._problem
                _write(path, to_png(part))
            self._disk.submit(self._wait_for_disk, path)
        self._keep(part.digest, to_pixels(part))

    def _wait_for_disk(self, path: Path) -> None:
        try:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except FileNotFoundError:  # a run that never began is removed with its folder
            return
        except OSError as cause:
            self._problem = cause

    def read(self, digest: str) -> Pixels:
        """Return a picture, `[height, width, 3]`, which cannot be written to.

        Its pixels are hashed again when they are read from the disk. Raises StoreError, naming the picture and its
        file, if it is missing, cannot be decoded, or differs from its digest.
        """
        path = self.find_path(digest)
        with self._lock:
            if (pixels := self._kept.get(digest)) is not None:
                self._kept.move_to_end(digest)
                return pixels
        if path is None or not path.exists():
            raise _missing(digest, path)
        try:
            pixels = load_file(path, f"picture {path}")
        except PictureError as cause:
            raise StoreError(f"{cause}; restore the file, or sample its conversations again") from None
        height, width, _ = pixels.shape
        if hash_pixels(pixels.tobytes(), width, height) != digest:
            raise StoreError(
                f"picture {path} differs from its digest {digest}; restore the file, or sample its conversations again"
            )
        pixels.setflags(write=False)
        self._keep(digest, pixels)
        return pixels

    def _keep(self, digest: str, pixels: Pixels) -> None:
        with self._lock:
            if digest in self._kept:
                return
            self._kept[digest] = pixels
            self._num_bytes += pixels.nbytes
            while self.folder is not None and self._num_bytes > KEPT_BYTES and len(self._kept) > 1:
                self._num_bytes -= self._kept.popitem(last=False)[1].nbytes


def _missing(digest: str, path: Path | None) -> StoreError:
    place = "the store in memory" if path is None else str(path)
    return StoreError(f"picture {digest} is missing from {place}; restore the file, or put the picture with its pixels")


def open_pictures(run: Path) -> PictureStore:
    """Return the store of a run folder."""
    return PictureStore(run / FOLDER)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn an error of the disk into one that names the file and the remedy."""
    try:
        yield
    except OSError as cause:
        raise StoreError(
            f"cannot write {path}: {cause.strerror or cause}; free disk space or change run.output, then continue with "
            "--resume"
        ) from cause


def _write(path: Path, content: bytes) -> None:
    """Write a file at once: who sees it sees all of it. Each writer has a file of its own until then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
