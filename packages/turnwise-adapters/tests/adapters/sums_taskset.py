"""A taskset of verifiers (v1) for the test of the adapter: sums, with a tool that adds and remembers."""

from collections.abc import Iterator

import verifiers.v1 as vf
from pydantic import BaseModel


class Sum(vf.TaskData):
    answer: int


class Pair(BaseModel):
    first: int
    second: int = 1


class Memory(vf.State):
    additions: int = 0


class Adder(vf.Toolset[vf.ToolsetConfig, Memory]):
    TOOL_PREFIX = "adder"

    @vf.tool
    def add(self, first: int, second: int) -> str:
        """Add two numbers."""
        self.state.additions += 1
        return str(first + second)

    @vf.tool
    async def add_pairs(self, pairs: list[Pair], copy: Pair = Pair(first=0)) -> str:  # noqa: B008 # as tasksets write it
        """Add the numbers of some pairs."""
        self.state.additions += 1
        return str(sum(pair.first + pair.second for pair in [*pairs, copy]))


class SumTask(vf.Task[Sum, Memory]):
    @vf.reward(weight=2.0)
    async def right(self, task: Sum, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(task.answer))

    @vf.metric
    async def additions(self, trace: vf.Trace) -> float:
        return float(trace.state.additions)

    @vf.metric
    async def answers_of_tools(self, trace: vf.Trace) -> float:
        return float(len(trace.tool_messages))

    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [Adder(vf.ToolsetConfig())]


class Sums(vf.Taskset[SumTask]):
    def load(self) -> Iterator[SumTask]:
        for number in range(8):
            yield SumTask(Sum(prompt=f"{number} + 5 ?", answer=number + 5))


__all__ = ["Sums"]
