"""A v1 taskset of verifiers through the adapter, judged by its own rewards."""

import asyncio
import importlib

import pytest
from played_games import need

from turnwise.core.errors import ConfigError
from turnwise.core.types import Message, Scored, StopReason, ToolCall, text_message
from turnwise_adapters.verifiers import Verifiers, build_tool


@pytest.fixture(scope="module")
def family() -> Verifiers:
    need("verifiers", "verifiers")
    return Verifiers(taskset="sums_taskset")


def test_rows_are_divided_and_held_out_ones_end(family: Verifiers) -> None:
    # Eight rows: 0 and 4 are held out.
    assert [family.task("heldout", at).prompt[0].text for at in range(2)] == ["0 + 5 ?", "4 + 5 ?"]
    assert [family.task("train", at).prompt[0].text[0] for at in range(8)] == list("12356712")
    with pytest.raises(IndexError, match="has 2"):
        family.task("heldout", 2)
    assert family.texts(2) == ["1 + 5 ?", "2 + 5 ?"]


def test_tools_run_and_the_tasks_own_reward_judges_the_trace(family: Verifiers) -> None:
    async def play(answer: str, name: str, arguments: str) -> tuple[str, Scored]:
        task = family.task("heldout", 1)
        environment = family.build_environment(task)
        opening = await environment.reset(task, 0)
        assert [(tool.name, tool.parameters["required"]) for tool in opening.tools] == [
            ("adder_add", ["first", "second"]),
            ("adder_add_pairs", ["pairs"]),
        ]
        call = ToolCall(id="1", name=name, arguments=arguments)
        calling = Message(role="assistant", content=(), tool_calls=(call,))
        observed = (await environment.step(calling)).observations[0].text
        last = text_message("assistant", answer)
        assert (await environment.step(last)).done
        reward = await environment.score([calling, last], StopReason.DONE)
        await environment.close()
        assert isinstance(reward, Scored)
        return observed, reward

    observed, right = asyncio.run(play("9", "adder_add", '{"first": 4, "second": 5}'))
    assert observed == "9"
    # The weight of `right` is 2; the metrics count one call, by its state and by the trace.
    assert right.total == 2.0
    assert {part.name: part.value for part in right.parts} == {
        "right": 1.0,
        "additions": 1.0,
        "answers_of_tools": 1.0,
        "success": 1.0,
    }
    # Objects come as the models that the tool's annotations name: 3 + 1 + 2 + 2, and 0 + 1 by default.
    observed, wrong = asyncio.run(play("8", "adder_add_pairs", '{"pairs": [{"first": 3}, {"first": 2, "second": 2}]}'))
    assert observed == "9"
    assert (wrong.total, wrong.part("success")) == (0.0, 0.0)


def test_a_tool_is_described_as_by_the_packages_own_server(family: Verifiers) -> None:
    from mcp.server.mcpserver.tools.base import Tool as ServerTool
    from verifiers.v1 import ToolsetConfig

    adder = importlib.import_module("sums_taskset").Adder(ToolsetConfig())
    for function in (adder.add, adder.add_pairs):
        theirs = ServerTool.from_function(function).parameters
        assert build_tool(function, "adder").spec.parameters == {
            name: value for name, value in theirs.items() if name != "title"
        }


def test_what_it_has_no_use_for_is_one_line(family: Verifiers) -> None:
    with pytest.raises(ConfigError, match="cannot load the taskset 'no_such_taskset'"):
        Verifiers(taskset="no_such_taskset")
    with pytest.raises(ConfigError, match="policy 'oracle' is unknown; use one of random"):
        family.policy("oracle")
