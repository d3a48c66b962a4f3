"""Trees that are sent as archives: what is packed, what an untrusted archive gives back, and where they may not go."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_machines import BUILDERS, fake_sdks

from turnwise_sandbox.bubblewrap import _FOLDER, BubblewrapSandbox
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.remote.machine import MachineSandbox
from turnwise_sandbox.tree_archives import Found, TreeShelf, find_changes, pack_tree, read_found
from turnwise_sandbox.tree_store import StoredTree
from turnwise_sandbox.trees import Tree
from turnwise_sandbox.types import Execution, Limits, Program

needs_tools = pytest.mark.skipif(
    not all(shutil.which(tool, path="/usr/local/bin:/usr/bin:/bin") for tool in ("python3", "timeout", "tar", "du")),
    reason="the fake machines need python3, timeout, tar and du in /usr/bin",
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg/m.py").write_text("X = 1\n")
    (folder / "run").write_text("#!/bin/sh\necho ran\n")
    (folder / "run").chmod(0o755)
    (folder / "gone").write_text("g")
    (folder / "link").symlink_to("pkg/m.py")
    return folder


def with_stored(tree: Tree, use: Callable[[StoredTree], Any]) -> Any:
    async def run() -> Any:
        shelf = TreeShelf("the tested sandbox", "give up")
        try:
            async with shelf.take(Program(code="", tree=tree, files={"pkg/new.py": b"n"})) as stored:
                assert stored is not None
                return use(stored)
        finally:
            shelf.close()

    return asyncio.run(run())


def pack(stored: StoredTree) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        pack_tree(stored, archive, "work")
    return packed.getvalue()


def test_an_archive_has_every_layer_with_modes_and_links(repository: Path):
    packed = with_stored(Tree(layers=(repository, {"pkg/m.py": b"X = 2\n", "gone": None, "empty/f": b""})), pack)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert {(each.name, each.type, each.mode) for each in archive if not each.isdir()} == {
            ("work/empty/f", tarfile.REGTYPE, 0o644),
            ("work/link", tarfile.SYMTYPE, 0o644),
            ("work/pkg/m.py", tarfile.REGTYPE, 0o644),
            ("work/pkg/new.py", tarfile.REGTYPE, 0o644),
            ("work/run", tarfile.REGTYPE, 0o755),
        }
        assert archive.getmember("work/link").linkname == "pkg/m.py"
        file = archive.extractfile("work/pkg/m.py")
        assert file is not None
        assert file.read() == b"X = 2\n"


def changes(repository: Path, files: Mapping[str, bytes], links: Mapping[str, str], **limits: int) -> Any:
    bounds = {"max_bytes": 100, "max_files": 10, **limits}
    found = Found(files=files, links=links)
    return with_stored(Tree(layers=(repository,)), lambda stored: find_changes(found, stored, **bounds))


KEPT = {"pkg/m.py": b"X = 1\n", "pkg/new.py": b"n", "run": b"#!/bin/sh\necho ran\n", "gone": b"g"}
LINKS = {"link": "pkg/m.py"}


def test_changes_are_what_differs_and_what_is_gone(repository: Path):
    assert changes(repository, KEPT, LINKS) == {}
    others = {path: content for path, content in KEPT.items() if path != "gone"}
    assert changes(repository, {**others, "pkg/m.py": b"X = 3\n", "more": b""}, LINKS) == {
        "gone": None,
        "more": b"",
        "pkg/m.py": b"X = 3\n",
    }
    # A link that points elsewhere, or a file in its place, is no longer the tree's.
    assert changes(repository, KEPT, {"link": "gone", "made": "run"}) == {"link": None}
    assert changes(repository, {**KEPT, "link": b"text"}, {}) == {"link": b"text"}


def test_more_changes_than_allowed_are_none(repository: Path):
    assert changes(repository, {**KEPT, "more": b"12345"}, LINKS, max_bytes=5) == {"more": b"12345"}
    assert changes(repository, {**KEPT, "more": b"123456"}, LINKS, max_bytes=5) is None
    assert changes(repository, {**KEPT, "a": b"", "b": b""}, LINKS, max_files=1) is None


def test_names_that_leave_the_folder_are_left_out():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("tree/ok", "tree/../evil", "/tree/abs", "tree//x", "other/ok", "tree", "tree/./d"):
            info = tarfile.TarInfo(name)
            info.size = 1
            archive.addfile(info, io.BytesIO(b"1"))
        for kind, name, target in (
            (tarfile.SYMTYPE, "tree/s", "/etc/passwd"),
            (tarfile.LNKTYPE, "tree/h", "tree/ok"),
            (tarfile.LNKTYPE, "tree/e", "/etc/passwd"),
            (tarfile.FIFOTYPE, "tree/f", ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
    with tarfile.open(fileobj=io.BytesIO(packed.getvalue())) as archive:
        found = read_found(archive, "tree")
    assert found == Found(files={"ok": b"1", "h": b"1"}, links={"s": "/etc/passwd"})


CODE = """
import os, subprocess
print(open("pkg/m.py").read(), open("f").read(), os.readlink("link"), os.listdir(os.environ["HOME"]))
print(subprocess.run(["./run"], capture_output=True, text=True).stdout)
open("pkg/m.py", "w").write("X = 2")
os.remove("gone")
os.symlink("/etc/passwd", "made")
open("n", "w").write("1")
open(os.path.join(os.environ["HOME"], "elsewhere"), "w").write("no change")
"""


def play(sandbox: MachineSandbox | BubblewrapSandbox, *programs: Program, **limits: Any) -> list[Execution]:
    async def run() -> list[Execution]:
        try:
            return [await sandbox.run(program, Limits(wall_s=20, **limits)) for program in programs]
        finally:
            await sandbox.close()

    return asyncio.run(run())


def check_round_trip(sandbox: MachineSandbox | BubblewrapSandbox, repository: Path) -> None:
    program = Program(code=CODE, tree=Tree(layers=(repository,)), files={"f": b"file"}, outputs=("n", "made"))
    for execution in play(sandbox, program, program):  # the second finds nothing of the first
        assert execution.exit_code == 0, execution.stderr
        assert execution.stdout.split() == [b"X", b"=", b"1", b"file", b"pkg/m.py", b"[]", b"ran"]
        assert execution.changes == {"gone": None, "n": b"1", "pkg/m.py": b"X = 2"}
        assert execution.files == {"n": b"1"}
    assert (repository / "gone").exists()


def check_full_disk(sandbox: MachineSandbox | BubblewrapSandbox) -> None:
    writer = "for i in range(9): open(str(i), 'wb').write(b'0' * (1 << 20))"
    (full,) = play(sandbox, Program(code=writer, tree=Tree(layers=({"a": b"x"},))), disk_bytes=4 << 20)
    assert (full.limit, full.changes) == ("disk", None)


@needs_tools
@pytest.mark.parametrize("name", BUILDERS)
def test_a_tree_goes_to_a_machine_and_its_changes_come_back(name: str, repository: Path, tmp_path: Path):
    with fake_sdks():
        check_round_trip(BUILDERS[name][0](folder=f"{tmp_path}/m"), repository)


@needs_tools
def test_a_tree_that_outgrows_its_quota_on_a_machine_is_the_limit_disk(tmp_path: Path):
    with fake_sdks():
        check_full_disk(BUILDERS["e2b"][0](folder=f"{tmp_path}/m"))


@pytest.fixture
def bubblewrap(repository: Path) -> BubblewrapSandbox:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    sandbox = BubblewrapSandbox()
    try:
        play(sandbox, Program(code=""))
    except SandboxError as cause:
        pytest.skip(str(cause))
    return BubblewrapSandbox()


def test_a_tree_goes_into_bubblewrap_and_its_changes_come_back(bubblewrap: BubblewrapSandbox, repository: Path):
    check_round_trip(bubblewrap, repository)


def test_a_tree_that_outgrows_its_quota_in_bubblewrap_is_the_limit_disk(bubblewrap: BubblewrapSandbox):
    check_full_disk(bubblewrap)


@pytest.mark.parametrize("is_tree", [False, True])
def test_the_command_line_of_bubblewrap(is_tree: bool, repository: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[tuple[list[str], bytes]] = []

    def record(command: list[str], *, pass_fds: list[int], **options: Any) -> None:
        place = command.index("/run/program/tree.tar") if is_tree else 0
        seen.append((command, os.read(int(command[place - 1]), 1 << 20) if is_tree else b""))
        raise FileNotFoundError("this is a test")

    monkeypatch.setattr("turnwise_sandbox.bubblewrap.subprocess.Popen", record)
    tree = Tree(layers=(repository,)) if is_tree else None
    with pytest.raises(SandboxError, match="cannot start bubblewrap"):
        play(BubblewrapSandbox(bwrap="sh"), Program(code="", tree=tree, files={"f": b"1"}), disk_bytes=1 << 20)
    ((command, archive),) = seen
    line = " ".join(command)
    if not is_tree:
        assert "--symlink /work /tmp --size 1048576 --tmpfs /work" in line
        assert f"{_FOLDER}/f" in command
        return
    # Files of 6, 19 and 1 bytes below, one of 1 on top; 5 files and links, 1 folder and the root take a page each.
    assert f"--size 1048576 --tmpfs /tmp --size {(1 << 20) + 27 + 7 * 4096} --tmpfs /work" in line
    assert "--setenv HOME /tmp" in line
    assert command[command.index("-c") + 1].startswith("tar -xf /run/program/tree.tar -C /work || exit 1; echo;")
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        names = {name.removeprefix("./") for name in packed.getnames()}
    assert names == {".", "pkg", "pkg/m.py", "run", "gone", "link", "f"}


def test_what_no_other_place_can_show_is_refused_with_the_remedy(repository: Path):
    tree = Tree(layers=(repository,), visible=(repository,))

    async def take() -> None:
        async with TreeShelf("the tested sandbox", "name them in read_only").take(Program(code="", tree=tree)):
            pass

    with pytest.raises(SandboxError, match="the tested sandbox cannot show folders of this machine; name them in"):
        asyncio.run(take())
