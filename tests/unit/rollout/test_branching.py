"""Branched rollouts, pinned with scripted futures: where branches leave, what is recorded once, what fails alone, what
never trains."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import EngineError, EnvironmentFault, SandboxError, ToolFailure
from turnwise.core.paths import compute_state_values, first_path, split_paths, take_trained, trained_paths
from turnwise.core.types import (
    Completion,
    Draw,
    DropReason,
    FinishReason,
    IntArray,
    Invalid,
    Message,
    Reward,
    RewardPart,
    SamplingParams,
    Scored,
    Session,
    StopReason,
    Task,
    ToolCall,
    Trajectory,
    text_message,
    to_floats,
)
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.branching import Branching, EntropyTree, RandomTree, ValueEstimates, run_branched_trajectory
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import Cut

LIMITS = Limits(max_turns=4, max_turn_tokens=40, max_tokens=400, timeout_s=5.0)
SAMPLING = Sampling(temperature=1.0, top_p=1.0, seed=7)
TASK = Task(environment="echo", prompt=(text_message("user", "What ?"),), payload={})
RIGHT, WRONG, BREAK = "<answer> here </answer>", "<answer> nothing </answer>", "<search> break </search>"
SEARCH = "<search> here </search>"
HANG = "never answered"
ATTEMPT = Attempt(draw=Draw(index=0, task=TASK), member=0)
MAIN = "train/0/0/0"
Script = Sequence[str | tuple[str, float]]


class Futures:
    """An engine that plays one script per conversation: the attempt is "", its branches "1", "2" and so on. A reply may
    name the log-probability of each of its tokens; else it is -0.5."""

    def __init__(self, renderer: TagRenderer, scripts: Mapping[str, Script]) -> None:
        self.renderer, self.scripts, self.version = renderer, scripts, 0
        self.prompts: dict[str, list[list[int]]] = {}
        self.seeds: list[int] = []
        self.delivered: list[Completion] = []
        self.released: list[Session] = []

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        name = str(session).removeprefix(MAIN).removeprefix(".")
        asked = self.prompts.setdefault(name, [])
        asked.append(prompt_ids.tolist())
        self.seeds.append(params.seed)
        if name not in self.scripts or len(asked) > len(self.scripts[name]):
            raise EngineError(f"no reply {len(asked)} for branch {name!r}")
        step = self.scripts[name][len(asked) - 1]
        if step == HANG:
            await asyncio.Event().wait()
        text, logprob = step if isinstance(step, tuple) else (step, -0.5)
        message = text_message("assistant", text)
        if text.startswith("<search>"):
            query = text.removeprefix("<search> ").removesuffix(" </search>")
            call = ToolCall(id="c", name="search", arguments=f'{{"query": "{query}"}}')
            message = Message(role="assistant", content=(), tool_calls=(call,))
        ids = self.renderer.encode_reply(message)
        completion = Completion(
            token_ids=ids,
            logprobs=to_floats(np.full(len(ids), logprob)),
            finish_reason=FinishReason.STOP,
            version_first=0,
            version_last=0,
        )
        self.delivered.append(completion)
        return completion

    async def release(self, session: Session) -> None:
        self.released.append(session)

    async def close(self) -> None:
        """Nothing to free."""


class Maze(ToolEnvironment):
    """1.0 when the last reply says "here"; a search for "break" breaks it. Counts what is open."""

    num_open = 0

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        type(self).num_open += 1
        return task.prompt, [self.search]

    async def search(self, query: str) -> str:
        """Search.

        Args:
            query: What for.
        """
        if query == "break":
            raise OSError("broken")
        return f"found {len(self.tool_records)} here"

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        success = float(bool(replies) and "here" in replies[-1].text)
        return Scored(
            total=success,
            parts=(RewardPart(name="success", value=success), RewardPart(name="turns", value=float(len(replies)))),
        )

    async def teardown(self) -> None:
        type(self).num_open -= 1


class ForkingMaze(Maze):
    async def fork(self) -> "ForkingMaze":
        twin = self.copy_episode()
        type(self).num_open += 1
        return twin


@pytest.fixture(scope="module")
def renderer() -> TagRenderer:
    tokenizer: PreTrainedTokenizerBase = train_tokenizer(
        ["What ? here found nothing break 0 1 2 3"], vocab_size=300, special_tokens=TAG_SPECIAL_TOKENS
    )
    return TagRenderer(tokenizer)


def play(
    renderer: TagRenderer,
    branching: Branching,
    scripts: Mapping[str, Script],
    maze: type[Maze] = ForkingMaze,
    limits: Limits = LIMITS,
) -> tuple[Trajectory, Futures]:
    engine = Futures(renderer, scripts)
    maze.num_open = 0

    async def run() -> Trajectory:
        gate = asyncio.Semaphore(2)
        return await run_branched_trajectory(
            ATTEMPT, maze(), engine, renderer, limits, SAMPLING, branching=branching, gate=gate
        )

    trajectory = asyncio.run(run())
    assert maze.num_open == 0  # every environment and every snapshot was closed
    return trajectory, engine


async def wait_for_hanging(engine: Futures, name: str) -> None:
    """Until the second reply of a conversation, which never comes, is asked for."""
    async with asyncio.timeout(10):
        while len(engine.prompts.get(name, [])) < 2:
            await asyncio.sleep(0.001)


def check_every_token_is_kept_once(trajectory: Trajectory, engine: Futures) -> None:
    kept = sorted(id(turn.completion) for turn in trajectory.turns)
    assert kept == sorted(id(completion) for completion in engine.delivered)


VINE = {
    "": [SEARCH, SEARCH, RIGHT],
    "1": [RIGHT],
    "2": [WRONG],
    "3": [RIGHT],
    "4": [SEARCH, RIGHT],
    "5": [WRONG],
    "6": [WRONG],
}


def test_continuations_leave_every_state_and_value_it(renderer: TagRenderer) -> None:
    # Two from each of the three states: V(s0) = (1 + 0) / 2, V(s1) = (1 + 1) / 2, V(s2) = 0.
    trajectory, engine = play(renderer, ValueEstimates(num_continuations=2), VINE)
    assert trajectory.reward == Scored(
        total=1.0, parts=(RewardPart(name="success", value=1.0), RewardPart(name="turns", value=3.0))
    )
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 1, None, None, 0, 0, 6, 1, 1]
    assert compute_state_values(trajectory) == [0.5, 1.0, 0.0]
    assert [path.kind for path in split_paths(trajectory)] == ["first"] + ["estimate"] * 6
    totals = [ending.reward.total for ending in trajectory.endings if isinstance(ending.reward, Scored)]
    assert totals == [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    assert [ending.turn for ending in trajectory.endings] == [3, 4, 5, 7, 8, 9]
    check_every_token_is_kept_once(trajectory, engine)
    assert [path.num_shared for path in split_paths(trajectory)] == [0, 0, 0, 1, 1, 2, 2]
    assert take_trained(trajectory).turns == trajectory.turns[:3]
    assert len(first_path(trajectory).turns) == 3
    # A branch is asked with the very tokens of the attempt at that state; every reply has random numbers of its own.
    assert engine.prompts["3"][0] == engine.prompts[""][1]
    assert engine.prompts["5"][0] == engine.prompts[""][2]
    assert len(set(engine.seeds)) == len(engine.seeds) == 10
    assert len(engine.released) == 7
    # The branch goes on from the state of its fork: one search before, so its own is number 1.
    assert "found 1 here" in trajectory.turns[6].observations[0].text


@pytest.mark.parametrize("scripts", [{"": [SEARCH, HANG]}, {"": [SEARCH, RIGHT], "1": [SEARCH, HANG]}])
def test_cancelling_closes_every_snapshot(renderer: TagRenderer, scripts: Mapping[str, Script]) -> None:
    ForkingMaze.num_open = 0
    branching = RandomTree(num_branches=1, num_rounds=1)

    async def run() -> None:
        engine, gate, limits = Futures(renderer, scripts), asyncio.Semaphore(2), replace(LIMITS, timeout_s=60.0)
        work = run_branched_trajectory(
            ATTEMPT, ForkingMaze(), engine, renderer, limits, SAMPLING, branching=branching, gate=gate
        )
        task = asyncio.create_task(work)
        await wait_for_hanging(engine, max(scripts))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(run())
    assert ForkingMaze.num_open == 0


def test_paths_are_trajectories_of_their_own(renderer: TagRenderer) -> None:
    trajectory, _ = play(
        renderer, RandomTree(num_branches=1, num_rounds=1), {"": [SEARCH, RIGHT], "1": [SEARCH, SEARCH, SEARCH]}
    )
    first, leaf = split_paths(trajectory)
    assert (first.kind, first.trajectory.stop, first.trajectory.reward) == ("first", StopReason.DONE, trajectory.reward)
    assert (leaf.kind, leaf.turns, leaf.num_shared, leaf.trains) == ("leaf", (0, 2, 3, 4), 1, True)
    assert leaf.trajectory.stop is StopReason.MAX_TURNS  # 1 shared + 3 own replies
    assert leaf.trajectory.reward == Scored(
        total=0.0, parts=(RewardPart(name="success", value=0.0), RewardPart(name="turns", value=4.0))
    )
    assert [turn.parent for turn in leaf.trajectory.turns] == [None, 0, 1, 2]
    assert take_trained(trajectory).turns == trajectory.turns


def test_later_rounds_may_leave_earlier_branches(renderer: TagRenderer) -> None:
    scripts: dict[str, Script] = {str(n): [SEARCH, WRONG] for n in range(1, 9)}
    scripts[""] = [SEARCH, RIGHT]
    trajectory, _ = play(renderer, RandomTree(num_branches=4, num_rounds=2), scripts)
    paths = split_paths(trajectory)
    assert len(paths) == 9
    # The attempt has one state after a reply. Its four branches have one each; of these five the second round uses
    # four.
    assert [path.num_shared for path in paths[1:5]] == [1, 1, 1, 1]
    assert {path.num_shared for path in paths[5:]} == {1, 2} or [path.num_shared for path in paths[5:]] == [2, 2, 2, 2]
    # Without repetition while there are enough states.
    assert len({path.turns[path.num_shared - 1] for path in paths[5:]}) == 4


def test_branches_go_where_the_policy_became_uncertain(renderer: TagRenderer) -> None:
    # With threshold 0 and a large weight, u - 1000 (H - H0) <= 0 decides by the sign of the change alone (u is never
    # exactly 0).
    certain, unsure = -0.1, -3.0
    scripts: dict[str, Script] = {
        "": [(SEARCH, certain), (SEARCH, certain), (RIGHT, unsure)],
        "1": [(SEARCH, unsure), (WRONG, unsure)],
        "2": [(WRONG, certain)],
        "3": [(WRONG, certain)],
    }
    plan = EntropyTree(num_branches=3, vocab_size=300, weight=1000.0, threshold=0.0)
    trajectory, _ = play(renderer, plan, scripts)
    first, *branches = split_paths(trajectory)
    # Round 1: before the attempt's third reply. Round 2: before the branch's own second one. What is left starts
    # afresh.
    assert [path.turns[: path.num_shared] for path in branches] == [(0, 1), (0, 1, 3), ()]
    assert first.turns == (0, 1, 2)
    assert all(path.kind == "leaf" for path in branches)
    assert trajectory.turns[branches[2].turns[0]].parent is None
    assert np.array_equal(trajectory.turns[branches[2].turns[0]].context_ids, trajectory.turns[0].context_ids)


def test_without_a_rise_of_entropy_the_budget_starts_afresh(renderer: TagRenderer) -> None:
    scripts = {"": [SEARCH, RIGHT], "1": [RIGHT], "2": [WRONG]}
    trajectory, _ = play(renderer, EntropyTree(num_branches=2, vocab_size=300, weight=0.0, threshold=0.0), scripts)
    assert [path.num_shared for path in split_paths(trajectory)] == [0, 0, 0]


def test_a_branch_that_fails_fails_alone_and_never_trains(renderer: TagRenderer) -> None:
    scripts = {"": [SEARCH, RIGHT], "1": [BREAK], "2": [WRONG]}
    trajectory, _ = play(renderer, RandomTree(num_branches=2, num_rounds=1), scripts)
    assert isinstance(trajectory.reward, Scored)
    # The failed one comes last, whatever its number.
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 0, 0]
    kinds = [(path.kind, path.trains) for path in split_paths(trajectory)]
    assert kinds == [("first", True), ("leaf", True), ("leaf", False)]
    assert [ending.turn for ending in trajectory.endings] == [2, 3]
    assert [ending.stop for ending in trajectory.endings] == [StopReason.DONE, StopReason.ERROR]
    assert isinstance(trajectory.endings[1].reward, Invalid)
    assert len(trained_paths(trajectory)) == 2
    assert take_trained(trajectory).turns == trajectory.turns[:3]
    assert take_trained(trajectory).endings == trajectory.endings[:1]


def test_one_failed_continuation_is_left_out_of_the_mean_and_all_of_them_make_the_attempt_invalid(
    renderer: TagRenderer,
) -> None:
    some, _ = play(renderer, ValueEstimates(num_continuations=2), {"": [RIGHT], "1": [BREAK], "2": [RIGHT]})
    assert compute_state_values(some) == [1.0]
    none, _ = play(renderer, ValueEstimates(num_continuations=2), {"": [RIGHT], "1": [BREAK]})
    assert isinstance(none.reward, Invalid)
    assert none.reward.retryable
    assert "every continuation from one state failed" in none.reward.reason
    assert none.num_sampled_tokens > 0  # what was sampled stays on record


def test_an_attempt_that_fails_has_no_branches(renderer: TagRenderer) -> None:
    trajectory, engine = play(renderer, ValueEstimates(num_continuations=2), {"": [SEARCH, BREAK]})
    assert isinstance(trajectory.reward, Invalid)
    assert list(engine.prompts) == [""]


def test_an_environment_that_cannot_fork_says_so(renderer: TagRenderer) -> None:
    trajectory, _ = play(renderer, ValueEstimates(num_continuations=1), {"": [RIGHT]}, maze=Maze)
    assert isinstance(trajectory.reward, Invalid)
    assert "Maze has no fork()" in trajectory.reward.reason


def test_a_fork_that_cannot_be_forked_is_closed(renderer: TagRenderer) -> None:
    class Once(Maze):
        """Its forks have no fork()."""

        async def fork(self) -> Maze:
            twin = Maze()
            await twin.reset(TASK, 0)
            return twin

    Maze.num_open = 0
    trajectory, _ = play(renderer, ValueEstimates(num_continuations=1), {"": [RIGHT]}, maze=Once)
    assert isinstance(trajectory.reward, Invalid)
    assert "returned a Maze, which has no fork()" in trajectory.reward.reason
    assert Maze.num_open == 0


@pytest.mark.parametrize(
    ("fault", "words"),
    [(SandboxError("no room"), "no room"), (ToolFailure("not so"), "not so"), (None, "trajectory_timeout_s=0.2")],
)
def test_a_state_that_cannot_be_forked_again_fails_its_branch_alone(
    renderer: TagRenderer, fault: Exception | None, words: str
) -> None:
    class Brittle(ForkingMaze):
        """A fork of a fork raises, or hangs where there is no fault to raise."""

        is_fork = False

        async def fork(self) -> "Brittle":
            if self.is_fork and fault is not None:
                raise fault
            if self.is_fork:
                await asyncio.sleep(60)
            twin = self.copy_episode()
            twin.is_fork = True
            type(self).num_open += 1
            return twin

    limits = replace(LIMITS, timeout_s=0.2)
    trajectory, _ = play(renderer, ValueEstimates(num_continuations=1), {"": [RIGHT]}, maze=Brittle, limits=limits)
    assert isinstance(trajectory.reward, Invalid)
    assert "every continuation from one state failed" in trajectory.reward.reason
    assert words in trajectory.reward.reason


@pytest.mark.parametrize(
    ("scripts", "parents", "stops"),
    [
        # The attempt itself is under way: what it has, and no branch.
        ({"": [SEARCH, HANG]}, [None], []),
        # One branch has ended and two are under way; that which asks for its first reply leaves nothing.
        ({"": [SEARCH, RIGHT], "1": [WRONG], "2": [SEARCH, HANG], "3": [HANG]}, [None, 0, 0, 0], ["done", "cut"]),
    ],
)
def test_a_cut_keeps_every_token_of_the_branches(
    renderer: TagRenderer, scripts: Mapping[str, Script], parents: list[int | None], stops: list[str]
) -> None:
    ForkingMaze.num_open = 0
    engine, cut, name = Futures(renderer, scripts), Cut(), "2" if "2" in scripts else ""

    async def run() -> Trajectory:
        work = run_branched_trajectory(
            ATTEMPT,
            ForkingMaze(),
            engine,
            renderer,
            replace(LIMITS, timeout_s=60.0),
            SAMPLING,
            branching=RandomTree(num_branches=3, num_rounds=2),
            gate=asyncio.Semaphore(3),
            cut=cut,
        )
        task = asyncio.create_task(work)
        await wait_for_hanging(engine, name)
        cut.reason = DropReason.LATE
        task.cancel()
        return await task

    trajectory = asyncio.run(run())
    assert trajectory.stop is StopReason.CUT
    assert trajectory.reward == Invalid(reason=str(trajectory.error), retryable=False)
    assert [turn.parent for turn in trajectory.turns] == parents
    assert [ending.stop for ending in trajectory.endings] == stops
    check_every_token_is_kept_once(trajectory, engine)
    assert ForkingMaze.num_open == 0


def test_a_cut_that_comes_while_the_attempt_is_closed_samples_no_branch(renderer: TagRenderer) -> None:
    closing = asyncio.Event()

    class Slow(ForkingMaze):
        async def close(self) -> None:
            closing.set()
            await asyncio.sleep(0.02)
            await super().close()

    Slow.num_open = 0
    engine, cut = Futures(renderer, {"": [SEARCH, RIGHT], "1": [RIGHT]}), Cut()

    async def run() -> Trajectory:
        plan = ValueEstimates(num_continuations=1)
        gate = asyncio.Semaphore(3)
        work = run_branched_trajectory(
            ATTEMPT, Slow(), engine, renderer, LIMITS, SAMPLING, branching=plan, gate=gate, cut=cut
        )
        task = asyncio.create_task(work)
        await closing.wait()
        cut.reason = DropReason.LATE
        task.cancel()
        return await task

    trajectory = asyncio.run(run())
    assert trajectory.stop is StopReason.CUT
    assert list(engine.prompts) == [""]
    check_every_token_is_kept_once(trajectory, engine)
    assert Slow.num_open == 0


def test_cancelling_while_snapshots_are_closed_closes_them_all(renderer: TagRenderer) -> None:
    closed: list[str] = []

    class Slow(ForkingMaze):
        async def close(self) -> None:
            closed.append("begins")
            await asyncio.sleep(0.02)
            await super().close()

    Slow.num_open = 0
    engine = Futures(renderer, {"": [SEARCH, RIGHT], "1": [WRONG]})

    async def run() -> None:
        plan, gate = RandomTree(num_branches=1, num_rounds=1), asyncio.Semaphore(3)
        work = run_branched_trajectory(ATTEMPT, Slow(), engine, renderer, LIMITS, SAMPLING, branching=plan, gate=gate)
        task = asyncio.create_task(work)
        async with asyncio.timeout(10):
            while len(closed) < 3:  # the attempt, its branch, then the first snapshot
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(run())
    assert Slow.num_open == 0


def test_a_fork_and_its_original_are_independent() -> None:
    call = Message(
        role="assistant", content=(), tool_calls=(ToolCall(id="c", name="search", arguments='{"query": "x"}'),)
    )

    async def run() -> tuple[list[str], int]:
        original = ForkingMaze()
        await original.reset(TASK, 0)
        await original.step(call)
        twin = await original.fork()
        texts = [(await environment.step(call)).observations[0].text for environment in (original, twin, twin)]
        await twin.close()
        texts.append((await original.step(call)).observations[0].text)  # closing one leaves the other open
        await original.close()
        with pytest.raises(EnvironmentFault, match="forked outside an open episode"):
            await original.fork()
        return texts, len(original.tool_records)

    # One search before the fork: both go on with number 1.
    assert asyncio.run(run()) == (["found 1 here", "found 1 here", "found 2 here", "found 2 here"], 3)


def test_a_tool_of_another_object_is_not_shared_by_accident() -> None:
    other = Maze()

    class Borrowed(ForkingMaze):
        async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
            return task.prompt, [other.search]

    async def run() -> None:
        environment = Borrowed()
        await environment.reset(TASK, 0)
        with pytest.raises(EnvironmentFault, match=r"tool 'search' of Borrowed is not one of its methods"):
            await environment.fork()

    asyncio.run(run())
