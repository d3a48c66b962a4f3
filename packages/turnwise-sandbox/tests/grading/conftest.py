"""A sandbox without isolation: plain subprocesses, for tests of grading alone."""

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from turnwise_sandbox.grading.channel import CHANNEL_FD
from turnwise_sandbox.types import Execution, Limit, Limits, Program


class SubprocessSandbox:
    """Runs programs as child processes in a temporary folder each."""

    async def run(self, program: Program, limits: Limits | None = None) -> Execution:
        return await self.start(program, limits or Limits(), None)

    async def run_pair(self, worker: Program, grader: Program, limits: Limits) -> tuple[Execution, Execution]:
        ends = socket.socketpair()
        working = asyncio.create_task(self.start(worker, limits, ends[0]))
        try:
            graded = await self.start(grader, limits, ends[1])
        finally:
            # The worker sees its channel closed and ends by itself, or is killed.
            done, _ = await asyncio.wait([working], timeout=0.2)
            if not done:
                working.cancel()
        try:
            return await working, graded
        except asyncio.CancelledError:
            return Execution(stdout=b"", stderr=b"", exit_code=None), graded

    async def start(self, program: Program, limits: Limits, channel: socket.socket | None) -> Execution:
        with tempfile.TemporaryDirectory() as folder:
            for path, content in program.files.items():
                target = Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            code = program.code.encode() if isinstance(program.code, str) else program.code
            Path(folder, "main.py").write_bytes(code)
            redirect = f"{CHANNEL_FD}<&{channel.fileno()}" if channel is not None else ""
            process = await asyncio.create_subprocess_exec(
                "bash", "-c", f"exec {sys.executable} -I main.py {redirect}",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                pass_fds=(channel.fileno(),) if channel is not None else (), cwd=folder, start_new_session=True,
                env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            if channel is not None:
                channel.close()
            limit: Limit | None = None
            talk = asyncio.ensure_future(process.communicate(program.stdin))
            try:
                await asyncio.wait_for(asyncio.shield(talk), limits.wall_s)
            except TimeoutError:
                limit = "wall"
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):  # it has ended in the meantime
                        os.killpg(process.pid, 9)
                stdout, stderr = await talk
            code_or_signal = process.returncode or 0
            return Execution(
                stdout=stdout[: limits.output_bytes],
                stderr=stderr[: limits.output_bytes],
                stdout_dropped=max(0, len(stdout) - limits.output_bytes),
                exit_code=code_or_signal if code_or_signal >= 0 and limit is None else None,
                signal=-code_or_signal if code_or_signal < 0 and limit is None else None,
                limit=limit,
            )


@pytest.fixture(scope="session")
def sandbox() -> SubprocessSandbox:
    return SubprocessSandbox()
