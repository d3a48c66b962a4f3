"""Slots of rollouts while judges are asked."""

import asyncio
from collections.abc import Callable, Sequence

from turnwise.core.protocols import Environment
from turnwise.core.types import Draw, Message, Reward, Scored, StopReason, Task, text_message
from turnwise.core.verdicts import Question
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.judging.limits import LimitedJudge
from turnwise.rollout.attempt import Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.workers import FailurePolicy, GroupStream, RolloutWorker
from turnwise.testing import build_tiny_renderer, build_tiny_tokenizer

RENDERER = build_tiny_renderer(build_tiny_tokenizer(["a poem"]))
TASK = Task(environment="poet", prompt=(text_message("user", "a poem"),), payload={})


class Poet(ToolEnvironment):
    num_open = most = 0

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        Poet.num_open += 1
        Poet.most = max(Poet.most, Poet.num_open)
        return task.prompt, ()

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        return Scored(total=(await self.judges.ask("grader", replies[-1].text)).score)

    async def close(self) -> None:
        Poet.num_open -= 1
        await super().close()


class Meets:
    """A judge that answers once it has been asked `count` questions, and then at once."""

    def __init__(self, count: int) -> None:
        self.left, self.met = count, asyncio.Event()

    async def judge(self, question: Question) -> float:
        self.left -= 1
        if self.left <= 0:
            self.met.set()
        await self.met.wait()
        return 0.5

    async def close(self) -> None: ...


async def play(meeting: int, *, places: int, group_size: int, max_open: int) -> list[Reward]:
    Poet.num_open = Poet.most = 0
    judge = LimitedJudge(Meets(meeting), name="grader", max_concurrent=places, timeout_s=20.0, max_retries=0, seed=0)  # type: ignore[arg-type]

    def build(task: Task) -> Environment:
        return Poet()

    worker = RolloutWorker(
        build_environment=build,
        engine=ScriptedEngine(RENDERER, ["<answer> a poem </answer>"]),
        renderer=RENDERER,
        limits=Limits(max_turns=2, max_turn_tokens=60, max_tokens=400, timeout_s=20.0),
        sampling=Sampling(temperature=1.0, build_grammar=None, seed=0),
        failure=FailurePolicy(max_retries=0, max_invalid_share=1.0),
        max_open=max_open,
        judges={"grader": judge},
    )
    stream = GroupStream(worker, group_size=group_size)
    stream.start(Draw(index=0, task=TASK), version=0)
    group = await stream.next()
    assert stream._num_running == 0
    await stream.close()
    return [trajectory.reward for trajectory in group.trajectories]


def test_an_episode_that_a_judge_reads_leaves_its_slot_to_the_next() -> None:
    # One slot: the judge has been asked four times only if three episodes end their sampling while it reads the first.
    assert asyncio.run(play(4, places=4, group_size=4, max_open=1)) == [Scored(total=0.5)] * 4


def test_a_judge_without_a_free_place_gathers_no_open_episodes() -> None:
    # Two slots, and a judge for one question: it has one episode, and two more are open, of which one waits for it.
    assert asyncio.run(play(1, places=1, group_size=12, max_open=2)) == [Scored(total=0.5)] * 12
    assert Poet.most <= 3
