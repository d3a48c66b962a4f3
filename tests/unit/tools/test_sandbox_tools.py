"""The sandbox tools of one episode: what the model reads, what is kept, and which errors are raised."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import ScriptedSandbox

from turnwise.core.errors import ConfigError, SandboxError
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, ToolCall, text_message
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.tools.sandboxed import SandboxTools, clip_middle
from turnwise.tools.tool import to_tool
from turnwise_sandbox.types import Execution, Limits

ALL = ("python", "run_program", "bash", "read_file", "write_file")
TRACEBACK = b"Traceback (most recent call last):\n  File ...\nNameError: name 'y' is not defined\n"
LIMITS = Limits(wall_s=5.0, memory_bytes=512 << 20, disk_bytes=3 << 20, output_bytes=50, num_pids=7)


class Coding(ToolEnvironment):
    """An episode with all the tools."""

    def __init__(self, sandbox: ScriptedSandbox) -> None:
        super().__init__()
        self.tools = SandboxTools(sandbox, limits=LIMITS, seed=9)

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        return task.prompt, self.tools.functions(ALL)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        return Scored(total=float(self.tools.executions[-1].ok))

    async def teardown(self) -> None:
        await self.tools.close()


def ended(**fields: object) -> Execution:
    return Execution(**{"stdout": b"", "stderr": b"", "exit_code": 0} | fields)  # type: ignore[arg-type]


def play(sandbox: ScriptedSandbox, *calls: tuple[str, dict[str, str]]) -> list[str]:
    """What the model reads after each call."""

    async def episode() -> list[str]:
        environment = Coding(sandbox)
        await environment.reset(Task(environment="coding", prompt=(text_message("user", "Go."),), payload={}), 0)
        try:
            observations = []
            for number, (name, arguments) in enumerate(calls):
                call = ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments))
                result = await environment.step(Message(role="assistant", content=(), tool_calls=(call,)))
                observations.append(result.observations[0].text)
            return observations
        finally:
            await environment.close()
            await environment.close()

    return asyncio.run(episode())


def test_every_tool_has_a_schema_that_says_what_it_keeps() -> None:
    specs = {tool.spec.name: tool.spec for tool in map(to_tool, SandboxTools(ScriptedSandbox()).functions(ALL))}
    assert tuple(specs) == ALL
    assert "kept between calls" in specs["python"].description
    assert specs["run_program"].parameters["required"] == ["code"]
    assert list(specs["write_file"].parameters["properties"]) == ["path", "content"]
    with pytest.raises(ConfigError, match="no sandbox tool 'perl'; choose from python, run_program, bash"):
        SandboxTools(ScriptedSandbox()).functions(["perl"])


def test_one_session_per_language_opened_when_first_used_and_closed_once() -> None:
    sandbox = ScriptedSandbox()
    play(sandbox)
    assert sandbox.sessions == []
    observations = play(sandbox, ("python", {"code": "x = 1"}), ("python", {"code": "x"}), ("bash", {"command": "ls"}))
    assert observations == ["x = 1", "x", "ls"]
    assert [(s.language, s.seed, s.limits, s.num_closed) for s in sandbox.sessions] == [
        ("python", 9, LIMITS, 1),
        ("bash", 9, LIMITS, 1),
    ]
    assert sandbox.sessions[0].cells == [("x = 1", None), ("x", None)]


@pytest.mark.parametrize(
    ("execution", "expected"),
    [
        (ended(), "(no output)"),
        (ended(stdout=b"a\n", value="3"), "a\n3"),
        (ended(stdout=b"a\xff\n", stderr=b"warning\n"), "a\ufffd\nwarning"),
        (ended(stderr=TRACEBACK, error="NameError: name 'y' is not defined", exit_code=1), TRACEBACK.decode().strip()),
        (ended(error="NameError: name 'y' is not defined", exit_code=1), "NameError: name 'y' is not defined"),
        (
            ended(stdout=b"0\n", exit_code=1, limit="wall", error="KeyboardInterrupt"),
            "0\nKeyboardInterrupt\n[the code ran longer than 5 s; it was interrupted; variables are kept]",
        ),
        (ended(exit_code=None, limit="wall"), "[the code ran longer than 5 s; variables and all files are gone]"),
        (
            ended(exit_code=1, limit="memory", error="MemoryError"),
            "MemoryError\n[the code needed more than 512 MiB of memory]",
        ),
        (
            ended(exit_code=None, limit="memory"),
            "[the code needed more than 512 MiB of memory; variables and all files are gone]",
        ),
        (ended(exit_code=1, limit="disk", error="OSError"), "OSError\n[the code wrote more than 3 MiB of files]"),
        (
            ended(stdout=b"x" * 50, limit="output"),
            "x" * 50 + "\n[the code printed more than 50 bytes; the rest is not shown]",
        ),
        (ended(exit_code=None, signal=11), "[the code was ended by signal 11; variables and all files are gone]"),
    ],
)
def test_what_the_model_reads_of_a_cell(execution: Execution, expected: str) -> None:
    assert play(ScriptedSandbox(lambda code: execution), ("python", {"code": "y"})) == [expected]


def test_programs_and_commands_show_their_status() -> None:
    def answer(code: str) -> Execution:
        return ended(exit_code=None, limit="wall") if code == "slow" else ended(stdout=b"no", exit_code=2)

    sandbox = ScriptedSandbox(answer)
    calls = [
        ("run_program", {"code": "p", "stdin": "ü"}),
        ("run_program", {"code": "slow"}),
        ("bash", {"command": "false"}),
    ]
    assert play(sandbox, *calls) == [
        "no\n[exit status 2]",
        "[the code ran longer than 5 s; the program was ended]",
        "no\n[exit status 2]",
    ]
    program, limits = sandbox.programs[0]
    assert (program.code, program.stdin, program.seed, limits) == ("p", "ü".encode(), 9, LIMITS)


def test_after_a_session_was_ended_the_next_call_has_a_new_one() -> None:
    sandbox = ScriptedSandbox(
        lambda code: ended(exit_code=None, limit="wall") if code == "hang" else ended(stdout=code.encode())
    )
    observations = play(sandbox, ("python", {"code": "hang"}), ("python", {"code": "again"}))
    assert observations[1] == "again"
    assert [len(session.cells) for session in sandbox.sessions] == [1, 1]
    assert [session.num_closed for session in sandbox.sessions] == [1, 1]


def test_files_are_those_of_the_live_session() -> None:
    sandbox = ScriptedSandbox()
    observations = play(
        sandbox,
        ("write_file", {"path": "a.txt", "content": "hü"}),
        ("read_file", {"path": "a.txt"}),
        ("read_file", {"path": "b.txt"}),
        ("write_file", {"path": "../b.txt", "content": ""}),
        ("python", {"code": "x"}),
    )
    assert observations[:2] == ["wrote 3 bytes to a.txt", "hü"]  # ü is two bytes
    assert observations[2] == "error: cannot read 'b.txt': refused b.txt"
    assert observations[3].startswith("error: cannot write '../b.txt': ")
    assert len(sandbox.sessions) == 1


def test_a_failing_sandbox_is_never_an_observation() -> None:
    def broken(code: str) -> Execution:
        raise SandboxError("the pool is gone")

    for call in (
        ("python", {"code": "x"}),
        ("run_program", {"code": "x"}),
        ("bash", {"command": "x"}),
        ("read_file", {"path": "x"}),
    ):
        with pytest.raises(SandboxError, match="the pool is gone"):
            play(ScriptedSandbox(broken), call)


def test_closed_tools_start_nothing() -> None:
    async def scene() -> None:
        sandbox = ScriptedSandbox()
        tools = SandboxTools(sandbox)
        await tools.close()
        with pytest.raises(SandboxError, match="are closed"):
            await tools.python("x")
        assert sandbox.sessions == []

    asyncio.run(scene())


def test_long_output_keeps_its_beginning_and_its_end() -> None:
    # 11 characters, 5 shown: three from the beginning, two from the end; six are cut.
    assert clip_middle("abcdefghijk", 5) == "abc\n[... 6 characters cut ...]\njk"
    assert clip_middle("abcde", 5) == "abcde"
    assert clip_middle("ab", 1) == "a\n[... 1 characters cut ...]\n"


@settings(max_examples=50)
@given(text=st.text(max_size=60), max_chars=st.integers(1, 60))
def test_clipping_loses_what_it_says_and_nothing_else(text: str, max_chars: int) -> None:
    clipped = clip_middle(text, max_chars)
    if len(text) <= max_chars:
        assert clipped == text
    else:
        head, tail = clipped.split(f"\n[... {len(text) - max_chars} characters cut ...]\n")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + len(tail) == max_chars
