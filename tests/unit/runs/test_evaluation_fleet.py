"""Evaluations beside training: order, losses, failures and the file of what is outstanding, without models.

The processes are real services behind real links, in the event loop of the test."""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from waiting import until

from turnwise.config.load import load_config
from turnwise.core.errors import EngineError
from turnwise.engines.workers.link import Link
from turnwise.engines.workers.serving import Say, serve
from turnwise.runs.evaluation_fleet import EvaluationFleet
from turnwise.runs.evaluations import Evaluations, Outcome, read_outstanding
from turnwise.runs.recorders import FolderRecorder
from turnwise.store.run_folder import RunFolder


@dataclass
class Process:
    """A process that ended by signal 9 when it is asked."""

    name: str
    pid: int | None = None
    exitcode: int | None = -9

    def kill(self) -> None: ...

    def join(self, timeout: float) -> None: ...


@dataclass
class World:
    """What the processes do, and what they were asked for."""

    dies: dict[int, int] = field(default_factory=dict)
    """How often a process ends while it plays the evaluation of a step."""
    fails: frozenset[int] = frozenset()
    released: set[int] = field(default_factory=set)
    """Steps whose evaluation may end; all if empty."""
    asked: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    serving: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self, name: str) -> Link:
        ours, theirs = socket.socketpair()

        async def build(settings: Mapping[str, Any], say: Say) -> Service:
            return Service(self, theirs)

        self.serving.append(asyncio.create_task(serve(theirs, build, {"alive_s": 60.0})))
        link = Link(Process(name), *await asyncio.open_connection(sock=ours), silence_s=60.0)
        await link.hear_ready(60.0)
        return link


@dataclass
class Service:
    """Implements `Service` of a process."""

    world: World
    end: socket.socket
    is_computing: bool = False

    def statistics(self) -> Mapping[str, Any]:
        return {}

    async def answer(self, message: Mapping[str, Any]) -> Any:
        step, world = message["step"], self.world
        world.asked.append(step)
        if world.dies.get(step, 0) > 0:
            world.dies[step] -= 1
            self.end.shutdown(socket.SHUT_RDWR)
            await asyncio.Event().wait()
        if step in world.fails:
            raise EngineError(f"the engine failed at step {step}")
        if world.released:
            await until(lambda: step in world.released)
        world.ended.append(step)
        return asdict(Outcome(step=step, values={"evaluate/success": 0.5}, summaries=[], notes=[]))


async def play(world: World, folder: RunFolder, run: Callable[[Evaluations], Any], **options: Any) -> None:
    """Run a function with evaluations beside training."""
    overrides = [f"evaluate.{name}={value}" for name, value in {"num_workers": 2, "every": 1, **options}.items()]
    system = SimpleNamespace(config=load_config([], ["train.steps=9", *overrides]))
    fleet = EvaluationFleet(world.start, num_workers=system.config.evaluate.num_workers)
    evaluations = Evaluations(cast(Any, system), folder, FolderRecorder(folder), fleet=fleet)
    try:
        await run(evaluations)
    finally:
        await evaluations.close()
        for task in world.serving:
            task.cancel()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def read_steps(folder: RunFolder) -> list[int]:
    return [row["step"] for row in folder.read_metrics()]


def test_results_are_recorded_in_the_order_of_their_steps(folder: RunFolder) -> None:
    world = World(released={2})

    async def run(evaluations: Evaluations) -> None:
        await evaluations.play(1)
        await evaluations.play(2)
        await until(lambda: world.ended == [2])
        assert read_steps(folder) == []
        assert read_outstanding(folder) == {1, 2} == evaluations.list_outstanding()
        world.released.add(1)
        await evaluations.finish()

    asyncio.run(play(world, folder, run))
    assert (world.ended, read_steps(folder), read_outstanding(folder)) == ([2, 1], [1, 2], set())


def test_training_waits_only_where_two_evaluations_per_process_are_under_way(folder: RunFolder) -> None:
    world = World(released={-1})

    async def run(evaluations: Evaluations) -> None:
        for step in range(4):
            await evaluations.play(step)
        fifth = asyncio.create_task(evaluations.play(4))
        await until(lambda: len(world.asked) == 2)
        assert not fifth.done()
        world.released.add(0)
        await fifth
        world.released |= set(range(5))
        await evaluations.finish()

    asyncio.run(play(world, folder, run))
    assert read_steps(folder) == [0, 1, 2, 3, 4]


def test_a_process_that_ends_is_replaced_and_its_evaluation_played_again(folder: RunFolder) -> None:
    world = World(dies={3: 2})

    async def run(evaluations: Evaluations) -> None:
        await evaluations.play(3)
        await evaluations.finish()

    asyncio.run(play(world, folder, run))
    assert (world.asked, read_steps(folder)) == ([3, 3, 3], [3])


@pytest.mark.parametrize(
    ("world", "words"),
    [(World(dies={1: 3}), "was killed by signal 9"), (World(fails=frozenset({1})), "the engine failed at step 1")],
)
def test_an_evaluation_that_fails_ends_the_run_and_stays_outstanding(
    folder: RunFolder, world: World, words: str
) -> None:
    async def run(evaluations: Evaluations) -> None:
        await evaluations.play(1)
        await evaluations.play(2)
        await evaluations.finish()

    with pytest.raises(EngineError, match=words):
        asyncio.run(play(world, folder, run))
    # The next one is not recorded before it: a tracker drops what comes late.
    assert (read_steps(folder), read_outstanding(folder)) == ([], {1, 2})


def test_what_another_process_left_is_played_and_what_comes_after_the_checkpoint_is_not(folder: RunFolder) -> None:
    folder.write_json("outstanding.json", [1, 2, 5])
    folder.append_metrics(1, "evaluate", {})
    world = World()

    async def run(evaluations: Evaluations) -> None:
        await evaluations.resume(4)
        await evaluations.finish()

    asyncio.run(play(world, folder, run))
    assert (world.asked, read_outstanding(folder)) == ([2], set())


def test_the_deadline_leaves_evaluations_for_later_and_says_so(folder: RunFolder) -> None:
    async def run(evaluations: Evaluations) -> None:
        await evaluations.play(7)
        await evaluations.finish()

    asyncio.run(play(World(released={-1}), folder, run, deadline_s=0.01))
    texts = [json.loads(line)["text"] for line in (folder.path / "events.jsonl").read_text().splitlines()]
    assert texts[-1].startswith(
        "the evaluations of steps 7 took longer than evaluate.deadline_s=0.01; their checkpoints"
    )
    assert read_outstanding(folder) == {7}
