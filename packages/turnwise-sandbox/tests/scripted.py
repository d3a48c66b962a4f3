"""A sandbox that runs nothing: a function answers programs and cells. It counts open sessions and records requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.trees import Tree, refuse_tree
from turnwise_sandbox.types import Execution, Limits, Network, Profile, Program

Answer = Callable[[str], Awaitable[Execution] | Execution]


def echo(code: str) -> Execution:
    """Answer with the code as output."""
    return Execution(stdout=code.encode(), stderr=b"", exit_code=0, level="scripted")


class ScriptedSandbox:
    def __init__(self, answer: Answer = echo) -> None:
        self.answer = answer
        self.programs: list[tuple[Program, Limits]] = []
        self.sessions: list[ScriptedSession] = []
        self.num_cancelled = 0
        self.closed = False

    async def reply(self, code: str) -> Execution:
        try:
            result = self.answer(code)
            return result if isinstance(result, Execution) else await result
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:  # noqa: B008 - frozen
        self.programs.append((program, limits))
        return await self.reply(
            program.code if isinstance(program.code, str) else program.code.decode("utf-8", "replace")
        )

    async def open(
        self,
        language: Literal["python", "bash"] = "python",
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        seed: int = 0,
        profile: Profile = "std",
        network: Network = "none",
        tree: Tree | None = None,
    ) -> ScriptedSession:
        refuse_tree(tree, "the scripted sandbox")
        return ScriptedSession(self, language, limits, seed, {})

    async def close(self) -> None:
        self.closed = True


class ScriptedSession:
    def __init__(
        self, sandbox: ScriptedSandbox, language: str, limits: Limits, seed: int, files: dict[str, bytes]
    ) -> None:
        self.sandbox = sandbox
        self.language = language
        self.limits = limits
        self.seed = seed
        self.files = files
        self.cells: list[tuple[str, float | None]] = []
        self.is_over = False
        self.num_closed = 0
        sandbox.sessions.append(self)

    async def run(self, code: str, *, timeout_s: float | None = None) -> Execution:
        if self.is_over:
            raise SandboxError("the session is over")
        self.cells.append((code, timeout_s))
        return await self.sandbox.reply(code)

    async def fork(self) -> ScriptedSession:
        if self.language == "bash":
            raise SandboxError("a bash session cannot be forked")
        return ScriptedSession(self.sandbox, self.language, self.limits, self.seed, dict(self.files))

    async def write_file(self, path: str, content: bytes) -> None:
        if self.is_over or ".." in path:
            raise SandboxError(f"refused {path}")
        self.files[path] = content

    async def changes(self) -> dict[str, bytes | None]:
        raise SandboxError("the session has no tree")

    async def reset(self) -> None:
        raise SandboxError("the session has no tree")

    async def read_file(self, path: str, *, max_bytes: int = 16 << 20) -> bytes:
        if self.is_over or len(self.files.get(path, b"")) > max_bytes or path not in self.files:
            raise SandboxError(f"refused {path}")
        return self.files[path]

    async def close(self) -> None:
        self.num_closed += 1
        self.is_over = True
