import os
import signal
import socket

import pytest

from turnwise_sandbox.kernel import landlock, syscalls

ABI = landlock.landlock_abi()
needs_landlock = pytest.mark.skipif(ABI == 0, reason="this kernel has no Landlock")


def restrict(**paths):
    syscalls.drop_privileges()
    landlock.restrict_self(landlock.build_ruleset(abi=ABI, **paths))


def test_access_bits_grow_with_the_version():
    # 13 file bits in ABI 1; REFER is bit 13 (2), TRUNCATE bit 14 (3), IOCTL_DEV bit 15 (5); two TCP bits from 4, two
    # scopes from 6.
    assert landlock.handled_access(1) == (0x1FFF, 0, 0)
    assert landlock.handled_access(2) == (0x3FFF, 0, 0)
    assert landlock.handled_access(3) == (0x7FFF, 0, 0)
    assert landlock.handled_access(4) == (0x7FFF, 3, 0)
    assert landlock.handled_access(5) == (0xFFFF, 3, 0)
    assert landlock.handled_access(6) == (0xFFFF, 3, 3)
    assert landlock.handled_access(9) == (0xFFFF, 3, 3)  # of a newer kernel only the restrictions of version 6 are used


def test_no_landlock_is_said():
    with pytest.raises(ValueError, match="ABI 0"):
        landlock.build_ruleset(read=["/"], read_write=[], abi=0)


@needs_landlock
@pytest.mark.parametrize("abi", range(1, ABI + 1))
def test_every_older_version_builds_and_holds(in_child, tmp_path, abi):
    (tmp_path / "seen").mkdir()
    (tmp_path / "secret").write_text("x")

    def attempt():
        syscalls.drop_privileges()
        landlock.restrict_self(landlock.build_ruleset(read=[str(tmp_path / "seen")], read_write=None, abi=abi))
        os.listdir(tmp_path / "seen")
        (tmp_path / "secret").read_text()

    assert in_child(attempt) == "EACCES"


@needs_landlock
def test_files_are_read_written_and_refused(in_child, tmp_path):
    for name in ("read", "write", "other"):
        (tmp_path / name).mkdir(mode=0o777)
        (tmp_path / name / "file").write_text("x")

    def outcomes():
        found: list[str | None] = []
        for attempt in (
            lambda: (tmp_path / "read" / "file").read_text(),
            lambda: (tmp_path / "read" / "new").write_text("x"),
            lambda: (tmp_path / "read" / "file").write_text("x"),
            lambda: (tmp_path / "write" / "new").write_text("x"),
            lambda: os.rename(tmp_path / "write" / "new", tmp_path / "write" / "moved"),
            lambda: os.mkfifo(tmp_path / "write" / f"fifo{os.getpid()}"),
            lambda: (tmp_path / "other" / "file").read_text(),
            lambda: os.listdir(tmp_path / "other"),
            lambda: os.link(tmp_path / "other" / "file", tmp_path / "write" / f"link{os.getpid()}"),
            lambda: os.close(os.open("/dev/null", os.O_RDWR)),
        ):
            try:
                attempt()
                found.append("ok")
            except PermissionError:
                found.append("EACCES")
            except OSError as error:
                found.append(error.strerror)
        return found

    def restricted():
        restrict(read=[str(tmp_path / "read")], read_write=[str(tmp_path / "write"), "/dev/null"])
        return outcomes()

    stopped = in_child(restricted)
    assert stopped == [
        "ok",
        "EACCES",
        "EACCES",
        "ok",
        "ok",
        "ok",
        "EACCES",
        "EACCES",
        "Invalid cross-device link",
        "ok",
    ]
    assert in_child(outcomes) == ["ok"] * 10


@needs_landlock
def test_a_rule_covers_what_is_mounted_below_it_later(in_child, as_root, tmp_path):
    parent = tmp_path / "parent"
    (parent / "mount").mkdir(parents=True)

    def attempt():
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        ruleset = landlock.build_ruleset(read=[], read_write=[str(parent)], abi=ABI)
        syscalls.mount("x", str(parent / "mount"), "tmpfs")
        syscalls.drop_privileges()
        landlock.restrict_self(ruleset)
        (parent / "mount" / "file").write_text("x")
        return "written"

    assert in_child(attempt, flags=syscalls.CLONE_NEWNS) == "written"


@needs_landlock
def test_mounting_is_over(in_child, as_root):
    def attempt():
        syscalls.mount("x", "/mnt", "tmpfs")

    def restricted():
        syscalls.set_no_new_privileges()
        landlock.restrict_self(landlock.build_ruleset(read=["/"], read_write=[], abi=ABI))
        attempt()

    def unrestricted():
        syscalls.mount(None, "/", None, 0x44000)
        attempt()

    assert in_child(unrestricted, flags=syscalls.CLONE_NEWNS) is None
    assert in_child(restricted, flags=syscalls.CLONE_NEWNS) == "EPERM"


@pytest.mark.skipif(ABI < 4, reason="Landlock knows TCP from ABI 4 on")
def test_tcp_is_denied_unless_asked_for(in_child):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def connect(network):
            restrict(read=["/"], read_write=[], network=network)
            socket.create_connection(address, timeout=5).close()

        assert in_child(lambda: connect("none")) == "EACCES"
        assert in_child(lambda: connect("loopback")) is None


@pytest.mark.skipif(ABI < 6, reason="Landlock scopes signals and abstract sockets from ABI 6 on")
def test_signals_and_abstract_sockets_stay_inside(in_child):
    parent = os.getpid()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0turnwise-test-{parent}")
        server.listen()

        def abstract():
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"\0turnwise-test-{parent}")

        def restricted(attempt):
            restrict(read=None, read_write=None, network="loopback")
            attempt()

        assert in_child(lambda: os.kill(parent, 0)) is None
        assert in_child(abstract) is None
        assert in_child(lambda: restricted(lambda: os.kill(parent, 0))) == "EPERM"
        assert in_child(lambda: restricted(abstract)) == "EPERM"
        # A ruleset with scopes only does not restrict files.
        assert in_child(lambda: restricted(lambda: os.listdir("/"))) is None


@pytest.mark.skipif(ABI < 6, reason="Landlock scopes signals from ABI 6 on")
def test_the_outer_process_may_signal_the_inner_but_not_the_reverse(in_child):
    def attempt():
        restrict(read=None, read_write=None, network="loopback")  # the cell
        cell = os.getpid()
        pid, pidfd = syscalls.clone_process(0, pidfd=True)
        if pid == 0:
            landlock.restrict_self(landlock.build_signal_scope(abi=ABI))  # the program adds a scope of its own
            try:
                os.kill(cell, signal.SIGKILL)
            except PermissionError:
                signal.pause()
            os._exit(1)
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert in_child(attempt) == -15


@needs_landlock
def test_an_unknown_network_is_refused():
    # Another truthy value must not allow TCP.
    with pytest.raises(ValueError, match="network True"):
        landlock.build_ruleset(read=["/"], read_write=[], abi=ABI, network=True)  # type: ignore[arg-type]


@needs_landlock
def test_a_missing_path_is_named():
    with pytest.raises(FileNotFoundError, match="/no/such/folder"):
        landlock.build_ruleset(read=["/no/such/folder"], read_write=[], abi=ABI)


def test_signal_scopes_need_a_new_kernel():
    with pytest.raises(ValueError, match="ABI 6"):
        landlock.build_signal_scope(abi=5)
