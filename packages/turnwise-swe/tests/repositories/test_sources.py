"""Source distributions and folders become trees of plain files; anything else is refused in one line."""

import io
import tarfile
from pathlib import Path

import pytest

from turnwise.core.errors import ConfigError, DataError
from turnwise_swe.repositories.packages import find_package, load_packages
from turnwise_swe.repositories.repository import is_protected
from turnwise_swe.repositories.sources import (
    copy_tree,
    describe,
    describe_failure,
    find_sources,
    find_test_files,
    hash_tree,
    tree_files,
    unpack_sdist,
)


def pack(path: Path, files: dict[str, bytes], *members: tarfile.TarInfo) -> Path:
    """A .tar.gz with files and further members."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in members:
            archive.addfile(member)
    return path


def build_member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def test_a_source_distribution_is_unpacked_without_its_top_folder(tmp_path: Path) -> None:
    sdist = pack(tmp_path / "p-1.tar.gz", {"p-1/PKG-INFO": b"Name: P_q\nVersion: 1\n", "p-1/src/p_q/__init__.py": b""})
    root = tmp_path / "root"
    root.mkdir()
    unpack_sdist(sdist, root)
    assert tree_files(root) == ["PKG-INFO", "src/p_q/__init__.py"]
    assert find_sources(root, origin="p") == ("src/p_q",)
    description = describe(root, origin="p")
    assert (description.name, description.version) == ("p-q", "1")


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (build_member("p-1/link", tarfile.SYMTYPE, "/etc/passwd"), "'p-1/link', which is not a regular file"),
        (build_member("p-1/hard", tarfile.LNKTYPE, "p-1/a"), "not a regular file"),
        (build_member("p-1/pipe", tarfile.FIFOTYPE), "not a regular file"),
        (build_member("/etc/cron.d/x", tarfile.REGTYPE), "leaves its folder"),
        (build_member("p-1/../../x", tarfile.REGTYPE), "leaves its folder"),
    ],
)
def test_an_archive_with_links_or_paths_outside_is_refused(
    tmp_path: Path, member: tarfile.TarInfo, message: str
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(DataError, match=message):
        unpack_sdist(pack(tmp_path / "p-1.tar.gz", {"p-1/a": b"x"}, member), root)
    assert not (tmp_path / "x").exists()


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    whole = pack(tmp_path / "p-1.tar.gz", {"p-1/a": bytes(range(256)) * 500}).read_bytes()
    for content in (b"no archive", b"", whole[: len(whole) // 2]):
        (tmp_path / "q.tar.gz").write_bytes(content)
        with pytest.raises(DataError, match=r"not a complete .tar.gz|not a source distribution"):
            unpack_sdist(tmp_path / "q.tar.gz", root)


def test_a_folder_is_copied_without_caches_and_refused_with_links(tmp_path: Path) -> None:
    folder, root = tmp_path / "folder", tmp_path / "root"
    for path in ("m.py", "test_m.py", ".git/config", "__pycache__/m.pyc", ".venv/x"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("")
    root.mkdir()
    copy_tree(folder, root)
    assert tree_files(root) == ["m.py", "test_m.py"]
    assert find_sources(root, origin="m") == ("m.py",)
    assert find_test_files(root) == ("test_m.py",)
    (folder / "link").symlink_to("m.py")
    with pytest.raises(DataError, match="link is a link"):
        copy_tree(folder, root)


def test_the_digest_tells_contents_and_paths_apart(tmp_path: Path) -> None:
    digests = set()
    for number, files in enumerate(({"a": b"xy"}, {"ax": b"y"}, {"a": b"x", "y": b""}, {"b": b"xy"})):
        root = tmp_path / str(number)
        root.mkdir()
        for path, content in files.items():
            (root / path).write_bytes(content)
        digests.add(hash_tree(root))
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/p/core.py", False),
        ("src/p/data/table.json", False),
        ("src/p/new.py", False),
        ("src/p/tests/test_a.py", True),
        ("src/p/tests/new.py", True),
        ("src/p/conftest.py", True),
        ("src/p/__pycache__/core.pyc", True),
        ("src/p/core.so", True),
        ("src/other.py", True),
        ("src/p.py", True),
        ("tests/test_b.py", True),
        ("tests/new/data.txt", True),
        ("conftest.py", True),
        ("pyproject.toml", True),
        ("sitecustomize.py", True),
        ("src/p/x.pth", True),
        ("/etc/passwd", True),
        ("src/p/../../x.py", True),
    ],
)
def test_a_patch_changes_source_files_only(path: str, expected: bool) -> None:
    tests = ("src/p/tests/test_a.py", "tests/test_b.py")
    assert is_protected(path, source_folders=("src/p",), test_files=tests) is expected


def test_a_module_beside_its_tests_may_change_and_they_may_not() -> None:
    for path, expected in (("m.py", False), ("test_m.py", True), ("n.py", True)):
        assert is_protected(path, source_folders=("m.py",), test_files=("test_m.py",)) is expected


def test_the_manifest_pins_every_package() -> None:
    packages = load_packages()
    assert len(packages) == 31
    assert len({package.name for package in packages}) == len({package.sha256 for package in packages}) == 31
    for package in packages:
        assert len(package.sha256) == 64
        assert all("==" in requirement for requirement in package.requires)
        assert all(reason for _, reason in package.left_out)


def test_a_name_that_is_not_in_the_manifest_is_refused() -> None:
    assert find_package("toolz==1.2.0").name == "toolz"
    for key, message in (
        ("toolz==0.1", "is available in version 1.2.0"),
        ("nothing==1", "cannot be added by name"),
        ("toolz", "not of the form name==version"),
    ):
        with pytest.raises(ConfigError, match=message):
            find_package(key)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "free space on"),
        ("ERROR: Could not find a version that satisfies the requirement x", "check the connection and the index"),
        ("/usr/bin/python3: No module named pip", "install pip"),
        ("", "it gave no reason; check the connection"),
    ],
)
def test_a_failure_of_pip_says_what_helps(said: str, reason: str) -> None:
    text = describe_failure(said, "install x")
    assert text.startswith("pip cannot install x: ")
    assert reason in text
