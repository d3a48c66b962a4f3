import errno
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_sandbox.kernel import files, syscalls


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "box").mkdir()
    fd = os.open(tmp_path / "box", os.O_RDONLY | os.O_DIRECTORY)
    yield fd, tmp_path / "box"
    os.close(fd)


@pytest.fixture
def in_memory(tmp_path):
    """A folder where ten thousand levels take less than seconds, and which every user can reach."""
    path = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path))
    path.chmod(0o777)
    yield path
    subprocess.run(["rm", "-rf", path], check=True)


@pytest.fixture(params=["openat2", "walk"])
def either_way(request, monkeypatch):
    """Runs a test with openat2 and without it, as on an older kernel."""
    if request.param == "walk":
        monkeypatch.delitem(syscalls.NUMBERS, "openat2")


def test_write_then_read(folder, either_way):
    fd, path = folder
    files.write_file(fd, "a/b/c.bin", b"hello")
    assert (path / "a" / "b" / "c.bin").read_bytes() == b"hello"
    files.write_file(fd, "a/b/c.bin", b"hi")  # shorter than the old content, which is removed
    assert files.read_file(fd, "a/b/c.bin", max_bytes=2) == b"hi"
    assert files.list_files(fd, max_files=3) == [("a/b/c.bin", 2)]


@given(
    st.lists(
        st.sampled_from(["", ".", "..", "a", "é", "x" * 255, "x" * 256, "a\0b", "..a", " "]), min_size=1, max_size=4
    ).map("/".join)
)
def test_paths_are_relative_and_plain(path):
    parts = path.split("/")
    bad = any(part in ("", ".", "..", "x" * 256, "a\0b") for part in parts)
    if bad:
        with pytest.raises(ValueError, match="relative path"):
            files.split_path(path)
    else:
        assert files.split_path(path) == parts


def test_nothing_leads_out(folder, either_way, tmp_path):
    fd, path = folder
    (tmp_path / "secret").write_text("secret")
    os.symlink(tmp_path, path / "out")
    os.symlink(tmp_path / "secret", path / "file")
    os.symlink("/proc/self/root", path / "magic")
    for name in ("out/secret", "file", "magic/etc/passwd"):
        assert files.open_file(fd, name) is None
        with pytest.raises(FileNotFoundError):
            files.read_file(fd, name, max_bytes=100)
        with pytest.raises(OSError, match=r"."):
            files.write_file(fd, name, b"overwritten")
    with pytest.raises(OSError, match=r"."):
        files.open_folder(fd, "out")
    for name in ("../secret", str(tmp_path / "secret")):
        with pytest.raises(ValueError, match="relative path"):
            files.read_file(fd, name, max_bytes=100)
    assert (tmp_path / "secret").read_text() == "secret"
    assert files.list_files(fd, max_files=10) == []
    # Without confinement the same path leads out of the folder.
    assert (path / "out" / "secret").read_text() == "secret"


def test_fifos_and_sockets_neither_block_nor_open(folder, either_way):
    fd, path = folder
    os.mkfifo(path / "fifo")
    assert files.open_file(fd, "fifo") is None
    with pytest.raises(OSError, match=r"."):
        files.write_file(fd, "fifo", b"x")
    reader = os.open(path / "fifo", os.O_RDONLY | os.O_NONBLOCK)  # with a reader, opening to write would succeed
    with pytest.raises(OSError, match="not a regular file"):
        files.write_file(fd, "fifo", b"x")
    os.close(reader)
    assert files.open_file(fd, "missing") is None


def test_sizes_are_bounded(folder):
    fd, path = folder
    (path / "ten").write_bytes(bytes(10))
    assert files.read_file(fd, "ten", max_bytes=10) == bytes(10)
    with pytest.raises(OSError, match="9 bytes") as caught:
        files.read_file(fd, "ten", max_bytes=9)
    assert caught.value.errno == errno.EFBIG
    with pytest.raises(OSError, match="more than the 9 allowed"):
        files.write_file(fd, "new", bytes(10), max_bytes=9)
    assert not (path / "new").exists()
    for number in range(5):
        (path / f"f{number}").touch()
    assert len(files.list_files(fd, max_files=6)) == 6
    with pytest.raises(OSError, match="more than 5") as caught:
        files.list_files(fd, max_files=5)
    assert caught.value.errno == errno.E2BIG


def test_new_files_get_their_owner(folder, as_root):
    fd, path = folder
    files.write_file(fd, "a/b", b"", owner=(1234, 1235))
    assert [(path / name).stat().st_uid for name in ("a", "a/b")] == [1234, 1234]
    assert (path / "a" / "b").stat().st_gid == 1235


def build_hostile_tree(path, depth):
    """A deep chain of folders, some without permissions, many files, read-only folders, and links to outside."""
    here = os.open(path, os.O_RDONLY)
    closed = []
    for level in range(depth):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        if level % 100 == 1:
            closed.append(here)
        else:
            os.close(here)
        here = below
    os.close(here)
    for folder in closed:
        os.fchmod(folder, 0)
        os.close(folder)
    for number in range(9000):
        os.close(os.open(path / f"file{number}", os.O_CREAT | os.O_WRONLY))
    os.makedirs(path / "q" / "r" / "s")
    (path / "q" / "r" / "s" / "file").touch()
    os.symlink(path.parent / "outside", path / "q" / "link")
    for name, mode in (("q/r/s", 0), ("q/r", 0o555), ("q", 0)):
        os.chmod(path / name, mode)


def test_a_hostile_tree_is_removed(in_memory):
    (in_memory / "outside").mkdir()
    (in_memory / "outside" / "kept").touch()
    (in_memory / "box").mkdir()
    fd = os.open(in_memory / "box", os.O_RDONLY)
    build_hostile_tree(in_memory / "box", 10_000 if os.geteuid() == 0 else 50)
    files.remove_tree(fd)
    assert os.listdir(fd) == []
    assert (in_memory / "outside" / "kept").exists()
    os.close(fd)


def test_a_hostile_tree_is_removed_without_privileges(in_child, as_root, in_memory):
    def attempt():
        syscalls.set_identity(65534, 65534)
        (in_memory / "box").mkdir()
        box = os.open(in_memory / "box", os.O_RDONLY)
        build_hostile_tree(in_memory / "box", 1000)
        os.fchmod(box, 0)
        files.remove_tree(box)
        return os.listdir(box)

    assert in_child(attempt) == []


def test_what_cannot_be_removed_is_an_error(in_child, as_root, tmp_path):
    def attempt():
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        (tmp_path / "box" / "mounted").mkdir(parents=True)
        syscalls.mount("x", str(tmp_path / "box" / "mounted"), "tmpfs")
        files.remove_tree(os.open(tmp_path / "box", os.O_RDONLY))

    assert in_child(attempt, flags=syscalls.CLONE_NEWNS) == "EBUSY"
