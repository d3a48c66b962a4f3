"""ToolEnvironment: calls, malformed calls, unknown tools, the end, single use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import pytest

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolTimeout
from turnwise.core.protocols import Environment
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, ToolCall, ToolCallError, text_message
from turnwise.environments.tool_environment import ToolEnvironment

TASK = Task(environment="adder", prompt=(text_message("user", "Add."),), payload={})


class Adder(ToolEnvironment):
    closed = 0

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        self.total = seed
        return task.prompt, [self.add]

    def add(self, amount: int) -> int:
        """Add to the total.

        Args:
            amount: How much.
        """
        self.total += amount
        return self.total

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        return Scored(total=float(self.total))

    async def teardown(self) -> None:
        self.closed += 1


class Twins(Adder):
    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        return task.prompt, [self.add, Adder().add]


def call(amount: object, number: int = 1, name: str = "add") -> ToolCall:
    return ToolCall(id=f"call_{number}", name=name, arguments=json.dumps({"amount": amount}))


def reply(*calls: ToolCall, errors: tuple[ToolCallError, ...] = ()) -> Message:
    return Message(role="assistant", content=(), tool_calls=calls, tool_errors=errors)


def test_an_episode() -> None:
    async def play() -> None:
        environment = Adder()
        assert isinstance(environment, Environment)
        opening = await environment.reset(TASK, 10)
        assert [tool.name for tool in opening.tools] == ["add"]
        assert opening.messages == TASK.prompt
        result = await environment.step(reply(call(2, 1), call(3, 2)))
        # 10 + 2 = 12, then 12 + 3 = 15: in order, one answer per call
        assert [(m.role, m.text, m.tool_call_id, m.name) for m in result.observations] == [
            ("tool", "12", "call_1", "add"),
            ("tool", "15", "call_2", "add"),
        ]
        assert not result.done
        assert list(result.tool_records) == environment.tool_records
        end = await environment.step(text_message("assistant", "15"))
        assert end.done
        assert end.observations == ()
        assert await environment.score([], StopReason.DONE) == Scored(total=15.0)
        await environment.close()
        await environment.close()
        assert environment.closed == 1

    asyncio.run(play())


def test_what_the_model_does_wrong_is_answered_and_the_episode_goes_on() -> None:
    async def play() -> None:
        environment = Adder(max_observation_chars=200)
        await environment.reset(TASK, 0)
        unknown = await environment.step(reply(call(1, name="subtract")))
        assert unknown.observations[0].text == "error: there is no tool 'subtract'; known tools: add"
        assert unknown.tool_records[0].error is not None
        wrong = await environment.step(reply(call("two")))
        assert wrong.observations[0].text == "error: amount of add must be of type integer, not string"
        broken = ToolCallError(kind="bad_json", raw="{", message="a tool call is not valid JSON")
        both = await environment.step(reply(call(1), errors=(broken,)))
        assert [(m.text, m.tool_call_id) for m in both.observations] == [
            ("1", "call_1"),
            ("error: a tool call is not valid JSON", None),
        ]
        assert not any(result.done for result in (unknown, wrong, both))

    asyncio.run(play())


class Slow(Adder):
    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        return task.prompt, [self.wait, self.crash]

    async def wait(self, amount: int) -> int:
        """Wait.

        Args:
            amount: Seconds.
        """
        await asyncio.sleep(amount)
        return amount

    def crash(self, amount: int) -> int:
        """Time out by itself.

        Args:
            amount: Seconds.
        """
        raise TimeoutError("the backend took too long")


def test_a_call_past_its_seconds_is_a_tool_timeout_and_no_other_failure_is() -> None:
    async def play() -> None:
        environment = Slow(tool_timeout_s=0.05)
        await environment.reset(TASK, 0)
        assert (await environment.step(reply(call(0, name="wait")))).observations[0].text == "0"
        with pytest.raises(ToolTimeout, match=r"tool 'wait' ran longer than 0.05 s .*raise environment.tool_timeout_s"):
            await environment.step(reply(call(60, name="wait")))
        # What is not the deadline's is the tool's fault: EnvironmentFault, and no ToolTimeout, which rollouts retry.
        with pytest.raises(EnvironmentFault, match="TimeoutError: the backend took too long") as raised:
            await environment.step(reply(call(0, name="crash")))
        assert not isinstance(raised.value, ToolTimeout)
        assert len(environment.tool_records) == 1  # only what came back
        await environment.close()

    asyncio.run(play())


def test_single_use() -> None:
    async def play() -> None:
        fresh = Adder()
        with pytest.raises(EnvironmentFault, match="stepped before reset"):
            await fresh.step(reply(call(1)))
        await fresh.reset(TASK, 0)
        with pytest.raises(EnvironmentFault, match="reset twice"):
            await fresh.reset(TASK, 0)
        await fresh.step(text_message("assistant", "done"))
        with pytest.raises(EnvironmentFault, match="after its episode ended"):
            await fresh.step(reply(call(1)))
        closed = Adder()
        await closed.close()
        with pytest.raises(EnvironmentFault, match="reset twice"):
            await closed.reset(TASK, 0)

    asyncio.run(play())


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools named 'add'"):
        asyncio.run(Twins().reset(TASK, 0))


class Ending(Adder):
    """Over at 12."""

    def add(self, amount: int) -> int:
        """Add to the total.

        Args:
            amount: How much.
        """
        self.total += amount
        self.done = self.total >= 12
        return self.total


def test_a_tool_ends_the_episode() -> None:
    async def play() -> None:
        environment = Ending()
        await environment.reset(TASK, 0)
        assert not (await environment.step(reply(call(5)))).done
        # 5 + 7 = 12: the call after it does not run.
        result = await environment.step(reply(call(7, 1), call(1, 2)))
        assert (result.done, result.observations) == (True, ())
        assert [record.observation for record in result.tool_records] == ["12"]
        assert [record.observation for record in environment.tool_records] == ["5", "12"]
        assert await environment.score([], StopReason.DONE) == Scored(total=12.0)
        with pytest.raises(EnvironmentFault, match="after its episode ended"):
            await environment.step(reply(call(1)))
        await environment.close()

    asyncio.run(play())
