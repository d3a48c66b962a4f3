"""Tools that run the model's code in a sandbox: `python`, `run_program`, `bash`, `read_file`, `write_file`.

One `SandboxTools` belongs to one episode and holds its live sessions. Errors in the model's code are returned as text
for the model to read. `SandboxError` is raised only when the sandbox itself fails, and makes the reward Invalid. Any
object that implements the `Sandbox` protocol will do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeVar

from turnwise.core.errors import ConfigError, SandboxError, ToolFailure
from turnwise_sandbox import errors as sandbox_errors
from turnwise_sandbox.types import Execution, Limit, Limits, Network, Profile, Program, Sandbox, Session

Language = Literal["python", "bash"]
T = TypeVar("T")

_LIMIT_TEXTS: dict[Limit, str] = {
    "wall": "the code ran longer than {limits.wall_s:g} s",
    "cpu": "the code used up its processor time",
    "memory": "the code needed more than {mib} of memory",
    "output": "the code printed more than {limits.output_bytes} bytes; the rest is not shown",
    "pids": "the code started more than {limits.num_pids} processes or threads",
    "disk": "the code wrote more than {mib} of files",
}


async def ask_sandbox(answer: Awaitable[T]) -> T:
    """Await the answer of a sandbox or a session.

    Converts the error of the package `turnwise_sandbox`, which does not know Turnwise's errors, to Turnwise's
    SandboxError with the same message.
    """
    try:
        return await answer
    except sandbox_errors.SandboxError as cause:
        raise SandboxError(str(cause)) from cause


class SandboxTools:
    """The tools of one episode. Pass `functions` to a `ToolEnvironment` in `setup`, and call `close` in `teardown`.

    A call takes at most `limits.wall_s` plus the wait for a free place. Make the environment's `tool_timeout_s` larger.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        seed: int = 0,
        profile: Profile = "std",
        network: Network = "none",
        files_in: Language = "python",
        max_chars: int = 3000,
    ) -> None:
        """`seed` seeds every random generator of the episode's code.

        `files_in` names the live session whose folder `read_file` and `write_file` use; the two sessions share nothing.
        `max_chars` limits the output of one execution that the model sees; its beginning and end are kept, because a
        traceback says at its end what went wrong. Keep it below the environment's `max_observation_chars`. The first
        call starts a session; the constructor starts nothing. Raises ConfigError for `max_chars` below 1.
        """
        if max_chars < 1:
            raise ConfigError(f"max_chars is {max_chars}; it must be at least 1, so that the model sees some text")
        self._sandbox = sandbox
        self._limits = limits
        self._seed = seed
        self._profile: Profile = profile
        self._network: Network = network
        self._files_in: Language = files_in
        self._max_chars = max_chars
        self._sessions: dict[Language, Session] = {}
        self._closed = False
        self.executions: list[Execution] = []
        """Every execution in the episode, in order."""

    def functions(self, names: Sequence[str] = ("python",)) -> list[Callable[..., object]]:
        """Return the tool functions by name. Raises ConfigError, listing the tools, for an unknown name."""
        tools = {
            tool.__name__: tool for tool in (self.python, self.run_program, self.bash, self.read_file, self.write_file)
        }
        unknown = [name for name in names if name not in tools]
        if unknown:
            raise ConfigError(f"there is no sandbox tool {unknown[0]!r}; choose from {', '.join(tools)}")
        return [tools[name] for name in names]

    async def python(self, code: str) -> str:
        """Run Python code in a live interpreter and show what it prints and the value of its last expression.

        Variables and files are kept between calls.

        Args:
            code: The code to run.
        """
        return await self._run_cell("python", code)

    async def bash(self, command: str) -> str:
        """Run a command in a live bash shell and show what it prints.

        The working directory, variables and files are kept between calls.

        Args:
            command: The command to run.
        """
        return await self._run_cell("bash", command)

    async def run_program(self, code: str, stdin: str = "") -> str:
        """Run a complete Python program in a new interpreter and show what it prints. Nothing is kept.

        Args:
            code: The program.
            stdin: What the program reads from standard input.
        """
        program = Program(code=code, stdin=stdin.encode(), seed=self._seed, network=self._network)
        execution = await ask_sandbox(self._sandbox.run(program, self._limits))
        self.executions.append(execution)
        return self._describe(execution, kept="", lost="the program was ended")

    async def read_file(self, path: str) -> str:
        """Read a text file.

        Args:
            path: The file's path, relative to the working folder.
        """
        session = await self._session(self._files_in)
        try:
            content = await session.read_file(path)
        except sandbox_errors.SandboxError as cause:
            await ask_sandbox(session.run(""))  # raises when the session is over: not the model's fault
            raise ToolFailure(f"cannot read {path!r}: {cause}") from None
        return clip_middle(content.decode("utf-8", "replace"), self._max_chars)

    async def write_file(self, path: str, content: str) -> str:
        """Write a text file, replacing what was there.

        Args:
            path: The file's path, relative to the working folder.
            content: The text.
        """
        session = await self._session(self._files_in)
        data = content.encode()
        try:
            await session.write_file(path, data)
        except sandbox_errors.SandboxError as cause:
            await ask_sandbox(session.run(""))  # as in `read_file`
            raise ToolFailure(f"cannot write {path!r}: {cause}") from None
        return f"wrote {len(data)} bytes to {path}"

    async def close(self) -> None:
        """End the live sessions. A second call does nothing."""
        self._closed = True
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await ask_sandbox(session.close())

    async def _session(self, language: Language) -> Session:
        """Return the live session in `language`; starts it if there is none."""
        if self._closed:
            raise SandboxError("the episode's sandbox tools are closed; build new ones for each episode")
        if language not in self._sessions:
            opening = self._sandbox.open(
                language, limits=self._limits, seed=self._seed, profile=self._profile, network=self._network
            )
            self._sessions[language] = await ask_sandbox(opening)
        return self._sessions[language]

    async def _run_cell(self, language: Language, code: str) -> str:
        session = await self._session(language)
        execution = await ask_sandbox(session.run(code))
        self.executions.append(execution)
        if execution.exit_code is None:  # the session is over; the next call starts a new one
            del self._sessions[language]
            await ask_sandbox(session.close())
        thing = "variables" if language == "python" else "the shell and its variables"
        return self._describe(
            execution, kept=f"it was interrupted; {thing} are kept", lost=f"{thing} and all files are gone"
        )

    def _describe(self, execution: Execution, *, kept: str, lost: str) -> str:
        """Describe an execution for the model.

        `kept` is added after a timeout that left the session alive, `lost` after any failure that ended it.
        """
        shown = [
            execution.stdout.decode("utf-8", "replace"),
            execution.stderr.decode("utf-8", "replace"),
            execution.value or "",
        ]
        if execution.error is not None and execution.error not in shown[1]:
            shown.append(execution.error)
        notes = []
        if execution.limit is not None:
            notes.append(_LIMIT_TEXTS[execution.limit].format(limits=self._limits, mib=self._mib(execution.limit)))
        elif execution.signal is not None:
            notes.append(f"the code was ended by signal {execution.signal}")
        elif execution.exit_code and execution.error is None:
            notes.append(f"exit status {execution.exit_code}")
        if execution.exit_code is None:
            notes.append(lost)
        elif execution.limit == "wall":
            notes.append(kept)
        body = clip_middle("\n".join(text.strip("\n") for text in shown if text.strip("\n")), self._max_chars)
        return "\n".join(part for part in (body, f"[{'; '.join(notes)}]" if notes else "") if part) or "(no output)"

    def _mib(self, limit: Limit) -> str:
        return f"{(self._limits.disk_bytes if limit == 'disk' else self._limits.memory_bytes) / 2**20:g} MiB"


def clip_middle(text: str, max_chars: int) -> str:
    """Return the beginning and end of `text`, `max_chars` characters together, around a marker; all of it if it
    fits."""
    cut = len(text) - max_chars
    if cut <= 0:
        return text
    head = (max_chars + 1) // 2
    return f"{text[:head]}\n[... {cut} characters cut ...]\n{text[len(text) - (max_chars - head) :]}"
