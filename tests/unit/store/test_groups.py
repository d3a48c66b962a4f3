"""The groups of a run on disk: what is saved is loaded, a killed process leaves whole groups, damage is named."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_groups import assert_equal, group_of_draw

from turnwise.core.errors import StoreError
from turnwise.store.checkpoint_folder import sweep
from turnwise.store.groups import GroupStore
from turnwise.store.run_folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return RunFolder.create(tmp_path / "run").path


@pytest.fixture
def store(run: Path) -> GroupStore:
    return GroupStore(run)


def test_a_group_comes_back_by_its_draw(run: Path, store: GroupStore) -> None:
    digests = {draw: store.save(group_of_draw(draw), None) for draw in (0, 999, 1000, 1_234_567)}
    assert len(set(digests.values())) == 4
    for draw, digest in digests.items():
        assert_equal(store.load(draw, digest=digest), group_of_draw(draw))
        assert_equal(store.load(draw), group_of_draw(draw))
    assert store.list_draws() == [0, 999, 1000, 1_234_567]
    assert sorted(path.name for path in (run / "groups").iterdir()) == ["000", "001", "1234"]


def test_a_group_that_was_rolled_out_again_replaces_the_one_before(store: GroupStore) -> None:
    first = store.save(group_of_draw(5), None)
    new_digest = store.save(replace(group_of_draw(5), version=3), None)
    assert first != new_digest
    assert store.load(5, digest=new_digest).version == 3


@pytest.mark.parametrize("number", [0, 1])
def test_damage_and_absence_are_named(store: GroupStore, number: int) -> None:
    digest = store.save(group_of_draw(5), None)
    path = store.paths(5)[number]
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StoreError, match=rf"the group of draw 5 .* has digest .*, but {digest} was written"):
        store.load(5, digest=digest)
    path.unlink()
    with pytest.raises(StoreError, match=r"cannot read .*000000005\.\w+"):
        store.load(5, digest=digest)


def test_a_group_under_the_name_of_another_draw_is_refused(store: GroupStore) -> None:
    store.save(group_of_draw(5), None)
    for source, target in zip(store.paths(5), store.paths(6), strict=True):
        os.rename(source, target)
    with pytest.raises(StoreError, match="does not contain exactly the group of draw 6"):
        store.load(6)


def test_a_killed_process_loses_nothing_that_was_saved(run: Path, store: GroupStore) -> None:
    """The child says which groups `save` returned from, and is killed in the middle of one."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from made_groups import group_of_draw\n"
        "from turnwise.store.groups import GroupStore\n"
        "store = GroupStore(Path(sys.argv[1]))\n"
        "for draw in range(100000):\n"
        "    print(draw, store.save(group_of_draw(draw), None), flush=True)\n"
    )
    here = Path(__file__).parent
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(run)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{here}:{here.parents[2] / 'src'}"},
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(40)]
    child.send_signal(signal.SIGKILL)
    lines += child.stdout.readlines()
    child.wait(timeout=20)
    saved = [line.split() for line in lines if line.endswith("\n")]
    for draw, digest in saved:
        assert_equal(store.load(int(draw), digest=digest), group_of_draw(int(draw)))
    sweep(run)
    assert not list((run / "groups").glob("*/.*")), "a half-written file is swept"
