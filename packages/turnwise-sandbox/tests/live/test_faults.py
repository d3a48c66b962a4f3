"""Kills every process of the sandbox at random points: nothing is left, and the next request works."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from processes import (
    by_role,
    descendants,
    describe,
    group_folders,
    open_descriptors,
    read_processes,
    temp_folders,
    wait_until,
)

from turnwise_sandbox import handles
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.handles import Zygote
from turnwise_sandbox.kernel import syscalls
from turnwise_sandbox.kernel.owner import own_tag
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.trees import Tree
from turnwise_sandbox.types import Execution, Limits, Program

GONE_S = 0.5
SLOWED_S = 2.0
"""How long half a second's work may take while other tests use the processors."""


@pytest.fixture
def reaper():
    """Makes orphans of a test's processes children of this process; returns a function that lists them."""
    syscalls.set_child_subreaper()
    before = descendants(os.getpid())
    yield lambda: descendants(os.getpid()) - before
    for pid in descendants(os.getpid()) - before:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    syscalls.set_child_subreaper(False)


OTHERS: set[int] = set()
"""Launchers of sandboxes that other tests of this process share."""


@pytest.fixture(autouse=True)
def _others() -> None:
    OTHERS.clear()
    OTHERS.update(by_role(os.getpid())["launcher"])


def own_roles() -> dict[str, list[int]]:
    """As `by_role`, of the sandboxes that the running test has opened."""
    return by_role(os.getpid(), without=OTHERS)


# ------------------------------------------------------------------------------------------------ the supervisor


def kill_supervisors(reaper, level, num_kills, seed):
    draw = random.Random(seed)
    for _ in range(num_kills):
        with subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("supervised.py")), level],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            if process.stdout.readline() != "ready\n":
                pytest.skip(f"level {level} is unavailable: {process.stderr.read().strip().splitlines()[-1]}")
            time.sleep(draw.random() * 0.15)
            started = reaper()
            process.kill()
        # Supervisor, launcher, zygote, cells, a session with its child, branch and thread, a shell with its child.
        assert len(started) > 8
        left = wait_until(lambda: not reaper(), SLOWED_S)
        assert left, describe(reaper())
        yield process.pid


@pytest.mark.parametrize("level", ["full", "process"])
def test_nothing_is_left_of_a_killed_supervisor(reaper, level, run):
    pids = list(kill_supervisors(reaper, level, 1, seed=level))

    async def start_another():
        async with LocalSandbox(num_slots=1, level=level) as sandbox:
            return await sandbox.run(Program(code="print(1)"))

    assert run(start_another()).stdout == b"1\n"
    # The next start removes groups and folders.
    for pid in pids:
        assert group_folders(pid) == []
        assert temp_folders(pid) == []


@pytest.mark.slow
@pytest.mark.parametrize("level", ["full", "process", "seccomp"])
def test_nothing_is_left_of_many_killed_supervisors(reaper, level):
    assert len(list(kill_supervisors(reaper, level, 25, seed=level))) == 25


def test_nothing_is_left_of_a_supervisor_killed_while_it_starts(reaper, run):
    draw = random.Random(3)
    pids = []
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("supervised.py")), "auto"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            time.sleep(0.2 + draw.random() * 0.6)
            process.kill()
        pids.append(process.pid)
        assert wait_until(lambda: not reaper(), SLOWED_S), describe(reaper())

    async def start_another():
        async with LocalSandbox(num_slots=1):
            pass

    run(start_another())
    for pid in pids:
        assert temp_folders(pid) == []
        assert group_folders(pid) == []


# ------------------------------------------------------------------------------------------------ the other processes


async def killing(sandbox, num_kills, seed):
    """Kill one process after the other while programs run. Each program succeeds or raises SandboxError, and the next
    always works. Returns how many were killed."""
    draw = random.Random(seed)
    num_killed = 0
    code = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(60)\ntime.sleep(0.02)\nprint(6 * 7)"
    for _ in range(num_kills):
        programs = [asyncio.create_task(sandbox.run(Program(code=code), Limits(wall_s=5))) for _ in range(3)]
        await asyncio.sleep(draw.random() * 0.04)
        async with asyncio.timeout(SLOWED_S):  # on a busy machine nothing may have started yet
            while not (roles := {role: pids for role, pids in own_roles().items() if pids}):
                await asyncio.sleep(0.005)
        role = draw.choice([role for role in ("launcher", "zygote", "cell", "cell", "program") if role in roles])
        for pid in draw.sample(roles[role], 1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                num_killed += 1
        for answer in await asyncio.gather(*programs, return_exceptions=True):
            if not isinstance(answer, SandboxError):
                assert not isinstance(answer, BaseException), repr(answer)
                assert answer.stdout == b"42\n" or answer.signal == signal.SIGKILL
        after = await sandbox.run(Program(code="print('next')"), Limits(wall_s=5))
        assert after.stdout == b"next\n"
    return num_killed


@pytest.mark.parametrize(
    ("level", "num_kills"),
    [
        ("auto", 8),
        ("process", 6),
        pytest.param("auto", 200, marks=pytest.mark.slow),
        pytest.param("process", 100, marks=pytest.mark.slow),
    ],
)
def test_any_process_may_be_killed_at_any_point(reaper, run, level, num_kills):
    groups = set(group_folders(os.getpid()))

    async def work():
        async with LocalSandbox(num_slots=2, level=level) as sandbox:
            await sandbox.run(Program(code=""))
            before = open_descriptors()
            assert await killing(sandbox, num_kills, seed=num_kills) > num_kills // 2
            assert open_descriptors() <= before + 16  # at most a second cell with its groups

    run(work())
    assert wait_until(lambda: not reaper(), SLOWED_S), describe(reaper())
    assert set(group_folders(os.getpid())) <= groups


@pytest.mark.parametrize("role", ["launcher", "zygote"])
def test_the_death_of_all_idle_cells_at_once_costs_no_request(reaper, run, role):
    """Their common ancestor is killed, and the next request comes before all of their sockets have closed."""

    async def work():
        async with LocalSandbox(num_slots=3) as sandbox:
            for _ in range(8):
                await asyncio.gather(*(sandbox.run(Program(code="import time\ntime.sleep(0.02)")) for _ in range(3)))
                for pid in own_roles()[role]:
                    os.kill(pid, signal.SIGKILL)
                after = await sandbox.run(Program(code="print('next')"), Limits(wall_s=5))
                assert after.stdout == b"next\n"

    run(work())


@pytest.mark.parametrize("role", ["launcher", "zygote", "cell"])
def test_a_session_whose_place_is_killed_says_so(reaper, run, role):
    async def work():
        async with LocalSandbox(num_slots=1) as sandbox:
            session = await sandbox.open()
            waiting = asyncio.create_task(session.run("import time\ntime.sleep(30)"))
            await asyncio.sleep(0.1)
            for pid in own_roles()[role]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            started = time.monotonic()
            ended = await waiting
            assert time.monotonic() - started < SLOWED_S
            assert ended.exit_code is None
            for attempt in (session.run("1"), session.fork(), session.read_file("x"), session.write_file("x", b"")):
                with pytest.raises(SandboxError, match="over"):
                    await attempt
            await session.close()
            reopened = await sandbox.open()
            assert (await reopened.run("1 + 1")).value == "2"

    run(work())
    assert wait_until(lambda: not reaper(), SLOWED_S), describe(reaper())


def test_a_place_that_is_killed_between_two_requests_is_replaced(reaper, run):
    async def work():
        async with LocalSandbox(num_slots=1) as sandbox:
            session = await sandbox.open()
            for role in ("cell", "zygote", "launcher"):
                await sandbox.run(Program(code=""))
                for pid in own_roles()[role]:
                    os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.05)
                assert (await sandbox.run(Program(code="print(1)"))).stdout == b"1\n"
            await session.run("1")
            with pytest.raises(SandboxError, match="over"):
                await session.run("1")

    run(work())
    assert wait_until(lambda: not reaper(), SLOWED_S), describe(reaper())


@pytest.mark.parametrize("which", [0, 1])
def test_a_pair_of_which_a_cell_is_killed_runs_again(reaper, run, which):
    async def work():
        worker = Program(code="import os\nwhile os.read(4, 1): pass")
        grader = Program(code="import os, time\nos.write(4, b'x')\ntime.sleep(1)\nprint('graded')")
        async with LocalSandbox(num_slots=2) as sandbox:
            await sandbox.level()
            pair = asyncio.create_task(sandbox.run_pair(worker, grader, Limits(wall_s=30)))
            while len(own_roles()["program"]) < 2:
                assert not pair.done()
                await asyncio.sleep(0.02)
            processes = read_processes()
            cells = sorted(processes[pid][0] for pid in own_roles()["program"])
            os.kill(cells[which], signal.SIGKILL)
            executions = await pair
            assert [execution.stdout for execution in executions] == [b"", b"graded\n"]

    run(work())
    assert wait_until(lambda: not reaper(), SLOWED_S), describe(reaper())


def test_a_pair_whose_worker_cannot_start_ends_at_once(run):
    async def work():
        worker = Program(code="", tree=Tree(layers=(Path("missing"),)))
        grader = Program(code="import os\nos.read(4, 1)")  # would wait for its deadline: nobody closes the channel
        async with LocalSandbox(num_slots=2) as sandbox:
            await sandbox.level()
            async with asyncio.timeout(30):
                with pytest.raises(SandboxError, match="missing"):
                    await sandbox.run_pair(worker, grader, Limits(wall_s=60))

    run(work())


def test_a_cell_that_comes_late_because_others_run_costs_no_program_its_cell(run, monkeypatch):
    monkeypatch.setattr(handles, "SPAWN_DEADLINE_S", 0.2)

    async def work():
        async with LocalSandbox(num_slots=2) as sandbox:
            await sandbox.level()
            first = asyncio.create_task(sandbox.run(Program(code="import time\ntime.sleep(2)\nprint(1)")))
            while not own_roles()["program"]:
                await asyncio.sleep(0.02)
            (zygote,) = own_roles()["zygote"]
            measure = handles.measure_work
            # As on a machine whose processors are busy: the zygote wants to run and is not let.
            monkeypatch.setattr(handles, "measure_work", lambda pids: (True, {}) if zygote in pids else measure(pids))
            os.kill(zygote, signal.SIGSTOP)
            second = asyncio.create_task(sandbox.run(Program(code="print(2)")))
            await asyncio.sleep(0.6)
            os.kill(zygote, signal.SIGCONT)
            assert [(await each).stdout for each in (second, first)] == [b"2\n", b"1\n"]
            assert own_roles()["zygote"] == [zygote]

    run(work())


def test_a_stopped_zygote_is_replaced_also_for_requests_that_wait(reaper, run, monkeypatch):
    monkeypatch.setattr(handles, "SPAWN_DEADLINE_S", 1.5)
    monkeypatch.setattr(handles, "LINE_DEADLINE_S", 1.5)
    monkeypatch.setattr(handles, "MAX_UNANSWERED", 2)

    def stop():
        for pid in own_roles()["zygote"]:
            os.kill(pid, signal.SIGSTOP)

    async def work():
        async with LocalSandbox(num_slots=8, mode="strict") as sandbox:
            stop()
            executions = await asyncio.gather(*(sandbox.run(Program(code="print(1)")) for _ in range(8)))
            assert [execution.stdout for execution in executions] == [b"1\n"] * 8
            stop()
            # The requests whose answers are outstanding are cancelled.
            asked = [asyncio.create_task(sandbox.run(Program(code=""))) for _ in range(2)]
            await asyncio.sleep(0.1)
            for task in asked:
                task.cancel()
            started = time.monotonic()
            assert (await sandbox.run(Program(code="print(2)"))).stdout == b"2\n"
            assert time.monotonic() - started < 30

    run(work())
    assert wait_until(lambda: not reaper(), SLOWED_S), describe(reaper())


def test_busy_processes_have_more_time_and_no_end_of_it(run, monkeypatch):
    monkeypatch.setattr(handles, "SPAWN_DEADLINE_S", 0.05)
    monkeypatch.setattr(handles, "LINE_DEADLINE_S", 0.3)

    async def wait(measure):
        answer = asyncio.get_running_loop().create_future()
        try:
            return await handles.wait_for_answer(answer, measure)
        finally:
            assert answer.cancelled()

    used = itertools.count()
    for measure in (lambda: (True, {7: 1.0}), lambda: (False, {7: float(next(used))})):
        with pytest.raises(TimeoutError, match=r"no answer within 0.3 s, although it is running"):
            run(wait(measure))
    with pytest.raises(TimeoutError, match=r"no answer within 0.05 s, while it was not running"):
        run(wait(lambda: (False, {7: 1.0})))


def test_a_missed_deadline_is_named_in_the_error(run, monkeypatch):
    async def work():
        async with LocalSandbox(num_slots=1) as sandbox:
            await sandbox.run(Program(code=""))
            monkeypatch.setattr(handles, "SPAWN_DEADLINE_S", 0.2)
            for pid in own_roles()["zygote"]:
                os.kill(pid, signal.SIGSTOP)
            for zygote in list(sandbox._zygotes.values()):
                with pytest.raises(
                    SandboxError,
                    match=r"interpreter is gone \(no answer within 0.2 s, while it was not running\); the next request",
                ):
                    await zygote.spawn(None, {}, [])

    run(work())


# ------------------------------------------------------------------------------------------------ cancelling, queues


@pytest.mark.parametrize("num_tasks", [20, pytest.param(600, marks=pytest.mark.slow)])
def test_cancelling_at_any_point_leaves_nothing(reaper, run, num_tasks):
    async def work():
        draw = random.Random(num_tasks)
        async with LocalSandbox(num_slots=2) as sandbox:
            await sandbox.run(Program(code=""))
            before = open_descriptors()
            for _ in range(num_tasks):
                if draw.random() < 0.3:
                    task: asyncio.Task[Any] = asyncio.create_task(sandbox.open())
                elif draw.random() < 0.5:
                    task = asyncio.create_task(
                        sandbox.run_pair(
                            Program(code="import os\nos.read(4, 1)"), Program(code="import time\ntime.sleep(9)")
                        )
                    )
                else:
                    task = asyncio.create_task(
                        sandbox.run(Program(code="import os, time\nos.fork()\ntime.sleep(9)", stdin=b"x"))
                    )
                await asyncio.sleep(draw.random() * 0.02)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    opened = await task
                    if not isinstance(opened, Execution | tuple):
                        await opened.close()
            assert (await sandbox.run(Program(code="print(1)"))).stdout == b"1\n"
            assert open_descriptors() <= before + 16
            assert not own_roles()["program"]

    run(work())
    assert wait_until(lambda: not reaper(), SLOWED_S), describe(reaper())


def test_cancelling_a_start_does_not_end_what_others_run(run):
    async def work():
        draw = random.Random(1)
        async with LocalSandbox(num_slots=2) as sandbox:
            session = await sandbox.open()
            await session.run("x = 1")
            running = asyncio.create_task(
                sandbox.run(Program(code="import time\ntime.sleep(0.5)\nprint(1)"), Limits(wall_s=20))
            )
            for _ in range(20):
                task = asyncio.create_task(sandbox.open())
                await asyncio.sleep(draw.random() * 0.006)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await (await task).close()
            assert (await session.run("x")).value == "1"
            assert (await running).stdout == b"1\n"

    run(work())


def test_programs_that_end_at_the_same_time_each_run_once(run, full_level, monkeypatch):
    """If a zygote reaped an ended program without reporting it, the program would silently run a second time."""
    spawn, num_spawned = Zygote.spawn, 0

    async def counted(*arguments):
        nonlocal num_spawned
        num_spawned += 1
        return await spawn(*arguments)

    async def work():
        async with LocalSandbox(num_slots=8, mode="strict") as sandbox:
            monkeypatch.setattr(Zygote, "spawn", counted)
            executions = await asyncio.gather(*(sandbox.run(Program(code="print(1)")) for _ in range(200)))
            assert {execution.stdout for execution in executions} == {b"1\n"}

    run(work())
    assert num_spawned == 200


@pytest.mark.parametrize("num_requests", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_requests_in_line(sandbox, run, num_requests):
    async def work():
        before = open_descriptors()
        most = 0

        async def one(number):
            nonlocal most
            execution = await sandbox.run(Program(code=f"print({number})"), Limits(wall_s=30))
            most = max(most, open_descriptors())
            return int(execution.stdout)

        assert await asyncio.gather(*(one(number) for number in range(num_requests))) == list(range(num_requests))
        assert most < before + 64  # waiting requests hold no descriptors

    run(work())


ANOTHER = """
import asyncio, sys
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Program
async def main():
    async with LocalSandbox() as sandbox:
        return (await sandbox.run(Program(code="print(1)"))).stdout
sys.stdout.write(repr(asyncio.run(main())))
"""


def test_two_supervisors_at_once_leave_each_other_alone(reaper, run):
    async def work():
        first, second = LocalSandbox(num_slots=1), LocalSandbox(num_slots=1)
        session = await first.open()
        await session.run("x = 1")
        assert (await second.run(Program(code="print(1)"))).stdout == b"1\n"
        other = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", ANOTHER], capture_output=True, text=True, check=False
        )
        assert other.stdout == repr(b"1\n"), other.stderr
        await second.close()
        assert (await session.run("x")).value == "1"
        assert (await first.run(Program(code="print(2)"))).stdout == b"2\n"
        await first.close()
        await first.close()
        with pytest.raises(SandboxError, match="closed"):
            await first.run(Program(code=""))

    run(work())
    assert wait_until(lambda: not reaper(), SLOWED_S), describe(reaper())


def test_closing_while_programs_run_ends_them(reaper, run):
    async def work():
        sandbox = LocalSandbox(num_slots=2)
        session = await sandbox.open()
        tasks = [
            asyncio.create_task(sandbox.run(Program(code="import time\ntime.sleep(30)"), Limits(wall_s=60)))
            for _ in range(4)
        ]
        tasks.append(asyncio.create_task(session.run("import time\ntime.sleep(30)", timeout_s=60)))
        await asyncio.sleep(0.2)
        started = time.monotonic()
        await sandbox.close()
        answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert time.monotonic() - started < SLOWED_S
        for answer in answers[:4]:
            assert isinstance(answer, SandboxError), repr(answer)
        last = answers[4]
        assert isinstance(last, SandboxError | asyncio.CancelledError | Execution), repr(last)
        assert not isinstance(last, Execution) or last.exit_code is None

    run(work())
    assert wait_until(lambda: not reaper(), SLOWED_S), describe(reaper())


def test_a_refused_start_leaves_nothing(reaper, run):
    async def work():
        before = open_descriptors()
        for _ in range(3):
            with pytest.raises(SandboxError):
                async with LocalSandbox(require=("nonsense",)):
                    pass
        assert open_descriptors() <= before + 2

    run(work())
    assert wait_until(lambda: not reaper(), SLOWED_S), describe(reaper())


def test_running_out_of_descriptors_is_an_error_of_the_sandbox_and_passes(run):
    async def work():
        async with LocalSandbox(num_slots=1) as sandbox:
            await sandbox.run(Program(code=""))
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors() + 40, hard))
            answers = await asyncio.gather(*(sandbox.open() for _ in range(40)), return_exceptions=True)
            sessions = [answer for answer in answers if not isinstance(answer, BaseException)]
            try:
                assert {type(answer) for answer in answers if isinstance(answer, BaseException)} == {SandboxError}, (
                    answers
                )
                assert len(sessions) > 1
                assert (await sessions[0].run("1 + 1")).value == "2"
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for session in sessions:
                    await session.close()
            assert (await sandbox.run(Program(code="print(1)"))).stdout == b"1\n"
            assert (await (await sandbox.open()).run("1 + 1")).value == "2"

    run(work())


# ------------------------------------------------------------------------------------------------ wiping

MESS = {
    "chmod 000": "import os\nos.makedirs('a/b/c')\nfor n in ('a/b', 'a', '.', '..'): os.chmod(n, 0)",
    "forbidden": "import os\nos.chmod('.', 0)",
    "tmp forbidden": "import os\nos.chmod(os.environ['TMPDIR'], 0)",
    "deep tree": "import os\nfor _ in range(900):\n  os.mkdir('d' * 200)\n  os.chdir('d' * 200)",
    "many files": "import os\nfor i in range(900): open(str(i), 'w').close()",
    "odd names": "import os\nfor n in (b'\\xff\\xfe', b'\\n', b'-rf', b'...', b' '): open(n, 'w').close()",
    "special files": "import os, socket\nos.mkfifo('p')\nsocket.socket(socket.AF_UNIX).bind('s')\nos.symlink('/', 'l')",
    "work renamed": "import os\nos.rename('../work', '../gone')",
    "work replaced": (
        "import os\nos.chdir('..')\nos.rename('work', 'gone')\nos.mkdir('work')\nopen('work/planted', 'w').close()"
    ),
    "work is a link": "import os\nos.rename('../work', '../gone')\nos.symlink('/', '../work')",
    "work is a file": "import os\nos.rmdir('../work')\nopen('../work', 'w').close()",
    "tmp renamed": "import os\nos.rename('../tmp', '../tmp2')",
    "swapped": "import os\nos.rename('../work', '../x')\nos.rename('../tmp', '../work')\nos.rename('../x', '../tmp')",
    "beside": "import os\nopen('../beside', 'w').write('x')\nos.mkdir('../folder')",
    "removed": "import os\nos.rmdir('../tmp')\nos.rmdir('../work')",
    "full": "f = open('f', 'wb')\ntry:\n  while True: f.write(bytes(1 << 20))\nexcept OSError: pass",
    "open elsewhere": "import os, time\nif os.fork() == 0:\n  f = open('f', 'w')\n  time.sleep(30)",
    "hard links": "import os\nopen('a', 'w').close()\nfor i in range(300): os.link('a', str(i))",
}


@pytest.mark.parametrize("name", MESS)
def test_a_place_is_clean_for_the_next_program_or_is_replaced(sandbox, run, name):
    look = (
        "import os\nprint(os.path.basename(os.getcwd()), os.listdir('.'), sorted(os.listdir('..')), "
        "os.listdir(os.environ['TMPDIR']))\n"
        "open('new', 'w').close()\nopen(os.environ['TMPDIR'] + '/new', 'w').close()"
    )
    limits = Limits(wall_s=20, disk_bytes=4 << 20, num_files=1000)

    async def work():
        await sandbox.run(Program(code=MESS[name]), limits)
        for _ in range(2):
            after = await sandbox.run(Program(code=look), limits)
            assert after.text() == "work [] ['tmp', 'work'] []\n"

    run(work())


# ------------------------------------------------------------------------------------------------ preloading


def test_an_interpreter_with_a_second_thread_is_refused():
    code = (
        "import threading, time\nfrom turnwise_sandbox.zygote import preload\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\npreload('std')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "RuntimeError: profile std left 1 threads running; it cannot be forked" in done.stderr


def test_a_profile_that_is_not_installed_says_what_is_missing(plain_python):
    """A missing library is the sandbox's error if the profile is named, and the program's if it imports the library."""
    code = """
import asyncio, sys
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Program
async def main():
    async with LocalSandbox(num_slots=1) as sandbox:
        try:
            await sandbox.run(Program(code="print(1)", profile="sympy"))
        except SandboxError as error:
            sys.stdout.write(f"{error}\\n")
        execution = await sandbox.run(Program(code="print(1)"))
        sys.stdout.write(execution.text())
        execution = await sandbox.run(Program(code="import sympy"))
        sys.stdout.write(execution.text())
asyncio.run(main())
"""
    done = subprocess.run([plain_python, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "the sandbox's sympy interpreter did not start: ModuleNotFoundError: No module named 'sympy'" in lines[0]
    assert lines[1] == "1"
    assert lines[-1] == "ModuleNotFoundError: No module named 'sympy'", done.stderr[-1000:]


def test_stale_folders_are_swept_and_those_in_use_are_not(run, tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from turnwise_sandbox.kernel.owner import own_tag; "
        "sys.stdout.write(own_tag())"
    )
    source = str(Path(__file__).parents[2] / "src")
    dead = subprocess.run([sys.executable, "-c", code, source], capture_output=True, text=True, check=True).stdout
    stale = Path(f"/tmp/turnwise-sandbox-{dead}-stale")
    used = Path(f"/tmp/turnwise-sandbox-{own_tag()}-used")
    # An owner in another pid namespace, which may be alive.
    elsewhere = Path(f"/tmp/turnwise-sandbox-{dead.rpartition('-')[0]}-1-elsewhere")
    for folder in (stale, used, elsewhere):
        (folder / "cell0" / "work").mkdir(parents=True)
        (folder / "cell0").chmod(0)

    async def start():
        async with LocalSandbox(num_slots=1, level="process") as sandbox:
            await sandbox.run(Program(code=""))

    try:
        try:
            run(start())
        except SandboxError as error:
            pytest.skip(f"level process is unavailable: {error}")
        assert not stale.exists()
        assert used.exists()
        assert elsewhere.exists()
    finally:
        for folder in (used, elsewhere):
            folder.joinpath("cell0").chmod(0o700)
            shutil.rmtree(folder)


# ------------------------------------------------------------------------------------------------ soak


def test_mixed_executions_leave_nothing(reaper):
    """A short run of `benchmarks/sandbox_soak.py`. So few executions still grow the supervisor's allocator, by 2 to 6%
    of its memory, so only the growth of forked processes is checked; the long run checks both."""
    script = Path(__file__).parents[4] / "benchmarks" / "sandbox_soak.py"
    done = subprocess.run(
        [sys.executable, str(script), "--executions", "300", "--warm-up", "100"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    report = json.loads(done.stdout)
    assert report["leaks"] == {}, report
    assert report["executions"] == 300
    assert max(growth for role, growth in report["memory_growth"].items() if role != "supervisor") <= 0.05, report
    assert done.returncode == (0 if report["ok"] else 1)
    assert wait_until(lambda: not reaper(), SLOWED_S)
