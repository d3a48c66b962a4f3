"""Groups and advantages of a hundred draws or steps in one file: readers see no difference, and a crash loses none."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_groups import assert_equal, group_of_draw

from turnwise.core.errors import StoreError
from turnwise.core.types import TrajectoryId
from turnwise.store import packs
from turnwise.store.advantages import forget_packed, load_advantages, pack_advantages, save_advantages
from turnwise.store.groups import GroupStore
from turnwise.store.packs import drop_members, list_members, pack_files, read_member
from turnwise.store.run_folder import RunFolder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("turnwise.store.run_folder.os.fsync", lambda handle: None)
    return RunFolder.create(tmp_path / "run").path


def count_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def test_settled_hundreds_are_packed_and_read_as_before(run: Path) -> None:
    store = GroupStore(run)
    digests = {draw: store.save(group_of_draw(draw), None) for draw in range(250) if draw != 7}
    store.pack(lambda: [*range(120), *range(121, 250)])
    # Draws 0 to 99, of which 7 has no group; 120 is not settled, and 200 to 249 are no hundred.
    assert list_members(run / "groups/000/000000000.zip")[:2] == ["000000000.jsonl", "000000000.npz"]
    assert count_files(run / "groups") == 1 + 2 * 150
    assert store.list_draws() == sorted(digests)
    for draw, digest in digests.items():
        assert_equal(store.load(draw, digest=digest), group_of_draw(draw))
    with pytest.raises(StoreError, match=r"cannot read .*000000007\.npz"):
        store.load(7)
    store.pack(lambda: range(250))
    assert count_files(run / "groups") == 2 + 2 * 50


def test_few_files_are_left_alone_and_nobody_is_asked(run: Path) -> None:
    store = GroupStore(run)
    store.save(group_of_draw(3), None)
    store.pack(lambda: pytest.fail("asked"))


def test_a_group_that_is_rolled_out_again_takes_the_place_of_the_packed_one(run: Path) -> None:
    store = GroupStore(run)
    for draw in range(100):
        store.save(group_of_draw(draw), None)
    store.pack(lambda: range(100))
    digest = store.save(replace(group_of_draw(5), version=3), None)
    assert store.load(5, digest=digest).version == 3
    for draw in range(100, 200):
        store.save(group_of_draw(draw), None)
    store.pack(lambda: range(200))
    assert count_files(run / "groups") == 2
    assert store.load(5, digest=digest).version == 3


@pytest.mark.parametrize("at", ["replace", "unlink"])
def test_a_crash_while_packing_loses_nothing(run: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    store = GroupStore(run)
    digests = {draw: store.save(group_of_draw(draw), None) for draw in range(100)}
    calls = [0]

    def crash(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **keywords: object) -> object:
            calls[0] += 1
            if calls[0] == (1 if at == "replace" else 51):
                raise KeyboardInterrupt
            return real(*args, **keywords)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash(os.replace)) if at == "replace" else patch.setattr(
            Path, "unlink", crash(Path.unlink)
        )
        with pytest.raises(KeyboardInterrupt):
            store.pack(lambda: range(100))
    for _ in range(2):
        assert {draw: store.load(draw, digest=digest).draw.index for draw, digest in digests.items()}
        pack_files(run / "groups/000/000000000.zip", sorted((run / "groups/000").glob("0*.[nj]*")))
    assert count_files(run / "groups") == 1


def test_a_damaged_pack_is_named(run: Path) -> None:
    store = GroupStore(run)
    for draw in range(100):
        store.save(group_of_draw(draw), None)
    store.pack(lambda: range(100))
    pack = run / "groups/000/000000000.zip"
    data = pack.read_bytes()
    pack.write_bytes(data[: len(data) // 2])
    for read in (store.list_draws, lambda: store.load(3)):
        with pytest.raises(StoreError, match=r"000000000.zip .* restore it from a copy"):
            read()
    entry = data.rfind(b"PK\x01\x02")  # the last one of the table at the end
    pack.write_bytes(data[: entry + 3] + b"\x03" + data[entry + 4 :])
    with pytest.raises(StoreError, match=r"cannot read .*000000000\.zip"):
        store.load(3)


def test_groups_are_set_aside_from_packs_too(run: Path, tmp_path: Path) -> None:
    store = GroupStore(run)
    for draw in range(102):
        store.save(group_of_draw(draw), None)
    store.pack(lambda: range(100))
    aside = tmp_path / "aside"
    aside.mkdir()
    store.set_aside([98, 101], aside)
    assert store.list_draws() == [*range(98), 99, 100]
    assert sorted(path.stem for path in aside.glob("*.npz")) == ["000000098", "000000101"]


def test_advantages_are_packed_behind_a_checkpoint_and_forgotten_with_their_steps(run: Path) -> None:
    name = TrajectoryId(draw=1, member=0, attempt=0, role="agent")
    for step in range(1, 151):
        save_advantages(run, step, {name: [np.full(2, step, np.float32)]})
    pack_advantages(run, until=98)
    assert count_files(run / "steps") == 150
    pack_advantages(run, until=150)
    assert count_files(run / "steps") == 1 + 51
    for step in (1, 99, 100, 150):
        stored = load_advantages(run, step)
        assert stored is not None
        [values] = stored[name] or []
        assert values is not None
        assert values.tolist() == [step, step]
    forget_packed(run, after_step=40)
    RunFolder(run).truncate(after_step=40)
    assert [step for step in range(151) if load_advantages(run, step) is not None] == list(range(1, 41))


def test_members_are_dropped_by_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    pack = tmp_path / "x.zip"
    pack_files(pack, [tmp_path / "a", tmp_path / "b"])
    drop_members(pack, lambda name: name == "b")
    assert (list_members(pack), read_member(pack, "b"), read_member(pack, "a")) == (["b"], b"b", None)
    assert read_member(tmp_path / "none.zip", "a") is None
    assert packs.NUM_TOGETHER == 100
