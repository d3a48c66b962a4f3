import os
import subprocess
import sys

import pytest

from turnwise_sandbox.kernel import root, syscalls

ISOLATED = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWIPC
OWN = os.geteuid(), os.getegid()


@pytest.fixture(params=["as root", "in a user namespace"])
def in_root(request, in_child):
    """Runs an attempt inside a fresh root, once with namespaces made by privilege and once in a user namespace."""
    unprivileged = request.param == "in a user namespace"
    if not unprivileged and os.geteuid() != 0:
        pytest.skip("takes root")

    def run(attempt, **options):
        def enter():
            if unprivileged:
                syscalls.enter_user_namespace(*OWN)
            root.build_root(**options)
            return attempt()

        return in_child(enter, flags=ISOLATED | (syscalls.CLONE_NEWUSER if unprivileged else 0))

    if run(lambda: "ok") != "ok":
        pytest.skip(f"no root of one's own here: {run(lambda: 'ok')}")
    return run


def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return error.strerror
    return "ok"


def test_the_host_is_not_there(in_root):
    def look():
        return [
            sorted(os.listdir("/etc")),
            [os.path.exists(path) for path in ("/etc/shadow", "/var", "/home", "/sys", "/dev/vda", "/dev/tty")],
        ]

    names, present = in_root(look)
    assert set(names) <= {"alternatives", "group", "hosts", "ld.so.cache", "localtime", "nsswitch.conf", "passwd"}
    assert present == [False] * 6
    assert os.path.exists("/etc/shadow")  # it is on the host


def test_nothing_can_be_written(in_root):
    def write():
        places = ("/x", "/usr/x", "/etc/passwd", "/dev/x", os.path.join(sys.prefix, "x"), "/box/x")
        made = [outcome(lambda path=path: os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))) for path in places]
        unlocked = (
            outcome(lambda: syscalls.mount(None, "/usr", None, syscalls.MS_REMOUNT | syscalls.MS_BIND))
            if OWN[0]
            else "not tried"
        )
        return [made, unlocked]

    made, unlocked = in_root(write)
    assert made == ["Read-only file system"] * 6
    assert unlocked != "ok"


def test_devices_are_the_harmless_ones(in_root):
    def use():
        with open("/dev/null", "wb") as null, open("/dev/zero", "rb") as zero, open("/dev/urandom", "rb") as random:
            null.write(b"x")
            return [zero.read(2) == b"\0\0", len(random.read(3)), sorted(os.listdir("/dev"))]

    assert in_root(use) == [
        True,
        3,
        ["fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"],
    ]


def test_the_interpreter_starts_with_its_packages(in_root, tmp_path):
    def start():
        code = "import numpy, sys; sys.stdout.write(str(numpy.arange(3).sum()))"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout

    assert in_root(start) == "3"


def test_programs_see_their_own_processes_only(in_root):
    def look():
        return [name for name in os.listdir("/proc") if name.isdigit()] == [str(os.getpid())] == ["1"]

    assert in_root(look) is True


def test_extra_paths_are_shown_read_only(in_root, tmp_path):
    (tmp_path / "data").write_text("shown")

    def look():
        return [
            (tmp_path / "data").read_text(),
            outcome(lambda: (tmp_path / "data").write_text("x")),
            os.path.exists(tmp_path.parent.parent / "x"),
        ]

    assert in_root(look, extra_paths=[str(tmp_path)]) == ["shown", "Read-only file system", False]


def test_scratch_is_bounded_and_its_own(in_root):
    if sys.prefix.startswith("/tmp/"):
        pytest.skip(
            "the interpreter lies under /tmp, which is then a folder of the root and no link into the scratch folder"
        )

    def fill():
        root.mount_scratch(root.SCRATCH, bytes=1 << 20, inodes=50)
        root.make_folders(root.SCRATCH)
        os.chdir(f"{root.SCRATCH}/work")
        with open("/tmp/shared", "w") as file:
            file.write("x")
        big = os.open("big", os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(big, bytes(2 << 20))  # as much as fits
        full = outcome(lambda: os.write(big, b"x"))
        size = os.stat("big").st_size
        os.unlink("big")
        num_files = 0
        while outcome(lambda name=str(num_files): os.mkdir(name)) == "ok":
            num_files += 1
        return [size, num_files, os.listdir(f"{root.SCRATCH}/tmp"), os.stat("../work").st_mode & 0o777, full]

    size, num_files, shared, mode, full = in_root(fill)
    assert full == "No space left on device"
    assert size <= 1 << 20
    assert 45 <= num_files <= 50
    assert shared == ["shared"]  # /tmp is a link into the scratch folder
    assert mode == 0o700


def test_two_cells_do_not_share_scratch_or_processes(in_root, in_child):
    uid, gid = OWN
    flags = ISOLATED | (syscalls.CLONE_NEWUSER if uid else 0)

    def cell(name):
        def attempt():
            if uid:
                syscalls.enter_user_namespace(uid, gid)
            root.mount_scratch(root.SCRATCH, bytes=1 << 20, inodes=50)
            root.make_folders(root.SCRATCH)
            root.mount_proc()
            before = os.listdir(f"{root.SCRATCH}/work")
            with open(os.path.join(root.SCRATCH, "work", name), "w") as file:
                file.write("x")
            return [before, sorted(pid for pid in os.listdir("/proc") if pid.isdigit())]

        return in_child(attempt, flags=flags)

    assert in_root(lambda: [cell("a"), cell("b"), os.listdir(root.SCRATCH)]) == [[[], ["1"]], [[], ["1"]], []]


def test_paths_hold_no_path_below_another():
    paths = root.interpreter_paths()
    assert paths == sorted(paths)
    assert all(os.path.exists(path) for path in paths)
    folders = [path for path in paths if not os.path.islink(path)]
    assert not any(a != b and b.startswith(a + "/") for a in folders for b in folders)
    assert any(sys.prefix == path or sys.prefix.startswith(path + "/") for path in paths)


def test_an_unreadable_interpreter_is_named(in_child, as_root, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o700)
    (locked / "python").mkdir()

    def attempt():
        syscalls.set_identity(65534, 65534)
        pid = syscalls.clone_process(ISOLATED | syscalls.CLONE_NEWUSER)
        if pid:
            os.waitpid(pid, 0)
            os._exit(0)
        syscalls.enter_user_namespace(65534, 65534)
        sys.prefix = sys.base_prefix = sys.exec_prefix = sys.base_exec_prefix = "/usr"
        root.build_root(extra_paths=[str(locked / "python")])

    answer = in_child(attempt)
    assert answer.startswith("SandboxError")
    assert "cannot read it" in answer
    assert str(locked) in answer or "/root" in answer


def test_without_a_mount_namespace_privilege_it_says_which_step(in_child, as_root):
    def attempt():
        syscalls.drop_privileges()
        root.build_root()

    assert in_child(attempt).startswith(
        "SandboxError: could not build the sandbox's root file system: [Errno 1] mount"
    )
