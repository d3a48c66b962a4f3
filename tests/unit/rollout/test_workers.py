"""Groups in flight, pinned with scripted members: seeds, retries, over-draw, cuts, the order of starting, closing.

What every test of over-draw and cuts checks besides: each completion the engine delivered is in exactly one trajectory.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest

from turnwise.core.errors import EngineError, EnvironmentFault
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.types import (
    Completion,
    Draw,
    DropReason,
    FinishReason,
    IntArray,
    Invalid,
    Message,
    Reward,
    SamplingParams,
    Scored,
    Session,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    text_message,
    to_floats,
)
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.rollout import loop
from turnwise.rollout.attempt import Sampling
from turnwise.rollout.branching import RandomTree
from turnwise.rollout.limits import Limits
from turnwise.rollout.workers import FailurePolicy, GroupStream, RolloutWorker

LIMITS = Limits(max_turns=6, max_turn_tokens=40, max_tokens=400, timeout_s=20.0)
MORE, GOOD, BAD, BREAK = "more", "<answer> good </answer>", "<answer> bad </answer>", "break"
HANG, HANG_IN_TOOL, HANG_IN_SCORE, HANG_IN_CLOSE = (
    "hang",
    "tool",
    "<answer> score </answer>",
    "<answer> close </answer>",
)
BREAK_CLOSING = "break closing"
Script = Callable[[int, int, int], Sequence[str]]
"""What a member says: by draw, member and attempt."""


@dataclass(eq=False)
class World:
    """Environments and an engine for one test; they write down what happens."""

    renderer: TagRenderer
    script: Script
    version: int = 0
    started: list[Session] = field(default_factory=list)
    requests: list[tuple[Session, list[int], SamplingParams]] = field(default_factory=list)
    delivered: list[tuple[Session, Completion]] = field(default_factory=list)
    environment_seeds: list[int] = field(default_factory=list)
    num_built: int = 0
    num_closed: int = 0
    events: list[str] = field(default_factory=list)
    yields: Callable[[Session], int] = lambda session: 0
    """How many iterations of the event loop a reply takes."""
    _turns: dict[Session, int] = field(default_factory=dict)

    def build(self, task: Task) -> "Room":
        self.num_built += 1
        return Room(self)

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        self.requests.append((session, prompt_ids.tolist(), params))
        if session not in self.started:
            self.started.append(session)
        turn = self._turns[session] = self._turns.get(session, -1) + 1
        draw = int(session.group.split("/")[1])
        member, attempt = session.name.split(".")[0].split("/")
        script = self.script(draw, int(member), int(attempt))
        if turn >= len(script):
            raise EngineError("the script is over")
        for _ in range(self.yields(session)):
            await asyncio.sleep(0)
        if script[turn] == HANG:
            self.events.append(HANG)
            await asyncio.Event().wait()
        ids = self.renderer.encode_reply(text_message("assistant", script[turn]))
        completion = Completion(
            token_ids=ids,
            logprobs=to_floats(np.zeros(len(ids))),
            finish_reason=FinishReason.STOP,
            version_first=self.version,
            version_last=self.version,
        )
        self.delivered.append((session, completion))
        return completion

    async def release(self, session: Session) -> None:
        self._turns.pop(session, None)

    async def close(self) -> None:
        """Nothing to free."""


class Room:
    """Does what the reply says."""

    def __init__(self, world: World) -> None:
        self._world, self._reply = world, ""

    async def reset(self, task: Task, seed: int) -> Opening:
        self._world.environment_seeds.append(seed)
        return Opening(messages=task.prompt, tools=())

    async def step(self, message: Message) -> StepResult:
        self._reply = message.text
        if BREAK in self._reply:
            raise OSError("broken")
        if HANG_IN_TOOL in self._reply:
            await self._hang(HANG_IN_TOOL)
        if self._reply.startswith(MORE):
            return StepResult(observations=(text_message("tool", "go on"),), done=False)
        return StepResult(observations=(), done=True)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        if replies[-1].text == HANG_IN_SCORE:
            await self._hang(HANG_IN_SCORE)
        return Scored(total=float("good" in replies[-1].text))

    async def close(self) -> None:
        if self._reply == HANG_IN_CLOSE or BREAK_CLOSING in self._reply:
            self._world.events.append(self._reply)
            await asyncio.sleep(0.05)
        self._world.num_closed += 1

    async def fork(self) -> "Room":
        self._world.num_built += 1
        twin = Room(self._world)
        twin._reply = self._reply
        return twin

    async def _hang(self, where: str) -> None:
        self._world.events.append(where)
        await asyncio.Event().wait()


@pytest.fixture(scope="module")
def renderer() -> TagRenderer:
    return TagRenderer(train_tokenizer(["What ? more good bad"], vocab_size=300, special_tokens=TAG_SPECIAL_TOKENS))


def make_draw(index: int, attempt: int = 0) -> Draw:
    task = Task(environment="room", prompt=(text_message("user", f"What {index} ?"),), payload={})
    return Draw(index=index, task=task, attempt=attempt)


def make_worker(world: World, *, max_open: int = 64, max_retries: int = 2) -> RolloutWorker:
    return RolloutWorker(
        build_environment=world.build,
        engine=world,
        renderer=world.renderer,
        limits=LIMITS,
        sampling=Sampling(temperature=1.0, seed=7),
        failure=FailurePolicy(max_retries=max_retries, max_invalid_share=0.4),
        max_open=max_open,
    )


def run_groups(world: World, draws: Sequence[Draw], group_size: int, **worker: int) -> list[TrajectoryGroup]:
    return asyncio.run(make_worker(world, **worker).run_groups(draws, group_size=group_size))


async def wait_for(world: World, event: str, count: int = 1) -> None:
    async with asyncio.timeout(10):
        while world.events.count(event) < count:
            await asyncio.sleep(0)


def check_every_token_is_in_one_trajectory(world: World, groups: Sequence[TrajectoryGroup]) -> None:
    all_of = [t for group in groups for t in (*group.trajectories, *(each.trajectory for each in group.discarded))]
    assert len({t.id for t in all_of}) == len(all_of)
    kept = [
        (f"train/{t.id.draw}", f"{t.id.member}/{t.id.attempt}", turn.completion) for t in all_of for turn in t.turns
    ]
    delivered = [(session.group, session.name.split(".")[0], completion) for session, completion in world.delivered]
    assert sorted(map(id, (c for _, _, c in kept))) == sorted(map(id, (c for _, _, c in delivered)))
    assert {(g, n, id(c)) for g, n, c in kept} == {(g, n, id(c)) for g, n, c in delivered}
    assert world.num_built == world.num_closed


def name_discarded(group: TrajectoryGroup) -> list[tuple[int, int, str, int]]:
    """Member, attempt, reason and number of turns of everything that was discarded."""
    return [
        (d.trajectory.id.member, d.trajectory.id.attempt, d.reason, len(d.trajectory.turns)) for d in group.discarded
    ]


# ------------------------------------------------------------------------------------------------ seeds and order


def test_every_turn_has_a_seed_of_its_own_and_a_group_shares_its_environment(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [MORE, GOOD])
    groups = run_groups(world, [make_draw(0), make_draw(1)], 3, max_open=2)
    assert len({params.seed for _, _, params in world.requests}) == 12  # 2 groups x 3 members x 2 turns
    assert sorted(world.environment_seeds.count(seed) for seed in set(world.environment_seeds)) == [3, 3]
    assert {session.group for session in world.started} == {"train/0", "train/1"}
    assert len(set(world.started)) == 6
    check_every_token_is_in_one_trajectory(world, groups)


def test_the_same_task_drawn_twice_differs(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [GOOD])
    task = make_draw(0).task
    run_groups(world, [Draw(index=0, task=task), Draw(index=1, task=task)], 1)
    assert len(set(world.environment_seeds)) == len({params.seed for _, _, params in world.requests}) == 2


def test_groups_and_members_come_back_in_the_order_given(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [MORE] * (draw % 3) + [GOOD])
    groups = run_groups(world, [make_draw(index) for index in (4, 0, 2, 3, 1)], 3, max_open=3)
    assert [group.draw.index for group in groups] == [4, 0, 2, 3, 1]
    assert [[t.id for t in group.trajectories] for group in groups] == [
        [TrajectoryId(draw=index, member=member) for member in range(3)] for index in (4, 0, 2, 3, 1)
    ]


def describe(groups: Sequence[TrajectoryGroup]) -> list[object]:
    """Everything about the trajectories but their seconds."""

    def describe_one(t: Trajectory) -> object:
        tokens = [(turn.parent, turn.context_ids.tolist(), turn.completion.token_ids.tolist()) for turn in t.turns]
        return t.id, t.task_id, t.stop, t.reward, t.error, tokens

    return [
        (
            group.draw,
            [describe_one(t) for t in group.trajectories],
            [(describe_one(each.trajectory), each.reason) for each in group.discarded],
        )
        for group in groups
    ]


def test_results_do_not_depend_on_timing_order_or_the_number_of_slots(renderer: TagRenderer) -> None:
    def script(draw: int, member: int, attempt: int) -> list[str]:
        if (draw + member + attempt) % 3 == 0:
            return [MORE, BREAK]
        return [MORE] * ((draw + member) % 2) + [f"<answer> good {draw} {member} {attempt} </answer>"]

    draws = [make_draw(index) for index in range(4)]
    outcomes = []
    for max_open, order, yields in (
        (1, draws, lambda session: 0),
        (3, draws[::-1], lambda session: len(session.name) + 5 * int(session.name[0])),
        (64, draws, lambda session: 7 - int(session.name[0])),
    ):
        world = World(renderer, script, yields=yields)
        groups = sorted(run_groups(world, order, 4, max_open=max_open), key=lambda group: group.draw.index)
        check_every_token_is_in_one_trajectory(world, groups)
        seeds = {(session, len(prompt)): params.seed for session, prompt, params in world.requests}
        outcomes.append((describe(groups), seeds, sorted(world.environment_seeds)))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_first_members_start_first_then_the_longest_group(renderer: TagRenderer) -> None:
    # Draw 1 says the most, draw 2 less, draw 0 the least. One slot: the order of starting is the order of requests.
    words = {0: 1, 1: 5, 2: 3}
    world = World(renderer, lambda draw, member, attempt: ["<answer>" + " good" * words[draw] + " </answer>"])
    run_groups(world, [make_draw(index) for index in range(3)], 2, max_open=1)
    order = [str(session).removeprefix("train/").removesuffix("/0") for session in world.started]
    assert order == ["0/0", "1/0", "2/0", "1/1", "2/1", "0/1"]


@pytest.mark.parametrize("max_open", [1, 3])
def test_no_more_trajectories_are_open_than_there_are_slots(renderer: TagRenderer, max_open: int) -> None:
    open_now: list[int] = []

    def count(session: Session) -> int:
        open_now.append(world.num_built - world.num_closed)
        return 3

    world = World(renderer, lambda draw, member, attempt: [MORE, GOOD], yields=count)
    run_groups(world, [make_draw(index) for index in range(3)], 3, max_open=max_open)
    assert max(open_now) == max_open


# ------------------------------------------------------------------------------------------------ retries and failures


def test_a_retry_differs_and_what_failed_is_discarded_in_order(renderer: TagRenderer) -> None:
    scripts = {0: [MORE, BREAK], 1: [BREAK], 2: [MORE, GOOD]}
    world = World(renderer, lambda draw, member, attempt: scripts[attempt] if member == 1 else [GOOD])
    (group,) = run_groups(world, [make_draw(0)], 3)
    assert [t.id.attempt for t in group.trajectories] == [0, 2, 0]
    assert group.rewards() == [1.0, 1.0, 1.0]
    assert name_discarded(group) == [(1, 0, DropReason.RETRIED, 2), (1, 1, DropReason.RETRIED, 1)]
    assert all(isinstance(each.trajectory.reward, Invalid) for each in group.discarded)
    assert len({params.seed for _, _, params in world.requests}) == len(world.requests) == 7
    assert len(set(world.environment_seeds)) == 1  # a retry faces the same episode
    assert world.num_built == 5
    check_every_token_is_in_one_trajectory(world, [group])


def test_the_last_attempt_that_fails_is_a_member_and_attempts_count_from_the_draws(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [BREAK])
    (group,) = run_groups(world, [make_draw(0, attempt=3)], 1, max_retries=1)
    assert [t.id.attempt for t in group.trajectories] == [4]
    assert group.rewards() == [None]
    assert name_discarded(group) == [(0, 3, DropReason.RETRIED, 1)]
    fresh = World(renderer, lambda draw, member, attempt: [BREAK])
    run_groups(fresh, [make_draw(0)], 1, max_retries=1)
    # Attempts 3 and 4 sample other tokens than attempts 0 and 1.
    assert len({params.seed for _, _, params in (*world.requests, *fresh.requests)}) == 4


def test_a_failure_that_is_not_retryable_is_no_reason_to_try_again(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [GOOD])
    worker = replace(make_worker(world), limits=replace(LIMITS, max_tokens=1))  # no room for a reply
    (group,) = asyncio.run(worker.run_groups([make_draw(0)], group_size=1))
    assert group.rewards() == [None]
    assert (group.discarded, world.num_built) == ((), 1)


def test_too_many_failures_stop_the_run_with_the_commonest_cause(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [BREAK] if member < 2 else [])
    groups = run_groups(world, [make_draw(0)], 3, max_retries=0)
    assert groups[0].rewards() == [None] * 3
    with pytest.raises(EnvironmentFault, match=r"3 of 3 .* \(2x\): EnvironmentFault: step of .* broken"):
        FailurePolicy(max_retries=0, max_invalid_share=0.4).check(groups)
    FailurePolicy(max_retries=0, max_invalid_share=1.0).check(groups)


def fail_members(draw: int, reason: str, count: int = 2) -> TrajectoryGroup:
    """A group of `count` members that could not be scored; `reason` may name `{task}`, `{draw}` and `{member}`."""
    opened = make_draw(draw)

    def fail(member: int) -> Trajectory:
        text = reason.format(task=opened.task.id, draw=draw, member=member)
        return Trajectory(
            id=TrajectoryId(draw=draw, member=member),
            task_id=opened.task.id,
            turns=(),
            stop=StopReason.ERROR,
            reward=Invalid(reason=text, retryable=False),
            error=text,
        )

    return TrajectoryGroup(draw=opened, trajectories=tuple(fail(member) for member in range(count)))


@pytest.mark.parametrize(
    "reason",
    [
        "EnvironmentFault: step of environment 'world' for task {task}: OSError: the tool server is gone",
        "annotator 'gold_answers' of draw {draw} (task {task}) raised OSError: gone; mend it",
        "EngineError: the request of 'train/{draw}/{member}/0' was refused",
        "the members were {draw}/0, {draw}/1 and are {draw}/0",
    ],
)
def test_failures_that_differ_in_task_draw_and_member_alone_are_one_cause(reason: str) -> None:
    # 3 draws of 2 members fail for one reason, draw 3's members for another: 6 of 8 against 2 of 8.
    groups = [*(fail_members(draw, reason) for draw in range(3)), fail_members(3, "the reward is nan")]
    with pytest.raises(EnvironmentFault) as caught:
        FailurePolicy(max_retries=0, max_invalid_share=0.4).check(groups)
    example = reason.format(task=make_draw(0).task.id, draw=0, member=0)
    assert str(caught.value).endswith(f"most often (6x): {example}")


def test_failures_that_differ_in_what_went_wrong_are_different_causes() -> None:
    groups = [
        fail_members(0, "status 500 after 1/2 tries"),
        fail_members(1, "status 503"),
        fail_members(2, "status 503"),
    ]
    with pytest.raises(EnvironmentFault, match=r"most often \(4x\): status 503$"):
        FailurePolicy(max_retries=0, max_invalid_share=0.4).check(groups)


def test_what_building_an_environment_raises_ends_the_run_and_nothing_hangs(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [HANG])

    def build(task: Task) -> Room:
        if world.num_built == 2:
            raise ValueError("no such world")
        return world.build(task)

    worker = replace(make_worker(world), build_environment=build)
    with pytest.raises(ValueError, match="no such world"):
        asyncio.run(worker.run_groups([make_draw(0)], group_size=3))
    assert world.num_built == world.num_closed == 2


# ------------------------------------------------------------------------------------------------ over-draw and cuts


def stream_one(
    world: World, *, group_size: int, overdraw: int, max_open: int = 64, max_retries: int = 0
) -> TrajectoryGroup:
    """One group with over-draw, awaited at most 10 s."""

    async def run() -> TrajectoryGroup:
        worker = make_worker(world, max_open=max_open, max_retries=max_retries)
        stream = GroupStream(worker, group_size=group_size, overdraw=overdraw)
        stream.start(make_draw(0), version=3)
        group = await asyncio.wait_for(stream.next(), 10)
        assert stream.num_open == 0
        return group

    group = asyncio.run(run())
    check_every_token_is_in_one_trajectory(world, [group])
    return group


@pytest.mark.parametrize("hang", [HANG, HANG_IN_TOOL, HANG_IN_SCORE])
def test_of_ten_members_the_first_eight_are_kept(renderer: TagRenderer, hang: str) -> None:
    world = World(renderer, lambda draw, member, attempt: [MORE, hang if member in (2, 5) else GOOD])
    group = stream_one(world, group_size=8, overdraw=2)
    assert [t.id.member for t in group.trajectories] == [0, 1, 3, 4, 6, 7, 8, 9]
    assert group.version == 3
    # The engine delivered both replies unless it was the one to hang.
    num_turns = 1 if hang == HANG else 2
    assert name_discarded(group) == [(m, 0, DropReason.OVERDRAWN, num_turns) for m in (2, 5)]
    assert all(each.trajectory.stop is StopReason.CUT for each in group.discarded)
    assert all(
        each.trajectory.reward == Invalid(reason=each.trajectory.error or "", retryable=False)
        for each in group.discarded
    )


def test_a_member_that_was_scored_after_the_others_is_discarded_with_its_reward(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [HANG_IN_CLOSE if member == 0 else GOOD])
    group = stream_one(world, group_size=2, overdraw=1)
    assert [t.id.member for t in group.trajectories] == [1, 2]
    (late,) = group.discarded
    assert (late.reason, late.trajectory.stop, late.trajectory.reward) == (
        DropReason.OVERDRAWN,
        StopReason.DONE,
        Scored(total=0.0),
    )


def test_members_that_never_started_leave_no_trace(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [GOOD])
    group = stream_one(world, group_size=2, overdraw=3, max_open=1)
    assert [t.id.member for t in group.trajectories] == [0, 1]
    assert (group.discarded, world.num_built) == ((), 2)


def test_failed_members_fill_up_only_where_there_is_no_other_way(renderer: TagRenderer) -> None:
    # Members 0 and 1 fail first; 2 and 3 are scored later and are enough.
    world = World(
        renderer,
        lambda draw, member, attempt: [BREAK] if member < 2 else [MORE, GOOD],
        yields=lambda session: 5 * int(session.name[0]),
    )
    group = stream_one(world, group_size=2, overdraw=2)
    assert [t.id.member for t in group.trajectories] == [2, 3]
    assert name_discarded(group) == [(0, 0, DropReason.OVERDRAWN, 1), (1, 0, DropReason.OVERDRAWN, 1)]
    # Only one of four is scored: a failed member stands in, visible as a failure.
    world = World(renderer, lambda draw, member, attempt: [GOOD] if member == 3 else [BREAK])
    group = stream_one(world, group_size=2, overdraw=2)
    assert group.rewards() == [None, 1.0]
    assert len(group.discarded) == 2


def test_a_member_that_fails_when_it_is_cut_is_not_tried_again(renderer: TagRenderer) -> None:
    # Member 0 fails and is slow to close; the cut arrives meanwhile.
    world = World(renderer, lambda draw, member, attempt: [BREAK_CLOSING if member == 0 else GOOD])
    group = stream_one(world, group_size=2, overdraw=1, max_retries=2)
    assert [t.id.member for t in group.trajectories] == [1, 2]
    assert name_discarded(group) == [(0, 0, DropReason.OVERDRAWN, 1)]
    assert world.num_built == 3


def test_retried_attempts_of_a_member_that_is_cut_stay_with_the_group(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [GOOD] if member else [[BREAK], [MORE, HANG]][attempt])
    group = stream_one(world, group_size=2, overdraw=1, max_retries=2)
    assert name_discarded(group) == [(0, 0, DropReason.RETRIED, 1), (0, 1, DropReason.OVERDRAWN, 1)]


def test_a_group_that_is_cut_ends_with_what_it_has(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [MORE, HANG] if draw == 0 and member else [GOOD])

    async def run() -> list[TrajectoryGroup]:
        stream = GroupStream(make_worker(world, max_open=3), group_size=4)
        stream.start(make_draw(0), version=0)
        stream.start(make_draw(1), version=0)
        # Three slots: both first members, then members 1 to 3 of draw 0 hold all slots.
        await wait_for(world, HANG, 3)
        assert stream.count_ended() == {0: 1, 1: 1}
        stream.cut(0)
        stream.cut(0)  # again: nothing
        stream.cut(7)  # unknown: nothing
        return [await asyncio.wait_for(stream.next(), 10) for _ in range(2)]

    late, other = asyncio.run(run())
    assert [t.id.member for t in late.trajectories] == [0]
    assert name_discarded(late) == [(member, 0, DropReason.LATE, 1) for member in (1, 2, 3)]
    assert (other.draw.index, other.rewards()) == (1, [1.0] * 4)  # the slots are free again
    check_every_token_is_in_one_trajectory(world, [late, other])


def test_a_group_that_is_cut_before_anything_started_is_empty(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [GOOD])

    async def run() -> TrajectoryGroup:
        stream = GroupStream(make_worker(world, max_open=1), group_size=2)
        stream.start(make_draw(0), version=0)
        stream.cut(0)
        return await asyncio.wait_for(stream.next(), 10)

    group = asyncio.run(run())
    assert (group.trajectories, group.discarded, world.num_built) == ((), (), 0)


def test_the_branches_of_a_member_that_is_cut_stay_with_the_group(renderer: TagRenderer) -> None:
    # Member 1 hangs in its branch: the world counts turns per session, so branch "1/0.1" plays the script anew.
    world = World(renderer, lambda draw, member, attempt: [MORE, GOOD])
    plain = world.generate

    async def generate(prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        if session.name == "1/0.1" and len([s for s, _ in world.delivered if s == session]) == 1:
            await asyncio.Event().wait()
        return await plain(prompt_ids, params, session=session)

    world.generate = generate  # type: ignore[method-assign]

    async def run() -> TrajectoryGroup:
        worker = replace(make_worker(world), branching=RandomTree(num_branches=1, num_rounds=1))
        stream = GroupStream(worker, group_size=1, overdraw=1)
        stream.start(make_draw(0), version=0)
        return await asyncio.wait_for(stream.next(), 10)

    group = asyncio.run(run())
    assert [t.id.member for t in group.trajectories] == [0]
    assert name_discarded(group) == [(1, 0, DropReason.OVERDRAWN, 3)]  # two turns of the attempt, one of the branch
    check_every_token_is_in_one_trajectory(world, [group])


@pytest.mark.parametrize("branching", [None, RandomTree(num_branches=2, num_rounds=2)])
@pytest.mark.parametrize("end", ["cut", "close"])
def test_whenever_a_group_is_cut_or_closed_nothing_is_lost_or_left_open(
    renderer: TagRenderer, end: str, branching: RandomTree | None
) -> None:
    def script(draw: int, member: int, attempt: int) -> list[str]:
        return [MORE, BREAK] if (member, attempt) == (1, 0) else [MORE, MORE, GOOD]

    async def run(world: World, num_iterations: int) -> TrajectoryGroup | None:
        worker = replace(make_worker(world, max_open=2), branching=branching)
        stream = GroupStream(worker, group_size=3)
        stream.start(make_draw(0), version=0)
        for _ in range(num_iterations):
            await asyncio.sleep(0)
        if end == "close":
            await asyncio.wait_for(stream.close(), 10)
            return None
        stream.cut(0)
        return await asyncio.wait_for(stream.next(), 10)

    num_kept = set()
    for num_iterations in range(0, 240, 1 if branching is None else 3):
        world = World(renderer, script, yields=lambda session: 2)
        group = asyncio.run(run(world, num_iterations))
        assert world.num_built == world.num_closed
        if group is not None:
            check_every_token_is_in_one_trajectory(world, [group])
            num_kept.add(len(group.trajectories))
    if end == "cut":
        assert num_kept == {0, 1, 2, 3}  # from before the first member ended until after the last


# ------------------------------------------------------------------------------------------------ closing


@pytest.mark.parametrize("hang", [HANG, HANG_IN_TOOL, HANG_IN_SCORE, HANG_IN_CLOSE])
def test_closing_the_stream_closes_every_environment(renderer: TagRenderer, hang: str) -> None:
    world = World(renderer, lambda draw, member, attempt: [MORE, hang])

    async def run() -> None:
        stream = GroupStream(make_worker(world, max_open=5), group_size=4)
        for index in range(2):
            stream.start(make_draw(index), version=0)
        await wait_for(world, hang)
        await asyncio.wait_for(stream.close(), 10)
        assert stream.num_open == 0
        assert world.num_built == world.num_closed <= 5
        # A stream that was closed is empty: the same draw may be started again.
        world.script = lambda draw, member, attempt: [GOOD]
        stream.start(make_draw(0), version=0)
        assert (await asyncio.wait_for(stream.next(), 10)).rewards() == [1.0] * 4

    asyncio.run(run())


def test_cancelling_run_groups_closes_every_environment(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [MORE, HANG])

    async def run() -> None:
        task = asyncio.create_task(make_worker(world).run_groups([make_draw(0), make_draw(1)], group_size=3))
        await wait_for(world, HANG, 6)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert world.num_built == world.num_closed == 6

    asyncio.run(run())


@pytest.mark.parametrize("how", ["raise", "hang", "swallow"])
def test_a_close_that_goes_wrong_holds_up_neither_the_run_nor_the_stream(
    renderer: TagRenderer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(loop, "CLOSE_S", 0.05)
    world = World(renderer, lambda draw, member, attempt: [MORE, GOOD if draw == 0 else HANG])

    class Stuck(Room):
        async def close(self) -> None:
            if how == "raise":
                raise OSError("cannot let go")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if how == "swallow":
                    await asyncio.sleep(60)
                raise

    async def run() -> TrajectoryGroup:
        worker = replace(make_worker(world, max_open=2), build_environment=lambda task: Stuck(world))
        stream = GroupStream(worker, group_size=4)
        stream.start(make_draw(0), version=0)
        group = await asyncio.wait_for(stream.next(), 10)
        stream.start(make_draw(1), version=0)
        await wait_for(world, HANG, 2)
        await asyncio.wait_for(stream.close(), 5)
        return group

    group = asyncio.run(run())
    assert group.rewards() == [1.0] * 4
    words = "cannot let go" if how == "raise" else "not done after 0.05 s"
    assert all(words in str(t.error) for t in group.trajectories)


def test_a_draw_is_started_once(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [GOOD])
    with pytest.raises(ValueError, match="draw 2 is already open"):
        run_groups(world, [make_draw(2), make_draw(2)], 1)
    assert world.num_built == world.num_closed


def test_groups_come_in_the_order_in_which_they_complete(renderer: TagRenderer) -> None:
    words: Mapping[int, int] = {0: 3, 1: 1, 2: 2}
    world = World(renderer, lambda draw, member, attempt: [MORE] * words[draw] + [GOOD], yields=lambda session: 10)

    async def run() -> list[int]:
        stream = GroupStream(make_worker(world), group_size=2)
        for index in words:
            stream.start(make_draw(index), version=index)
        groups = [await asyncio.wait_for(stream.next(), 10) for _ in words]
        assert all(group.version == group.draw.index for group in groups)
        return [group.draw.index for group in groups]

    assert asyncio.run(run()) == [1, 2, 0]


def test_prompts_grow_by_what_was_sampled_and_observed(renderer: TagRenderer) -> None:
    world = World(renderer, lambda draw, member, attempt: [MORE, MORE, GOOD])
    ((trajectory,),) = [group.trajectories for group in run_groups(world, [make_draw(0)], 1)]
    prompts = [prompt for _, prompt, _ in world.requests]
    for (before, after), (turn, next_turn) in zip(pairwise(prompts), pairwise(trajectory.turns), strict=True):
        assert after == [*before, *turn.completion.token_ids.tolist(), *next_turn.context_ids.tolist()]
