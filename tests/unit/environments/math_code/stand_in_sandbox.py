"""A sandbox for tests without isolation: a process per program. Counts what was opened, run and closed."""

from __future__ import annotations

import asyncio
import sys

from turnwise_sandbox.types import Execution, Limits, Program

EVENTS: list[str] = []


class SubprocessSandbox:
    """Implements what `math_code` needs of `Sandbox`."""

    def __init__(self, *, refuse: bool = False) -> None:
        if refuse:
            raise ValueError("this machine cannot isolate anything")
        EVENTS.append("open")
        self._slots = asyncio.Semaphore(2)
        """Belongs to the event loop it is first used in, as a real sandbox does."""

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:  # noqa: B008 - a frozen value
        """Run with a deadline; the only limit there is."""
        assert isinstance(program.code, str)
        async with self._slots:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", "-c", program.code, stdout=-1, stderr=-1, stdin=asyncio.subprocess.DEVNULL
            )
            try:
                stdout, stderr = await asyncio.wait_for(process.communicate(), limits.wall_s)
            except TimeoutError:
                return Execution(stdout=b"", stderr=b"", exit_code=None, limit="wall")
            finally:
                if process.returncode is None:
                    EVENTS.append("kill")
                    process.kill()
                    await process.wait()
            return Execution(stdout=stdout, stderr=stderr, exit_code=process.returncode)

    async def close(self) -> None:
        EVENTS.append("close")


class PairSandbox(SubprocessSandbox):
    """Runs pairs without a channel."""

    async def run_pair(self, worker: Program, grader: Program, limits: Limits) -> tuple[Execution, Execution]:
        return await self.run(worker, limits), await self.run(grader, limits)
