"""The sandbox server, with its own client, with SandboxFusion's dialect, and with sockets that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import ScriptedSandbox, echo
from waiting import until

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.remote.http import HttpSandbox
from turnwise_sandbox.remote.messages import ExecutionAnswer, FusionResponse, RunBody
from turnwise_sandbox.serve import SandboxServer, new_token
from turnwise_sandbox.types import Execution, Limits, Program

TOKEN = "a-token-for-the-tests-only"


@contextlib.asynccontextmanager
async def serving(sandbox: ScriptedSandbox, **options: Any) -> AsyncIterator[str]:
    server = SandboxServer(sandbox, token=TOKEN, **options)
    url = await server.start()
    try:
        yield url
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def connected(sandbox: ScriptedSandbox, **options: Any) -> AsyncIterator[HttpSandbox]:
    async with serving(sandbox, **options) as url:
        client = HttpSandbox(url, max_queue_s=10.0)
        try:
            yield client
        finally:
            await client.close()


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_SANDBOX_TOKEN", TOKEN)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await scene()

    asyncio.run(limited())


async def speak(url: str, request: bytes, *, end: bool = False) -> bytes:
    """The server's whole answer to raw bytes, until it closes the connection."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    if end:
        writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def test_a_program_and_its_execution_arrive_whole() -> None:
    sent = Program(
        code=b"\xff\n",
        language="bash",
        stdin=b"\x00\xfe",
        files={"a/b": b"\x80"},
        outputs=("o",),
        seed=7,
        profile="numpy",
    )
    got = Execution(
        stdout=b"\xff\x00",
        stderr=b"\xfe",
        exit_code=None,
        signal=11,
        limit="memory",
        value="1",
        error="E: x",
        files={"o": b"\x81"},
        stdout_dropped=3,
        stderr_dropped=4,
        wall_s=0.5,
        cpu_s=0.25,
        max_rss_bytes=99,
        level="L4",
    )
    sandbox = ScriptedSandbox(lambda code: got)

    async def scene() -> None:
        async with connected(sandbox) as client:
            assert await client.run(sent, Limits(wall_s=2.0, num_pids=3)) == got

    play(scene)
    assert sandbox.programs == [(sent, Limits(wall_s=2.0, num_pids=3, cpu_s=None))]


@settings(max_examples=30, deadline=None)
@given(
    code=st.binary(),
    stdin=st.binary(),
    files=st.dictionaries(st.text(st.characters(codec="utf-8")), st.binary()),
    stdout=st.binary(),
)
def test_no_bytes_are_lost_on_the_wire(code: bytes, stdin: bytes, files: dict[str, bytes], stdout: bytes) -> None:
    program = Program(code=code, stdin=stdin, files=files)
    body = RunBody.of(program, Limits())
    assert RunBody.model_validate_json(body.model_dump_json()).to_program() == program
    execution = Execution(stdout=stdout, stderr=stdin, exit_code=0, files=files)
    assert (
        ExecutionAnswer.model_validate_json(ExecutionAnswer(execution=execution).model_dump_json()).execution
        == execution
    )


def test_sessions_live_fork_and_end() -> None:
    sandbox = ScriptedSandbox()

    async def scene() -> None:
        async with connected(sandbox) as client:
            session = await client.open("python", limits=Limits(wall_s=3.0), seed=5)
            assert (await session.run("x = 1", timeout_s=2.0)).stdout == b"x = 1"
            await session.write_file("data/ü?&.bin", b"\x00\xff")
            branch = await session.fork()
            await session.write_file("data/ü?&.bin", b"changed")
            assert await branch.read_file("data/ü?&.bin") == b"\x00\xff"
            with pytest.raises(SandboxError, match="refused missing"):
                await session.read_file("missing")
            with pytest.raises(SandboxError, match="refused"):
                await session.read_file("data/ü?&.bin", max_bytes=2)
            with pytest.raises(SandboxError, match="cannot be forked"):
                await (await client.open("bash")).fork()
            await session.close()
            await session.close()
            with pytest.raises(SandboxError, match="no live session"):
                await session.run("x")
            assert (await branch.run("y")).ok

    play(scene)
    assert [(s.seed, s.limits.wall_s, s.cells) for s in sandbox.sessions[:2]] == [
        (5, 3.0, [("x = 1", 2.0)]),
        (5, 3.0, [("y", None)]),
    ]
    assert [s.num_closed for s in sandbox.sessions] == [1, 1, 1]  # one by the client, the others when the server closed


def test_run_code_speaks_sandbox_fusion() -> None:
    answers = {
        "ok": Execution(stdout=b"out\xff", stderr=b"", exit_code=0, wall_s=0.5, files={"o.bin": b"\x01"}),
        "bad": Execution(stdout=b"", stderr=b"Err", exit_code=3),
        "slow": Execution(stdout=b"part", stderr=b"", exit_code=None, limit="wall"),
        "segv": Execution(stdout=b"", stderr=b"", exit_code=None, signal=11),
        "huge": Execution(stdout=b"", stderr=b"", exit_code=None, limit="memory"),
    }

    def answer(code: str) -> Execution:
        if code == "broken":
            raise SandboxError("no cells left")
        return answers[code]

    sandbox = ScriptedSandbox(answer)

    async def scene() -> None:
        async with serving(sandbox) as url, httpx.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}) as client:
            # Unknown fields are ignored, as SandboxFusion's server does.
            body = {
                "code": "ok",
                "language": "python",
                "run_timeout": 3,
                "compile_timeout": 1,
                "memory_limit_MB": 256,
                "future": 1,
            }
            body |= {"stdin": "in", "files": {"f.txt": "aGk=", "none": None}, "fetch_files": ["o.bin"]}
            first = (await client.post(f"{url}/run_code", json=body)).json()
            assert (first["status"], first["files"], first["compile_result"]) == ("Success", {"o.bin": "AQ=="}, None)
            assert first["run_result"] == {
                "status": "Finished",
                "execution_time": 0.5,
                "return_code": 0,
                "stdout": "out\ufffd",
                "stderr": "",
            }
            seen = []
            for code in ("bad", "slow", "segv", "huge", "broken"):
                reply = (await client.post(f"{url}/run_code", json={"code": code, "language": "python"})).json()
                result = reply["run_result"] or {}
                seen.append((reply["status"], result.get("status"), result.get("return_code"), reply["message"]))
            assert seen == [
                ("Failed", "Finished", 3, ""),
                ("Failed", "TimeLimitExceeded", None, "hit the wall limit"),
                ("Failed", "Finished", -11, ""),
                ("Failed", "Finished", -9, "hit the memory limit"),
                ("SandboxError", None, None, "no cells left"),
            ]
            wrong = await client.post(f"{url}/run_code", json={"code": "ok", "language": "cobol"})
            assert wrong.status_code == 400
            assert "language" in wrong.json()["error"]
            not_base64 = await client.post(
                f"{url}/run_code", json={"code": "ok", "language": "python", "files": {"f": "?"}}
            )
            assert (not_base64.status_code, not_base64.json()["error"]) == (400, "file 'f' is not base64")

    play(scene)
    program, limits = sandbox.programs[0]
    assert (program.stdin, program.files, program.outputs) == (b"in", {"f.txt": b"hi"}, ("o.bin",))
    assert (limits.wall_s, limits.memory_bytes) == (3.0, 256 * 2**20)


def test_both_ends_of_the_fusion_dialect_agree() -> None:
    limits = Limits(output_bytes=10)
    for execution in (
        Execution(stdout=b"out", stderr=b"err", exit_code=0, files={"o": b"\xff"}, wall_s=0.25, level="http"),
        Execution(stdout=b"", stderr=b"", exit_code=2, level="http"),
        Execution(stdout=b"", stderr=b"", exit_code=None, signal=11, level="http"),
        Execution(stdout=b"x", stderr=b"", exit_code=None, limit="wall", level="http"),
    ):
        assert FusionResponse.of(execution).to_execution(limits, "http") == execution
    long = FusionResponse.of(Execution(stdout=b"0123456789abc", stderr=b"", exit_code=0)).to_execution(limits, "http")
    assert (long.stdout, long.stdout_dropped, long.limit) == (b"0123456789", 3, "output")


def test_the_fusion_client_on_this_server_and_what_it_cannot() -> None:
    sandbox = ScriptedSandbox()

    async def scene() -> None:
        async with serving(sandbox) as url:
            client = HttpSandbox(url, dialect="sandbox_fusion")
            execution = await client.run(Program(code="hello", files={"a": b"\xff"}), Limits(wall_s=2.5))
            assert (execution.stdout, execution.level) == (b"hello", "http")
            with pytest.raises(SandboxError, match="no sessions"):
                await client.open()
            await client.close()

    play(scene)
    assert sandbox.programs[0][0].files == {"a": b"\xff"}
    assert sandbox.programs[0][1].wall_s == 2.5


def test_without_the_token_nothing_runs() -> None:
    sandbox = ScriptedSandbox()

    async def scene() -> None:
        async with serving(sandbox) as url, httpx.AsyncClient() as client:
            body = {"code": "x", "language": "python"}
            for header in (
                {},
                {"authorization": "Bearer wrong"},
                {"authorization": f"Basic {TOKEN}"},
                {"authorization": "Bearer"},
            ):
                refused = await client.post(f"{url}/run_code", json=body, headers=header)
                assert refused.status_code == 401
            # A body far longer than the part that is read: the refusal must still arrive.
            assert (await client.post(f"{url}/run_code", content=b"x" * 5_000_000)).status_code == 401
            assert (await client.get(f"{url}/health")).json() == {"status": "ok"}
            # Clients that take only a URL send the token in it.
            with_password = url.replace("http://", f"http://any:{TOKEN}@")
            assert (await client.post(f"{with_password}/run_code", json=body)).json()["status"] == "Success"

    play(scene)
    assert len(sandbox.programs) == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_it_listens_on_this_machine_only(host: str) -> None:
    with pytest.raises(SandboxError, match="can be reached by other machines"):
        asyncio.run(SandboxServer(ScriptedSandbox(), token=new_token()).start(host))


def test_a_token_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(SandboxError, match="fewer than 16"):
        SandboxServer(ScriptedSandbox(), token="secret")


def test_requests_are_lowered_to_the_servers_limits() -> None:
    sandbox = ScriptedSandbox()

    async def scene() -> None:
        async with connected(sandbox, limits=Limits(wall_s=2.0, memory_bytes=1000, cpu_s=None)) as client:
            await client.run(Program(code="x"), Limits(wall_s=50.0, memory_bytes=10, cpu_s=4))
            session = await client.open(limits=Limits(wall_s=60.0))
            await session.run("y", timeout_s=90.0)
            with pytest.raises(SandboxError, match=r"400: limits\.wall_s is 0"):
                await client.run(Program(code="x"), Limits(wall_s=0.0))

    play(scene)
    limits = sandbox.programs[0][1]
    assert (limits.wall_s, limits.memory_bytes, limits.cpu_s) == (2.0, 10, 4)
    assert sandbox.sessions[0].limits.wall_s == 2.0
    assert sandbox.sessions[0].cells == [("y", 2.0)]


def test_beyond_capacity_requests_wait_and_are_then_refused() -> None:
    gate = asyncio.Event()
    running = 0
    most = 0

    async def answer(code: str) -> Execution:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return echo(code)

    async def scene() -> None:
        async with connected(ScriptedSandbox(answer), max_concurrent=2, max_queue_s=0.2) as client:
            runs = [asyncio.create_task(client.run(Program(code="x"))) for _ in range(4)]
            await until(lambda: sum(run.done() for run in runs) == 2)
            gate.set()
            results = await asyncio.gather(*runs, return_exceptions=True)
            refused = [result for result in results if isinstance(result, SandboxError)]
            assert len(refused) == 2
            assert all("429" in str(one) for one in refused)
            assert (await client.run(Program(code="again"))).ok  # the slots are free again

    play(scene)
    assert most == 2


def test_sessions_are_counted_and_idle_ones_closed() -> None:
    sandbox = ScriptedSandbox()

    async def scene() -> None:
        async with connected(sandbox, max_sessions=2, session_idle_s=1.0) as client:
            await client.open()
            busy = await client.open()
            with pytest.raises(SandboxError, match="429"):
                await client.open()
            while not sandbox.sessions[0].num_closed:
                await asyncio.sleep(0.1)
                await busy.run("x")
            assert [one.num_closed for one in sandbox.sessions] == [1, 0]
            await client.open()

    play(scene)


def test_a_client_that_hangs_up_ends_its_program() -> None:
    started = asyncio.Event()

    async def answer(code: str) -> Execution:
        started.set()
        await asyncio.sleep(60)
        return echo(code)

    sandbox = ScriptedSandbox(answer)

    async def scene() -> None:
        async with connected(sandbox) as client:
            task = asyncio.create_task(client.run(Program(code="x")))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: sandbox.num_cancelled)

    play(scene)
    assert sandbox.num_cancelled == 1


def test_what_is_not_http_or_too_large_is_answered_and_the_server_lives() -> None:
    auth = f"authorization: Bearer {TOKEN}\r\nhost: x\r\n".encode()
    run = b"POST /run_code HTTP/1.1\r\n" + auth
    body = json.dumps({"code": "x", "language": "python"}).encode()
    once = run + b"content-length: %d\r\n" % len(body)
    cases = [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nbig: " + b"x" * 200_000 + b"\r\n\r\n", b"431"),
        (run + b"content-length: 1000000\r\n\r\n", b"413"),
        (run + b"transfer-encoding: chunked\r\n\r\n" + b"10000\r\n" + b"x" * 0x10000 + b"\r\n0\r\n\r\n", b"413"),
        (run + b"content-length: -5\r\n\r\n", b"400"),
        (run + b"content-length: 2\r\nconnection: close\r\n\r\n{}", b"400"),
        (run + b"content-length: 3\r\nconnection: close\r\n\r\n\xff\xfe\x00", b"400"),
        (b"DELETE /nothing HTTP/1.1\r\nconnection: close\r\n" + auth + b"\r\n", b"404"),
        (b"GET /sessions/x/files?max_bytes=-1 HTTP/1.1\r\nconnection: close\r\n" + auth + b"\r\n", b"404"),
    ]

    async def scene() -> None:
        async with serving(ScriptedSandbox(), max_body_bytes=10_000) as url:
            for request, status in cases:
                answer = await speak(url, request)
                assert answer.startswith(b"HTTP/1.1 " + status), (request[:80], answer[:200])
                assert b'"error"' in answer
            # Two requests in one packet are answered in order.
            answer = await speak(url, once + b"\r\n" + body + once + b"connection: close\r\n\r\n" + body)
            assert answer.count(b"HTTP/1.1 200") == 2
            # A body that ends early.
            assert (await speak(url, run + b"content-length: 100\r\n\r\nxx", end=True)).startswith(b"HTTP/1.1 400")

    play(scene)


def test_a_sandbox_that_fails_is_told_as_an_error() -> None:
    def answer(code: str) -> Execution:
        if code == "typed":
            raise SandboxError("the pool is gone")
        raise KeyError("surprise")

    async def scene() -> None:
        async with connected(ScriptedSandbox(answer)) as client:
            with pytest.raises(SandboxError, match="500: the pool is gone"):
                await client.run(Program(code="typed"))
            with pytest.raises(SandboxError, match="KeyError"):
                await client.run(Program(code="untyped"))

    play(scene)


def test_a_server_that_says_nothing_costs_its_deadline_and_no_more() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def scene() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        client = HttpSandbox(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", max_queue_s=0.3)
        started = time.monotonic()
        with pytest.raises(SandboxError, match="did not answer within"):
            await client.run(Program(code="x"), Limits(wall_s=0.2))
        assert 0.4 < time.monotonic() - started < 10.0
        await client.close()
        server.close()

    play(scene)
