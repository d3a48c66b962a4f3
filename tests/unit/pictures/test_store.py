"""A picture comes back as it was put in, or the store says which one is missing or changed."""

import copy
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from turnwise.core.errors import StoreError
from turnwise.core.messages import ImagePart
from turnwise.pictures import store as module
from turnwise.pictures.pixels import to_part, to_png
from turnwise.pictures.store import PictureStore

PART = to_part(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
OTHER = to_part(np.zeros((4, 4, 3), np.uint8))
KNOWN = ImagePart(digest=PART.digest, width=4, height=4)


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_picture_comes_back(tmp_path: Path, on_disk: bool) -> None:
    store = PictureStore(tmp_path / "images" if on_disk else None)
    store.put(PART)
    store.put(PART)
    store.put(KNOWN)  # without pixels: it is there
    pixels = store.read(PART.digest)
    assert pixels.tobytes() == PART.pixels
    with pytest.raises(ValueError, match="read-only"):
        pixels[0, 0, 0] = 1
    assert copy.deepcopy(store) is store


def test_another_process_reads_what_one_has_put(tmp_path: Path) -> None:
    PictureStore(tmp_path).put(PART)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png")] == [
        f"{PART.digest[:2]}/{PART.digest}.png"
    ]
    fresh = PictureStore(tmp_path)
    fresh.put(KNOWN)
    assert fresh.read(PART.digest).tobytes() == PART.pixels


def test_missing_pictures_are_named(tmp_path: Path) -> None:
    for store in (PictureStore(None), PictureStore(tmp_path)):
        path = store.find_path(PART.digest) or "the store in memory"
        line = f"picture {PART.digest} is missing from {path}; restore the file, or put the picture with its pixels"
        with pytest.raises(StoreError) as raised:
            store.put(KNOWN)
        assert str(raised.value) == line
        with pytest.raises(StoreError) as raised:
            store.read(PART.digest)
        assert str(raised.value) == line
    with pytest.raises(StoreError, match=r"'\.\./\.\./etc/passwd' is no digest of a picture"):
        store.read("../../etc/passwd")


def test_changed_pictures_are_named(tmp_path: Path) -> None:
    PictureStore(tmp_path).put(PART)
    path = PictureStore(tmp_path).find_path(PART.digest)
    assert path is not None
    for content, problem in {
        to_png(OTHER): f"picture {path} differs from its digest {PART.digest}",
        to_png(PART)[:-28]: f"picture {path} cannot be decoded",
        b"": f"picture {path} is empty",
    }.items():
        path.write_bytes(content)
        with pytest.raises(StoreError) as raised:
            PictureStore(tmp_path).read(PART.digest)
        assert str(raised.value).startswith(problem)
        assert str(raised.value).endswith("restore the file, or sample its conversations again")


def test_parts_that_lie_are_refused(tmp_path: Path) -> None:
    lie = ImagePart(digest=PART.digest, width=4, height=4, pixels=OTHER.pixels)
    with pytest.raises(StoreError, match="cannot keep a picture whose pixels differ from its digest"):
        PictureStore(tmp_path).put(lie)
    assert not list(tmp_path.rglob("*.png"))


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "images").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match=r"cannot write .*images/.*png: Not a directory; free disk space"):
        PictureStore(tmp_path / "images").put(PART)


def test_memory_is_bounded_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 100)  # two pictures of 48 bytes
    parts = [to_part(np.full((4, 4, 3), shade, np.uint8)) for shade in range(3)]
    store = PictureStore(tmp_path)
    for part in parts[:2]:
        store.put(part)
    store.read(parts[0].digest)  # the other one is the longest unused
    store.put(parts[2])
    for part, is_kept in zip(parts, (True, False, True), strict=True):
        path = store.find_path(part.digest)
        assert path is not None
        path.unlink()
        if is_kept:
            assert store.read(part.digest).tobytes() == part.pixels
        else:
            with pytest.raises(StoreError, match="is missing"):
                store.read(part.digest)


def _put_many(folder: Path) -> None:
    for shade in range(20):
        PictureStore(folder).put(to_part(np.full((64, 64, 3), shade, np.uint8)))


def test_processes_write_the_same_pictures_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_put_many, args=(tmp_path,)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    names = [name for _, _, names in os.walk(tmp_path) for name in names]
    assert len(names) == 20, names  # and no file that is half written
    for name in names:
        PictureStore(tmp_path).read(name.removesuffix(".png"))
