"""Merging layers and reading changes, against a plain dictionary."""

import asyncio
import os
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.tree_changes import ChangesTooLarge, lay_copy, read_changes
from turnwise_sandbox.tree_store import TreeStore, copy_folder
from turnwise_sandbox.trees import Entry, Manifest, Tree, check_layer

PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
LAYERS = st.lists(st.dictionaries(PATHS, st.none() | st.binary(max_size=2), max_size=4), min_size=1, max_size=4)


def expected_merge(layers):
    """The files that the layers show, or None if one of them is refused."""
    merged: dict[str, bytes] = {}
    for layer in layers:
        files = {path: content for path, content in layer.items() if content is not None}
        for path in files:
            for other in files:
                if other.startswith(path + "/"):
                    return None
            above = [path[:at] for at, char in enumerate(path) if char == "/"]
            if any(folder in merged and folder not in layer for folder in above):
                return None
        for hidden, content in layer.items():
            merged = {path: kept for path, kept in merged.items() if path != hidden}
            if content is None or hidden in files:
                merged = {path: kept for path, kept in merged.items() if not path.startswith(hidden + "/")}
        for path, content in files.items():
            merged[path] = content
    return merged


@settings(max_examples=300, deadline=None)
@given(layers=LAYERS)
@example(layers=[{"b/b": b""}, {"b": None, "b/b": None}])
def test_a_tree_shows_what_a_dictionary_does(layers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    store = TreeStore(folder, has_overlay=True)
    expected = expected_merge(layers)
    take = store.take(Tree(layers=tuple(layers)))
    if expected is None:
        with pytest.raises(SandboxError, match="tree: "):
            asyncio.run(take)
        assert not store._uses
        return
    stored = asyncio.run(take)
    assert {path: stored.read(path) for path in stored.manifest.files} == expected
    assert merge_as_overlay(folder, reversed(stored.lowers.split(":"))) == expected
    store.release(stored)
    assert not store._uses


def merge_as_overlay(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """What overlayfs would show of the stored layers, by its rules: a device is a whiteout, and folders merge."""
    shown: dict[str, bytes] = {}
    for name in names:
        for at, folders, files in os.walk(folder / name):
            for item in [*folders, *files]:
                place = Path(at) / item
                path = str(place.relative_to(folder / name))
                if not place.is_dir():
                    shown = {kept: shown[kept] for kept in shown if not kept.startswith(path + "/")}
                shown.pop(path, None)
                if place.is_file():
                    shown[path] = place.read_bytes()
    return shown


def open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


@settings(max_examples=200, deadline=None)
@given(
    base=st.dictionaries(PATHS, st.binary(max_size=2), max_size=5), after=st.dictionaries(PATHS, st.binary(max_size=2))
)
def test_changes_of_a_copy_turn_the_tree_into_what_was_left(base, after, tmp_path_factory):
    if expected_merge([base]) is None or expected_merge([after]) is None:
        return
    folder = tmp_path_factory.mktemp("both")
    for name in ("store", "before", "after"):
        (folder / name).mkdir()
    for path, content in after.items():
        (folder / "after" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "after" / path).write_bytes(content)
    store = TreeStore(folder / "store", has_overlay=False)
    stored = asyncio.run(store.take(Tree(layers=(base,))))
    lay_copy(before := open_folder(folder / "before"), stored, None)
    options: dict[str, Any] = {"is_overlay": False, "max_bytes": 1000, "max_files": 100}
    assert read_changes(before, stored, **options) == {}
    changes = read_changes(left := open_folder(folder / "after"), stored, **options)
    assert set(changes) == {path for path in base | after if base.get(path) != after.get(path)}
    again = asyncio.run(store.take(Tree(layers=(base, changes))))
    assert {path: again.read(path) for path in again.manifest.files} == after
    for fd in (before, left):
        os.close(fd)


def test_what_is_no_plain_file_is_not_a_change_and_nothing_is_followed(tmp_path):
    source, edits, store = (tmp_path / name for name in ("source", "edits", "store"))
    for folder in (source / "d", edits / "folder", store):
        folder.mkdir(parents=True)
    (source / "file").write_bytes(b"1")
    (source / "d/inner").write_bytes(b"2")
    (source / "link").symlink_to("file")
    stored = asyncio.run(TreeStore(store, has_overlay=True).take(Tree(layers=(source,))))
    (tmp_path / "secret").write_bytes(b"secret")
    (edits / "file").symlink_to(tmp_path / "secret")
    (edits / "d").symlink_to(tmp_path)
    (edits / "folder/out").symlink_to(tmp_path)
    os.mkfifo(edits / "link")
    (edits / "new").write_bytes(b"3")
    fd = open_folder(edits)
    options: dict[str, Any] = {"is_overlay": True, "max_bytes": 100, "max_files": 100}
    assert read_changes(fd, stored, **options) == {"d/inner": None, "file": None, "link": None, "new": b"3"}
    for fewer in ({"max_bytes": 0}, {"max_files": 5}):
        with pytest.raises(ChangesTooLarge, match=r"more than \d+ bytes or \d+ files; write less"):
            read_changes(fd, stored, **{**options, **fewer})
    os.close(fd)


def test_changes_that_were_too_large_are_read_again_from_the_beginning(tmp_path):
    """An error that somebody keeps, as asyncio does, must not leave the folder read halfway: nothing would be left."""
    edits, store = tmp_path / "edits", tmp_path / "store"
    for folder in (edits, store, tmp_path / "source"):
        folder.mkdir()
    stored = asyncio.run(TreeStore(store, has_overlay=True).take(Tree(layers=(tmp_path / "source",))))
    for name in ("one", "two"):
        (edits / name).write_bytes(bytes(60))
    fd = open_folder(edits)
    kept = []
    for _ in range(3):
        with pytest.raises(ChangesTooLarge) as error:
            read_changes(fd, stored, is_overlay=True, max_bytes=100, max_files=10)
        kept.append(error)
    assert set(read_changes(fd, stored, is_overlay=True, max_bytes=120, max_files=10)) == {"one", "two"}
    os.close(fd)


def test_a_copy_keeps_modes_links_and_times_and_is_complete_or_absent(tmp_path):
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "run").write_bytes(b"x")
    (source / "run").chmod(0o4700)
    (source / "plain").write_bytes(b"yy")
    (source / "plain").chmod(0o400)
    os.utime(source / "plain", ns=(5, 1_000_000_007))
    (source / "link").symlink_to("/nowhere")
    name, manifest = copy_folder(source, tmp_path / "copy")
    assert manifest.files == {
        "run": Entry(name, is_executable=True),
        "plain": Entry(name),
        "link": Entry(name, is_link=True),
    }
    assert (manifest.folders, manifest.num_bytes) == ({"empty"}, 3)
    modes = {path: (tmp_path / "copy" / path).stat().st_mode & 0o7777 for path in ("run", "plain", "empty")}
    assert modes == {"run": 0o755, "plain": 0o644, "empty": 0o755}
    assert (tmp_path / "copy/plain").stat().st_mtime_ns == 1_000_000_007
    assert os.readlink(tmp_path / "copy/link") == "/nowhere"
    os.mkfifo(source / "empty/fifo")
    with pytest.raises(SandboxError, match="'empty/fifo' in the layer"):
        copy_folder(source, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_layer_is_named_by_its_content_and_what_it_removes():
    below = Manifest({"a": Entry("d0"), "b/c": Entry("d0", is_executable=True)})
    names = [
        check_layer(layer, below).name for layer in ({"x": b"1"}, {"x": b"2"}, {"x": b"1", "a": None}, {"y": b"1"})
    ]
    assert len(set(names)) == 4
    assert check_layer({"x": b"1", "missing": None}, below).name == names[0]
    assert check_layer({"b": None}, below).removed == ("b",)
    assert check_layer({"b": None, "b/d": b""}, below).removed == ("b/c",)
    assert check_layer({"b/c": b""}, below).executable == {"b/c"}


def test_a_file_that_cannot_be_opened_for_want_of_descriptors_is_not_taken_for_gone(tmp_path):
    edits, store = tmp_path / "edits", tmp_path / "store"
    for folder in (edits / "folder", store):
        folder.mkdir(parents=True)
    written = {"folder/new": b"1", "file": b"2"}
    for path, content in written.items():
        (edits / path).write_bytes(content)
    stored = asyncio.run(TreeStore(store, has_overlay=True).take(Tree(layers=({"file": b"0"},))))
    fd = open_folder(edits)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(fd)
    os.close(lowest_free)
    complete = []
    try:
        for num_more in range(8):
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + num_more, hard))
            try:
                complete.append(read_changes(fd, stored, is_overlay=True, max_bytes=100, max_files=100) == written)
            except SandboxError as failure:
                complete.append("cannot read" in str(failure))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(fd)
    assert complete == [True] * 8
