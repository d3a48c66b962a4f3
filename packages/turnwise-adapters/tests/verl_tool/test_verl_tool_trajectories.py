"""Trajectories of a tool server: state of their own, order, deadlines, faults, and nothing left behind."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from turnwise.core.errors import EnvironmentFault, ToolFailure
from turnwise.core.protocols import Environment
from turnwise.core.types import Message, Task
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise_adapters.verl_tool.trajectories import Trajectories
from turnwise_adapters.verl_tool.wire import Action, Outcome


class Counter(ToolEnvironment):
    """Adds to a number; fails, hangs or ends on request. Counts how many are open."""

    num_open = 0
    num_running = 0
    most_running = 0
    num_hanging = 0

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Starts at the task's number."""
        Counter.num_open += 1
        if task.payload["start"] < 0:
            raise ValueError("negative")
        self.total = int(task.payload["start"])
        return (), [self.add]

    async def add(self, text: str) -> str:
        """Add.

        Args:
            text: A number or a word.
        """
        if text == "hang":
            Counter.num_hanging += 1
            await asyncio.sleep(60)
        if text == "crash":
            raise RuntimeError("out of luck")
        if text == "end":
            self.done = True
        if not text.isdigit():
            raise ToolFailure(f"{text} is no number")
        Counter.num_running += 1
        Counter.most_running = max(Counter.most_running, Counter.num_running)
        await asyncio.sleep(0.001)
        Counter.num_running -= 1
        self.total += int(text)
        return str(self.total)

    async def teardown(self) -> None:
        """Counts."""
        Counter.num_open -= 1


@pytest.fixture(autouse=True)
def _fresh():
    Counter.num_open = Counter.num_running = Counter.most_running = Counter.num_hanging = 0


def build(extra: Mapping[str, Any]) -> tuple[Environment, Task]:
    return Counter(), Task(environment="counter", prompt=(), payload={"start": extra.get("start", 0)})


def add(trajectory: str, text: str = "1", **extra: Any) -> Action:
    return Action(trajectory=trajectory, text=f"<add>{text}</add>", extra=extra)


def finish(trajectory: str) -> Action:
    return Action(trajectory=trajectory, text="", is_finish=True)


def observe(*batches: Sequence[Action], **options: Any) -> list[list[Outcome]]:
    """The outcomes of some batches, one after the other; afterwards nothing is open."""

    async def run() -> list[list[Outcome]]:
        trajectories = Trajectories(build, **options)
        outcomes = [await trajectories.observe(batch) for batch in batches]
        assert trajectories.num_open == Counter.num_open
        await trajectories.close()
        return outcomes

    outcomes = asyncio.run(run())
    assert Counter.num_open == 0
    return outcomes


def shown(text: str) -> Outcome:
    return Outcome(text=f"\n<output>\n{text}\n</output>\n")


def test_each_trajectory_has_a_state_that_lasts_until_it_is_finished():
    first, second, third, fourth = observe(
        [add("a", start=10), add("b")], [add("a"), add("b", "5")], [finish("a"), finish("never")], [add("a")]
    )
    assert first == [shown("11"), shown("1")]
    assert second == [shown("12"), shown("6")]
    assert third == [Outcome(text="", is_done=True)] * 2
    assert fourth == [shown("1")]


def test_actions_of_one_trajectory_run_in_order_and_of_others_side_by_side():
    (outcomes,) = observe([add("a", str(number)) for number in range(5)] + [add("b"), add("c")], max_concurrent=2)
    assert outcomes == [shown(total) for total in ("0", "1", "3", "6", "10", "1", "1")]
    assert Counter.most_running == 2


def test_no_state_bleeds_between_512_trajectories_and_none_stays():
    names = [f"t{number}" for number in range(512)]
    rounds = observe(*([add(name, str(place)) for place, name in enumerate(names)] for _ in range(3)))
    assert rounds[2] == [shown(str(3 * place)) for place in range(512)]
    (last,) = observe([finish(name) for name in names])
    assert all(outcome.is_done for outcome in last)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("no call at all", Outcome(text="", is_valid=False, problem="the action calls no tool; this server has add")),
        (
            "<add>x</add>",
            replace(shown("error: x is no number"), is_valid=False, problem="error: x is no number"),
        ),
        ("<add>end</add>", Outcome(text="", is_done=True, is_valid=False, problem="error: end is no number")),
    ],
)  # fmt: skip
def test_what_the_model_does_wrong_is_not_valid(text: str, outcome: Outcome):
    ((found,),) = observe([Action(trajectory="a", text=text)])
    assert found == outcome


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        (add("a", "crash"), "tool 'add' crashed .*RuntimeError: out of luck"),
        (add("a", "hang"), r"the action ran past 0\.2 s"),
        (add("a", start=-1), "opening trajectory a: ValueError: negative"),
    ],
)
def test_what_fails_here_ends_its_trajectory_alone(action: Action, problem: str):
    outcomes, after = observe([action, add("a"), add("b")], [add("a")], timeout_s=0.2)
    assert re.search(problem, outcomes[0].problem)
    assert (outcomes[0].is_fault, outcomes[0].is_done, outcomes[0].is_valid) == (True, True, False)
    assert outcomes[1].problem == "the trajectory ended with an earlier action of it"
    assert outcomes[2] == shown("1")
    assert after == [shown("1")]


def test_too_many_trajectories_are_refused_and_the_open_ones_go_on():
    first, second = observe([add("a"), add("b")], [add("c"), add("a")], max_open=2)
    assert first == [shown("1"), shown("1")]
    assert second[0].is_fault
    assert "2 trajectories are open" in second[0].problem
    assert second[1] == shown("2")


def test_an_idle_trajectory_is_swept(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr("turnwise.serving.desk.time", SimpleNamespace(monotonic=lambda: now[0]))

    async def run() -> None:
        trajectories = Trajectories(build, idle_s=30.0)
        await trajectories.observe([add("a")])
        await trajectories.sweep()
        assert trajectories.num_open == 1
        now[0] += 31
        await trajectories.observe([add("b")])
        await trajectories.sweep()
        assert (trajectories.num_open, Counter.num_open) == (1, 1)
        await trajectories.close()

    asyncio.run(run())


def test_a_client_that_leaves_takes_its_running_actions_with_it():
    async def run() -> None:
        trajectories = Trajectories(build)
        await trajectories.observe([add("a")])
        request = asyncio.ensure_future(trajectories.observe([add("a", "hang"), add("b")]))
        await until(lambda: Counter.num_hanging and Counter.most_running == 1 and not Counter.num_running)
        request.cancel()
        await asyncio.wait([request])
        assert (trajectories.num_open, Counter.num_open) == (1, 1)  # "b" had ended its action
        assert await trajectories.observe([add("b"), add("a")]) == [shown("2"), shown("1")]
        await trajectories.close()

    asyncio.run(run())
    assert Counter.num_open == 0


def test_a_fault_of_the_environment_itself_is_an_outcome():
    async def run() -> list[Outcome]:
        def broken(extra: Mapping[str, Any]) -> tuple[Environment, Task]:
            raise EnvironmentFault("no such task")

        return await Trajectories(broken).observe([add("a")])

    assert asyncio.run(run()) == [Outcome(text="", is_done=True, is_valid=False, problem="no such task", is_fault=True)]
