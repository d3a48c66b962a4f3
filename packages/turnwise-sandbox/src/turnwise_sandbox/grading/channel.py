"""The part of a sandbox that grading uses."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from turnwise_sandbox.types import Execution, Limits, Program

CHANNEL_FD = 4
"""The descriptor of each program's end of the channel between the two."""


@runtime_checkable
class PairRunner(Protocol):
    """Runs two programs that can communicate with each other only."""

    async def run_pair(self, worker: Program, grader: Program, limits: Limits) -> tuple[Execution, Execution]:
        """Run both at the same time, each isolated from the other's processes, files and memory. Each has one end of an
        `AF_UNIX` stream socket pair as descriptor `CHANNEL_FD`.

        `limits` apply to each program. When one ends, the other sees the channel close. The run ends with the grader; a
        worker that still runs is then killed, which does not count as a limit. Cancelling the task ends both. Raises
        SandboxError when the sandbox itself fails."""
        ...


def find_pair_runner(sandbox: object) -> PairRunner | None:
    """The sandbox if it runs pairs, else None. A sandbox that stands for another reports by `runs_pairs` whether that
    one does."""
    return sandbox if isinstance(sandbox, PairRunner) and getattr(sandbox, "runs_pairs", True) else None


class GradingSandbox(PairRunner, Protocol):
    """A sandbox that runs pairs and single programs."""

    async def run(self, program: Program, limits: Limits = ...) -> Execution:
        """See `Sandbox.run`."""
        ...
