"""What grading needs of a sandbox. Knows nothing about how either program is isolated."""

from __future__ import annotations

from typing import Protocol

from turnwise_sandbox.types import Execution, Limits, Program

CHANNEL_FD = 4
"""The file descriptor at which each program of a pair finds its end of the channel."""


class PairRunner(Protocol):
    """Runs two programs that can talk to each other and to nobody else."""

    async def run_pair(self, worker: Program, grader: Program, limits: Limits) -> tuple[Execution, Execution]:
        """Run both at the same time, each in a place of its own (processes, files and memory of one are out of the
        other's reach), with the two ends of one `AF_UNIX` stream socket pair at file descriptor `CHANNEL_FD`.

        Each program has `limits` for itself. When one ends (or is ended) the other sees its end of the channel closed.
        The run is over when the grader has ended; a worker that is still there is then killed, which is not a limit it
        ran into. Cancelling the task ends both. Raises SandboxError when the sandbox itself failed."""
        ...


class GradingSandbox(PairRunner, Protocol):
    """A sandbox that runs single programs as well."""

    async def run(self, program: Program, limits: Limits = ...) -> Execution:
        """As `Sandbox.run`."""
        ...
