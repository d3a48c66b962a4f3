"""Live sessions: what they keep after interrupts, forks and bad input, and how they end."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from processes import descendants

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.session import LocalSession, used_since
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Limits, Program

LIMITS = Limits(wall_s=10.0, memory_bytes=256 << 20, disk_bytes=4 << 20, num_files=256, num_pids=32)
LATE_S = 10.0


@pytest.fixture
def with_session(sandbox, run):
    """Run an async function with a live session that is closed afterwards."""

    def with_it(work, language="python", limits=LIMITS, **options):
        async def go():
            session = await sandbox.open(language, limits=limits, **options)
            try:
                return await work(session)
            finally:
                await session.close()

        return run(go())

    return with_it


# ------------------------------------------------------------------------------------------------ Python


def test_variables_values_and_errors(with_session):
    async def work(session):
        assert (await session.run("x = 20\ndef f(): return x * 2 + y")).value is None
        assert (await session.run("y = 2\nf()")).value == "42"
        assert (await session.run("_ + 1")).value == "43"
        failed = await session.run("print('before')\nz")
        assert (failed.stdout, failed.exit_code) == (b"before\n", 1)
        assert failed.error == "NameError: name 'z' is not defined"
        assert b'File "<cell 4>", line 2' in failed.stderr
        assert b"z" in failed.stderr
        assert (await session.run("x")).value == "20"
        assert "SyntaxError" in ((await session.run("def (")).error or "")
        assert (await session.run("'\udc80'.isascii()")).exit_code in (0, 1)
        assert (await session.run("f()")).value == "42"

    with_session(work)


BLOCKED = {
    "tight loop": "while True: pass",
    "sleep": "import time\ntime.sleep(60)",
    "lock": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "read": "import os\nr, w = os.pipe()\nos.read(r, 1)",
    "child": "import subprocess\nsubprocess.run(['sleep', '60'])",
    "join": (
        "import threading, time\nt = threading.Thread(target=time.sleep, args=(60,), daemon=True)\nt.start()\nt.join()"
    ),
}


@pytest.mark.parametrize("name", BLOCKED)
def test_an_interrupt_keeps_the_state(with_session, name):
    async def work(session):
        await session.run("x = [1]")
        started = time.monotonic()
        stopped = await session.run("x.append(2)\n" + BLOCKED[name], timeout_s=0.2)
        assert time.monotonic() - started < 0.2 + LATE_S
        assert (stopped.limit, stopped.exit_code) == ("wall", 1)
        assert stopped.error == "KeyboardInterrupt"
        after = await session.run("x")
        assert (after.value, after.error, after.limit) == ("[1, 2]", None, None)

    with_session(work)


@pytest.mark.parametrize(
    "code",
    [
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "import time\nwhile True:\n  try: time.sleep(1)\n  except BaseException: pass",
        "import os\nos.kill(os.getpid(), 19)",
        "sum(range(10**12))",  # one long call that never checks for signals
    ],
)
def test_code_that_ignores_the_interrupt_ends_the_session(with_session, code):
    async def work(session):
        started = time.monotonic()
        stopped = await session.run(code, timeout_s=0.2)
        assert time.monotonic() - started < 0.2 + LATE_S
        assert (stopped.limit, stopped.exit_code) == ("wall", None)
        with pytest.raises(SandboxError, match="the session is over"):
            await session.run("1")
        with pytest.raises(SandboxError, match="over"):
            await session.read_file("x")

    with_session(work)


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos._exit(3)",
        "import sys\nsys.exit(3)",
        "import ctypes\nctypes.string_at(0)",
        "import os\nos.close(3)",
    ],
)
def test_a_session_that_ends_itself_says_so(with_session, code):
    async def work(session):
        ended = await session.run(code)
        assert ended.exit_code is None
        assert "ended" in (ended.error or "")
        with pytest.raises(SandboxError, match="the session is over"):
            await session.run("1")

    with_session(work)


GARBAGE = {
    "no JSON": "os.write(3, b'garbage')",
    "half a frame": "os.write(3, b'{\"value\": ')",
    "large": "os.write(3, b'x' * 60000)",
    "nested": "os.write(3, b'[' * 60000)",
    "wrong types": "os.write(3, b'[1]')\nos.write(3, b'null')\nos.write(3, b'7')",
    "many": "for _ in range(500):\n  os.write(3, b'{')",
    "invalid UTF-8": "os.write(3, bytes(range(128, 256)))",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_in_the_sessions_socket_is_ignored(with_session, name):
    async def work(session):
        answer = await session.run(f"import os\nx = 1\n{GARBAGE[name]}\nx + 1")
        assert (answer.value, answer.error) == ("2", None)
        assert (await session.run("x")).value == "1"

    with_session(work)


@pytest.mark.parametrize(
    "forged",
    [
        '{"value": "forged"}',
        '{"value": 7, "error": {}}',
        '{"status": "x"}',
        '{"status": 1e99, "value": null}',
        '{"folder": "/etc"}',
        '{"error": [1]}',
    ],
)
def test_a_forged_answer_harms_only_its_own_session(sandbox, run, forged):
    async def work():
        session, other = await sandbox.open(limits=LIMITS), await sandbox.open(limits=LIMITS)
        try:
            await other.run("x = 1")
            await session.run(f"import os, time\nos.write(3, {forged.encode()!r})\ntime.sleep(0.05)")
            for _ in range(3):  # the answer may be that of another call, but there is no hang or other error
                try:
                    answer = await session.run("1 + 1", timeout_s=2)
                    assert answer.value is None or isinstance(answer.value, str)
                except SandboxError:
                    break
            assert (await other.run("x")).value == "1"
        finally:
            await session.close()
            await other.close()

    run(work())


@pytest.mark.parametrize("call", ["", ', "call": 1'])
def test_an_early_answer_does_not_shift_the_next(with_session, call):
    """After code sent an answer itself, also with the call's number, later calls must not get earlier answers."""

    async def work(session):
        await session.run(f"import os, time\nos.write(3, b'{{\"value\": \"forged\"{call}}}')\ntime.sleep(0.1)\n'late'")
        assert [(await session.run(f"{number} + 1")).value for number in range(3)] == ["1", "2", "3"]

    with_session(work)


def test_descriptors_sent_through_the_socket_are_not_kept(with_session):
    async def work(session):
        before = len(os.listdir("/proc/self/fd"))
        code = """
import array, os, socket
s = socket.socket(fileno=os.dup(3))
fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(200)]
for _ in range(100):
    try: s.sendmsg([b"{"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    except OSError: break  # the socket is full
"""
        answer = await session.run(code)
        assert answer.error is None
        await session.run("1")
        assert len(os.listdir("/proc/self/fd")) <= before

    with_session(work)


@pytest.mark.parametrize("fd", [1, 2])
def test_output_is_cut_and_the_state_is_kept(with_session, fd):
    async def work(session):
        stopped = await session.run(f"import os\nx = 1\nwhile True: os.write({fd}, b'x' * 65536)")
        assert stopped.limit == "output"
        assert len(stopped.stdout + stopped.stderr) >= 1 << 20
        assert (stopped.stdout_dropped if fd == 1 else stopped.stderr_dropped) > 0
        assert (await session.run("x")).value == "1"
        assert (await session.run("print('x')")).stdout == b"x\n"  # output left in the pipe is dropped

    with_session(work)


def test_output_of_the_call_before_does_not_stop_the_next(with_session):
    # The interpreter answers, and a process that it started then prints too much; the supervisor reads both at once.
    late = "import subprocess\np = subprocess.Popen('sleep 0.05; head -c 5000 /dev/zero', shell=True)"

    async def work(session):
        asyncio.get_running_loop().call_soon(time.sleep, 0.4)
        await session.run(late)
        after = await session.run("import time\ntime.sleep(0.2)\np.wait()")
        assert (after.limit, after.value, after.error) == (None, "0", None)

    with_session(work, limits=replace(LIMITS, output_bytes=1000))


def test_a_background_thread_and_process_outlive_the_call_but_not_the_session(with_session, sandbox):
    async def work(session):
        await session.run(
            "import threading, time\nn = 0\ndef count():\n  global n\n  while True: n += 1; time.sleep(0.001)"
        )
        await session.run("threading.Thread(target=count, daemon=True).start()")
        async with asyncio.timeout(30):
            while int((await session.run("n")).value or 0) <= 3:
                pass

    with_session(work)


def test_one_call_at_a_time_and_cancelling_ends_it(with_session):
    async def work(session):
        task = asyncio.create_task(session.run("import time\ntime.sleep(30)"))
        await asyncio.sleep(0.05)
        with pytest.raises(SandboxError, match="running another command"):
            await session.run("1")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(SandboxError, match="cancelled"):
            await session.run("1")

    with_session(work)


def test_memory_of_a_session_is_bounded(with_session):
    async def work(session):
        full = await session.run("x = []\nwhile True: x.append(bytearray(1 << 20))")
        assert full.limit == "memory"

    with_session(work)


# ------------------------------------------------------------------------------------------------ files and branches


def test_files_go_in_and_out(with_session):
    async def work(session):
        await session.write_file("a/b.txt", b"\x00\xff")
        assert (await session.run("open('a/b.txt', 'rb').read()")).value == repr(b"\x00\xff")
        await session.run(
            "import os\nopen('c', 'w').write('x' * 10)\nos.symlink('/etc/hosts', "
            "'link')\nos.mkfifo('pipe')\nos.symlink('/etc', 'd')"
        )
        assert await session.read_file("c") == b"x" * 10
        for path in ("link", "pipe", "missing", "a", "d/hosts"):
            with pytest.raises(SandboxError, match=path):
                await session.read_file(path)
        for path in ("../x", "/etc/x", "", "a/../../x"):
            with pytest.raises(SandboxError, match="is not a path inside"):
                await session.write_file(path, b"x")
        for path in ("link", "d/new", "pipe", "a"):
            with pytest.raises(SandboxError, match=path):
                await session.write_file(path, b"x")
        with pytest.raises(SandboxError, match="at most 5"):
            await session.read_file("c", max_bytes=5)
        assert (await session.run("1 + 1")).value == "2"

    with_session(work)


def test_the_quota_holds_for_files_from_outside_too(with_session, full_level):
    async def work(session):
        with pytest.raises(SandboxError, match="could not write"):
            await session.write_file("large", bytes(8 << 20))
        full = await session.run("import os\nos.unlink('large')\nopen('f', 'wb').write(bytes(8 << 20))")
        assert full.limit == "disk"
        await session.run("import os\nos.unlink('f')")
        await session.write_file("small", b"x")
        assert await session.read_file("small") == b"x"

    with_session(work)


def test_branches_go_on_independently(with_session):
    async def work(session):
        await session.run("x = [1]\nopen('f', 'w').write('root')")
        branches = [await session.fork() for _ in range(3)]
        for number, branch in enumerate(branches):
            await branch.run(f"x.append({number})\nopen('f', 'w').write('{number}')")
            await branch.write_file("own", str(number).encode())
        await session.run("x.append('root')")
        assert (await session.run("x, open('f').read()")).value == "([1, 'root'], 'root')"
        for number, branch in enumerate(branches):
            assert (await branch.run("x, open('f').read()")).value == f"([1, {number}], '{number}')"
            assert await branch.read_file("own") == str(number).encode()
        twig = await branches[0].fork()
        await branches[0].close()
        assert (await twig.run("x")).value == "[1, 0]"
        await session.close()
        assert (await twig.run("import os\nos.path.exists('own')")).value == "True"
        with pytest.raises(SandboxError, match="over"):
            await session.run("1")
        for branch in (*branches[1:], twig):
            await branch.close()

    with_session(work)


def test_a_session_with_threads_can_be_forked(with_session):
    async def work(session):
        await session.run("import threading, time\ndef nap():\n  while True: time.sleep(0.0002)")
        await session.run(
            "threads = [threading.Thread(target=nap, daemon=True) for _ in range(8)]\nfor t in threads: t.start()"
        )
        for _ in range(
            60
        ):  # each meets a thread that wants the interpreter's lock, and perhaps in the moment of the fork
            branch = await asyncio.wait_for(session.fork(), 10)
            # The copy has none of the original's threads, and waits for none.
            assert (await branch.run("[t.join() for t in threads]\nthreading.active_count()", timeout_s=5)).value == "1"
            await branch.close()
        assert (await session.run("threading.active_count()")).value == "9"

    with_session(work)


FILL_UP = """
import os, subprocess
open('f', 'w').close()
others = []
try:
    while True: others.append(subprocess.Popen(['sleep', '60']))
except OSError:
    pass
for other in others[:{free}]: other.kill(), other.wait()
"""


@pytest.mark.parametrize(
    ("free", "forked"), [(0, False), (1, False), (2, True)]
)  # the intermediate process and the copy
def test_a_session_that_may_have_no_more_processes_cannot_be_forked_and_goes_on(with_session, free, forked):
    async def work(session):
        assert (await session.run(FILL_UP.format(free=free))).error is None
        if forked:
            branch = await session.fork()
            assert (await branch.run("os.listdir()")).value == "['f']"
            await branch.close()
        else:
            with pytest.raises(SandboxError, match=r"could not be forked: .*temporarily unavailable"):
                await asyncio.wait_for(session.fork(), 10)
            assert (await session.run("sorted(os.listdir('..'))")).value == "['tmp', 'work']"
        assert (await session.run("os.listdir()")).value == "['f']"

    with_session(work)


def test_a_session_whose_folder_has_no_room_twice_cannot_be_forked_and_goes_on(with_session, full_level):
    async def work(session):
        await session.run("import os\nopen('f', 'wb').write(b'x' * 700_000)")
        with pytest.raises(SandboxError, match=r"could not be forked: .*No space left"):
            await session.fork()
        assert (
            await session.run("len(open('f', 'rb').read()), sorted(os.listdir('..'))")
        ).value == "(700000, ['tmp', 'work'])"
        await session.run("os.truncate('f', 1000)")
        branch = await session.fork()
        assert (await branch.run("len(open('f', 'rb').read())")).value == "1000"
        await branch.close()

    with_session(work, limits=replace(LIMITS, disk_bytes=1 << 20))


def test_what_has_the_name_of_a_copy_is_not_removed(with_session):
    async def work(session):
        await session.run("import os\nos.mkdir('../work.1')\nopen('../work.1/own', 'w').close()")
        with pytest.raises(SandboxError, match=r"could not be forked: .*File exists"):
            await session.fork()
        assert (await session.run("os.listdir('../work.1')")).value == "['own']"
        await (await session.fork()).close()

    with_session(work)


def test_a_fork_that_fails_for_many_files_says_so_at_once(with_session, full_level):
    async def work(session):
        await session.run("for i in range(600): open(f'{i:0>200}', 'wb').write(b'x' * 4096)")
        with pytest.raises(SandboxError, match=r"could not be forked: .*No space left"):
            await asyncio.wait_for(session.fork(), 10)
        assert (await session.run("1")).value == "1"

    with_session(work, limits=replace(LIMITS, num_files=2000))


def test_a_session_that_ignores_the_end_of_its_children_can_be_forked(with_session):
    async def work(session):
        await session.run("import signal\nx = 1\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)")
        branch = await session.fork()
        assert (await branch.run("x")).value == (await session.run("x")).value == "1"
        await branch.close()

    with_session(work)


def test_a_branch_that_dies_leaves_the_others_alive(with_session):
    async def work(session):
        await session.run("x = 1")
        branch = await session.fork()
        assert (await branch.run("import os\nos._exit(1)")).exit_code is None
        assert (await session.run("x")).value == "1"
        await branch.close()
        other = await session.fork()
        stopped = await other.run("import signal\nsignal.signal(2, signal.SIG_IGN)\nwhile True: pass", timeout_s=0.2)
        assert stopped.limit == "wall"
        assert (await session.run("x")).value == "1"
        await other.close()

    with_session(work)


def test_a_branch_draws_other_numbers_only_where_it_goes_on_differently(with_session):
    async def work(session):
        await session.run("import random\nrandom.seed(1)")
        branch = await session.fork()
        assert (await session.run("random.random()")).value == (
            await branch.run("random.random()")
        ).value  # a copy is a copy
        await branch.close()

    with_session(work)


def test_twenty_sessions_at_once(sandbox, run):
    async def work():
        sessions = await asyncio.gather(*(sandbox.open(limits=LIMITS) for _ in range(20)))
        try:
            await asyncio.gather(
                *(session.run(f"x = {number}\nopen('f', 'w').write(str(x))") for number, session in enumerate(sessions))
            )
            for _ in range(3):
                answers = await asyncio.gather(*(session.run("x += 100\nx, open('f').read()") for session in sessions))
            assert [answer.value for answer in answers] == [f"({number + 300}, '{number}')" for number in range(20)]
        finally:
            for session in sessions:
                await session.close()

    run(work())


def test_too_many_sessions_are_refused(run):
    from turnwise_sandbox.supervisor import LocalSandbox

    async def work():
        async with LocalSandbox(num_slots=1, max_sessions=1) as small:
            session = await small.open()
            with pytest.raises(SandboxError, match="raise max_sessions"):
                await small.open()
            await session.close()
            await (await small.open()).close()

    run(work())


# ------------------------------------------------------------------------------------------------ bash


def test_a_shell_keeps_its_state(with_session):
    async def work(shell):
        await shell.run('mkdir -p d && cd d; x=7; f() { echo "f $1 $x"; }; export Y=8; set -o pipefail')
        answer = await shell.run("pwd | grep -o \"[^/]*$\"; f a; bash -c 'echo $Y'; echo err >&2")
        assert answer.stdout == b"d\nf a 7\n8\n"
        assert answer.stderr == b"err\n"
        assert (await shell.run("false")).exit_code == 1
        assert (await shell.run("(exit 42)")).exit_code == 42
        assert (await shell.run("echo a | false | cat")).exit_code == 1
        assert (await shell.run("kill -9 $BASHPID & wait $!")).exit_code == 137
        await shell.run("sleep 30 &")
        assert (await shell.run("jobs | grep -c sleep")).stdout == b"1\n"
        assert (await shell.run("cat")).stdout == b""  # commands cannot read the shell's input
        assert (await shell.run('read -r z; echo "[$z]"')).stdout == b"[]\n"

    with_session(work, "bash")


@pytest.mark.parametrize(
    "code",
    [
        "if true; then",
        "echo 'open",
        "done",
        "f( {",
        "\\",
        "cat <<X\ntext",
        "$((1 +))",
        "}",
        "exec 3>&-",
        "set -e; false",
    ],
)
def test_a_shell_survives_what_is_no_shell_code(with_session, code):
    async def work(shell):
        await shell.run("x=1")
        started = time.monotonic()
        try:
            await shell.run(code, timeout_s=2)
            answer = await shell.run("echo $x", timeout_s=2)
            assert answer.stdout == b"1\n"
        except SandboxError as error:
            assert "over" in str(error)  # noqa: PT017 - it may end, it may not hang
        assert time.monotonic() - started < 4 + LATE_S

    with_session(work, "bash")


@pytest.mark.parametrize(
    "code",
    [
        "while :; do :; done",
        "sleep 60",
        "sleep 60 | cat",
        "f() { while true; do sleep 1; done; }; f",
        "python3 -c 'while True: pass'",
        "wait_for() { sleep 60; }; wait_for",
    ],
)
def test_an_interrupt_keeps_the_shell(with_session, code):
    async def work(shell):
        await shell.run("x=1; cd /")
        started = time.monotonic()
        stopped = await shell.run(code, timeout_s=0.3)
        assert time.monotonic() - started < 0.3 + LATE_S
        assert stopped.limit == "wall"
        answer = await shell.run("echo $x $PWD")
        assert (answer.stdout, answer.limit) == (b"1 /\n", None)

    with_session(work, "bash")


def test_processor_time_since_an_interrupt_by_hand():
    # Process 1 ended, so its 5 s do not count; process 2 used 0.02 s, and 3 began and used 0.01 s.
    assert used_since({1: 5.0, 2: 0.1}, {2: 0.12, 3: 0.01}) == pytest.approx(0.03)


HOGS = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
if os.geteuid() == 0: os.nice(-20)
for _ in range(20):
    if os.fork() == 0:
        os.read(0, 1)
        end = time.monotonic() + 0.5
        while time.monotonic() < end: pass
        os._exit(0)
print("ready", flush=True)
for _ in range(20): os.wait()
"""


async def wait_for_interrupt(pids):
    """Wait until SIGINT is pending for every one of these stopped processes."""
    async with asyncio.timeout(LATE_S * 6):
        for pid in pids:
            while True:
                with open(f"/proc/{pid}/status") as file:
                    masks = [int(line.split()[1], 16) for line in file if line.startswith(("SigPnd", "ShdPnd"))]
                if any(mask & 1 << signal.SIGINT - 1 for mask in masks):
                    break
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("language", "code", "read"), [("python", "while True: pass", "x"), ("bash", "while :; do :; done", "echo $x")]
)
def test_an_interrupt_that_comes_before_the_code_begins_stops_it(sandbox, run, monkeypatch, language, code, read):
    """As on a busy machine: the time is over before the session's process has read what it is to run."""
    monkeypatch.setattr("turnwise_sandbox.session.INTERRUPT_GRACE_S", 6 * LATE_S)

    async def work():
        session = await sandbox.open(language, limits=LIMITS)
        await session.run("x=1")
        [live] = descendants(session.cell._pid())
        os.kill(live, signal.SIGSTOP)
        call = asyncio.create_task(session.run(code, timeout_s=0.05))
        await wait_for_interrupt([live])
        os.kill(live, signal.SIGCONT)
        assert (await call).limit == "wall"
        for _ in range(2):  # and only that call
            kept = await session.run(read)
            assert (kept.limit, kept.value or kept.stdout.decode().strip()) == (None, "1")
        await session.close()

    run(work())


@pytest.mark.parametrize(
    ("language", "code", "read"), [("python", "while True: pass", "x"), ("bash", "while :; do :; done", "echo $x")]
)
def test_code_that_gets_no_processor_is_given_time_to_stop(sandbox, run, monkeypatch, language, code, read):
    """As on a machine where training uses every processor: code must run before it can react to an interrupt."""
    monkeypatch.setattr("turnwise_sandbox.session.MAX_GRACE_S", 300.0)  # so that the hogs need not be all that runs
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        pytest.skip("takes two processors: one for this process, one to be kept from the session")

    async def work(hogs):
        before = descendants(os.getpid())
        session = await sandbox.open(language, limits=LIMITS)
        await session.run("x=1")
        for pid in descendants(os.getpid()) - before:
            os.sched_setaffinity(pid, {first})
            os.setpriority(os.PRIO_PROCESS, pid, 19)
        call = asyncio.create_task(session.run(code, timeout_s=0.2))
        await asyncio.sleep(0.1)
        hogs.stdin.close()
        stopped = await call
        assert stopped.limit == "wall"
        kept = await session.run(read)
        assert (kept.value or kept.stdout.decode().strip()) == "1"
        await session.close()

    with subprocess.Popen(
        [sys.executable, "-c", HOGS, str(first)], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as hogs:
        assert hogs.stdout is not None
        assert hogs.stdout.readline() == b"ready\n"
        os.sched_setaffinity(0, set(others))
        try:
            run(work(hogs))
        finally:
            os.sched_setaffinity(0, {first, *others})


@pytest.fixture
def ignoring():
    """A new sandbox whose processes inherit ignored signals: SIGINT in the background of a script, SIGHUP under
    `nohup`."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    yield LocalSandbox(num_slots=1)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_interrupt_reaches_code_although_the_supervisor_ignores_it(ignoring, run):
    async def work():
        async with ignoring as sandbox:
            shell = await sandbox.open("bash")
            assert (await shell.run("sleep 60", timeout_s=0.3)).limit == "wall"
            assert (await shell.run("python3 -c 'while True: pass'", timeout_s=0.3)).limit == "wall"
            assert (await shell.run("echo 1")).stdout == b"1\n"
            # A program that the shell starts ignores no signal, as if started from a terminal.
            code = "import signal\nprint(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
            assert (await sandbox.run(Program(code=code))).stdout == b"True\n"

    run(work())


def test_a_shell_starts_with_the_signals_of_any_other_shell(ignoring, run):
    """Python ignores SIGPIPE. If the shell inherited that, `yes` would print "Broken pipe" instead of ending
    silently."""

    async def work():
        async with ignoring as sandbox:
            shell = await sandbox.open("bash")
            answer = await shell.run("yes | head -1; echo ${PIPESTATUS[@]}")
            assert (answer.stdout, answer.stderr) == (b"y\n141 0\n", b"")  # 128 + SIGPIPE
            ignored = await shell.run("(exec grep SigIgn /proc/self/status)")
            assert (
                int(ignored.stdout.split()[1], 16) & 0x7FFF_FFFF == 0
            )  # signals 1 to 31; the C library keeps 32 and 33 for itself

    run(work())


def test_a_shell_that_dies_while_it_starts_is_an_error(sandbox, run, monkeypatch):
    shell = LocalSession._shell
    monkeypatch.setattr(LocalSession, "_shell", lambda self, command: shell(self, f"kill -9 $$; {command}"))

    async def work():
        with pytest.raises(SandboxError, match="the session did not start: the shell ended"):
            await sandbox.open("bash")

    run(work())


@pytest.mark.parametrize("code", ["exit 3", "exec true", "kill -9 $$", "trap '' INT; while :; do :; done"])
def test_a_shell_that_ends_says_so(with_session, code):
    async def work(shell):
        ended = await shell.run(code, timeout_s=0.5)
        assert ended.exit_code is None
        with pytest.raises(SandboxError, match="over"):
            await shell.run("echo 1")

    with_session(work, "bash")


def test_a_shell_prints_a_lot(with_session):
    async def work(shell):
        stopped = await shell.run("yes | head -c 20000000")
        assert stopped.limit == "output"
        assert (await shell.run("echo ok")).stdout == b"ok\n"

    with_session(work, "bash", replace(LIMITS, wall_s=20.0))


def test_a_shell_knows_the_status_before_and_traces_nothing_of_its_own(with_session):
    async def work(session):
        await session.run("(exit 5)")
        assert (await session.run("echo $?")).stdout == b"5\n"
        assert (await session.run("echo $?")).stdout == b"0\n"
        traced = [await session.run(command) for command in ("set -x", "echo hi", "set +x", "echo y")]
        assert [b"turnwise" in each.stderr or b"printf" in each.stderr for each in traced] == [False] * 4
        assert b"echo hi" in traced[1].stderr
        assert (traced[3].stdout, traced[3].stderr) == (b"y\n", b"")

    with_session(work, language="bash")


def test_a_module_that_was_written_can_be_imported(with_session):
    async def work(session):
        await session.write_file("prices.py", b"FACTOR = 4\n")
        assert (await session.run("import prices, sys\nprices.FACTOR, sys.path.count('')")).value == "(4, 1)"

    with_session(work)


@pytest.mark.parametrize("code", ["x = (", "await f()", "for i in (1, 2):\nprint(i)", "x = '\0'"])
def test_what_is_no_python_shows_no_other_file(with_session, code):
    async def work(session):
        shown = (await session.run(code)).stderr.decode()
        assert "SyntaxError" in shown or "IndentationError" in shown
        assert "ast.py" not in shown

    with_session(work)


def test_a_file_that_cannot_be_used_says_why(with_session):
    async def work(session):
        await session.run("import os; open('shut', 'w'); os.chmod('shut', 0); os.mkdir('folder')")
        refused = {"shut": "Permission denied", "folder": "Is a directory", "/x": "use a relative one"}
        for path, said in refused.items():
            with pytest.raises(SandboxError, match=said):
                await session.write_file(path, b"")
        with pytest.raises(SandboxError, match="no such plain file that may be read"):
            await session.read_file("shut")

    with_session(work)


@pytest.mark.parametrize(("language", "code"), [("bash", "set -e; false"), ("python", "import os; os._exit(3)")])
def test_a_session_that_is_over_names_what_may_have_ended_it(with_session, language, code):
    async def work(session):
        error = (await session.run(code)).error
        assert error.startswith("the session ended: ")
        assert ("set -e" if language == "bash" else "exit()") in error

    with_session(work, language)
