"""What a trajectory does, pinned with the scripted engine: stop reasons, limits, failures, retries, seeds.

If a change breaks one of these, it changes what users train on; do not bend the test.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import (
    Grammar,
    Invalid,
    Message,
    Reward,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolSpec,
    Trajectory,
    text_message,
)
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.rollout.group import FailurePolicy, RolloutWorker
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import Attempt, Sampling, run_trajectory

LIMITS = Limits(max_turns=3, max_turn_tokens=40, max_tokens=400, timeout_s=5.0)
SAMPLING = Sampling(temperature=1.0, top_p=1.0, seed=7)
TASK = Task(environment="echo", prompt=(text_message("user", "What ?"),), payload={})
SEARCH = Message(
    role="assistant", content=(), tool_calls=(ToolCall(id="c", name="search", arguments='{"query": "here"}'),)
)
ANSWER = "<answer> here </answer>"


@dataclass(eq=False)
class Log:
    """What happened to the environments of one test."""

    events: list[str]
    seeds: list[int]


class Echo(ToolEnvironment):
    """Answers a search with the query; 1.0 when the last reply says "here". Can be told to misbehave."""

    def __init__(self, log: Log, broken: str = "") -> None:
        super().__init__(tool_timeout_s=0.05)
        self._log, self._broken = log, broken

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        self._log.events.append("setup")
        self._log.seeds.append(seed)
        if self._broken == "setup":
            raise OSError("no disk")
        return task.prompt, [self.search]

    async def search(self, query: str) -> str:
        """Search.

        Args:
            query: What for.
        """
        if self._broken == "tool":
            raise ZeroDivisionError("boom")
        if self._broken == "hang":
            await asyncio.sleep(60)
        return f"found {query}"

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        self._log.events.append("score")
        if self._broken == "score":
            raise KeyError("gold")
        return Scored(total=float(bool(replies) and "here" in replies[-1].text))

    async def teardown(self) -> None:
        self._log.events.append("close")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_tokenizer(["What ? here found nothing"], vocab_size=300, special_tokens=TAG_SPECIAL_TOKENS)


def play(
    tokenizer: PreTrainedTokenizerBase, script: Sequence[Message | str], *, broken: str = "", limits: Limits = LIMITS
) -> tuple[Trajectory, Log, ScriptedEngine]:
    log = Log([], [])
    renderer = TagRenderer(tokenizer)
    engine = ScriptedEngine(renderer, list(script))
    attempt = Attempt(task=TASK, group_id="g", member=0)
    trajectory = asyncio.run(run_trajectory(attempt, Echo(log, broken), engine, renderer, limits, SAMPLING))
    return trajectory, log, engine


def test_search_then_answer(tokenizer: PreTrainedTokenizerBase) -> None:
    trajectory, log, engine = play(tokenizer, [SEARCH, ANSWER])
    assert trajectory.stop is StopReason.DONE
    assert trajectory.reward == Scored(total=1.0)
    assert [t.parent for t in trajectory.turns] == [None, 0]
    assert trajectory.num_tool_calls == 1
    assert log.events == ["setup", "score", "close"]  # scored before it is closed
    first, second = (prompt.tolist() for _, prompt, _ in engine.requests)
    turn = trajectory.turns[0]
    # The second prompt is the first, then the sampled tokens, then only what the observation added.
    assert second == [*first, *turn.completion.token_ids.tolist(), *trajectory.turns[1].context_ids.tolist()]
    assert "found here" in tokenizer.decode(trajectory.turns[1].context_ids.tolist())


def test_every_turn_has_a_seed_of_its_own_and_a_group_shares_the_environments(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    log = Log([], [])
    renderer = TagRenderer(tokenizer)
    engine = ScriptedEngine(renderer, [SEARCH, ANSWER])
    worker = build_worker(engine, renderer, lambda: Echo(log))
    asyncio.run(worker.run_groups([("a", TASK), ("b", TASK)], group_size=2))
    seeds = {(session, turn): params.seed for turn, (session, _, params) in enumerate(engine.requests)}
    assert len(set(seeds.values())) == 8  # 2 groups x 2 members x 2 turns
    assert sorted(log.seeds.count(seed) for seed in set(log.seeds)) == [2, 2]


def test_replies_are_held_to_a_grammar_of_the_tools_on_offer(tokenizer: PreTrainedTokenizerBase) -> None:
    def name_them(tools: Sequence[ToolSpec]) -> Grammar:
        return Grammar(kind="regex", text="|".join(tool.name for tool in tools))

    renderer = TagRenderer(tokenizer)
    engine = ScriptedEngine(renderer, [SEARCH, ANSWER])
    sampling = replace(SAMPLING, build_grammar=name_them)
    asyncio.run(
        run_trajectory(
            Attempt(task=TASK, group_id="g", member=0), Echo(Log([], [])), engine, renderer, LIMITS, sampling
        )
    )
    assert [params.grammar for _, _, params in engine.requests] == [Grammar(kind="regex", text="search")] * 2
    _, _, free = play(tokenizer, [ANSWER])
    assert [params.grammar for _, _, params in free.requests] == [None]


class Counting(Echo):
    """Its state is the number of searches made; cannot tell it where it is told so."""

    def state_hash(self) -> str:
        if self._broken == "state":
            raise LookupError("no state")
        return f"{len(self.tool_records)} searches"


def test_a_turn_carries_the_state_its_reply_was_sampled_in(tokenizer: PreTrainedTokenizerBase) -> None:
    def run(environment: Echo, script: list[Message | str], limits: Limits = LIMITS) -> Trajectory:
        renderer = TagRenderer(tokenizer)
        engine = ScriptedEngine(renderer, script)
        return asyncio.run(
            run_trajectory(Attempt(task=TASK, group_id="g", member=0), environment, engine, renderer, limits, SAMPLING)
        )

    log = Log([], [])
    searched = run(Counting(log), [SEARCH, SEARCH, ANSWER])
    assert [turn.state for turn in searched.turns] == ["0 searches", "1 searches", "2 searches"]
    # Known too where a limit cut the reply off before the environment saw it.
    assert [turn.state for turn in run(Counting(log), [SEARCH], replace(LIMITS, max_turn_tokens=2)).turns] == [
        "0 searches"
    ]
    assert [turn.state for turn in run(Echo(log), [ANSWER]).turns] == [None]
    failed = run(Counting(log, broken="state"), [ANSWER])
    assert isinstance(failed.reward, Invalid)
    assert "state_hash of environment 'echo'" in failed.reward.reason


@pytest.mark.parametrize(
    ("script", "limits", "stop"),
    [
        ([SEARCH] * 9, LIMITS, StopReason.MAX_TURNS),
        # The opening has 2 tokens, the search 3, its observation 4.
        ([SEARCH, ANSWER], replace(LIMITS, max_turn_tokens=2), StopReason.MAX_TURN_TOKENS),
        ([SEARCH, ANSWER], replace(LIMITS, max_tokens=9), StopReason.MAX_TOKENS),
    ],
)
def test_each_limit_has_its_reason_and_the_trajectory_is_still_scored(
    tokenizer: PreTrainedTokenizerBase, script: list[Message | str], limits: Limits, stop: StopReason
) -> None:
    trajectory, log, _ = play(tokenizer, script, limits=limits)
    assert trajectory.stop is stop
    assert trajectory.stop.is_truncated
    assert isinstance(trajectory.reward, Scored)
    assert log.events == ["setup", "score", "close"]
    assert sum(len(t.context_ids) + len(t.completion.token_ids) for t in trajectory.turns) <= limits.max_tokens
    assert len(trajectory.turns) <= limits.max_turns


def test_a_reply_that_does_nothing_is_answered_and_the_episode_goes_on(tokenizer: PreTrainedTokenizerBase) -> None:
    trajectory, _, _ = play(tokenizer, ["nothing", ANSWER])
    assert [e.kind for e in trajectory.turns[0].message.tool_errors] == ["no_action"]
    assert "error" in trajectory.turns[0].observations[0].text
    assert trajectory.reward == Scored(total=1.0)


@pytest.mark.parametrize(
    ("broken", "stop", "words"),
    [
        ("tool", StopReason.ERROR, "ZeroDivisionError: boom"),
        ("hang", StopReason.TOOL_TIMEOUT, "0.05 s"),
        ("score", StopReason.ERROR, "KeyError"),
        ("setup", StopReason.ERROR, "no disk"),
    ],
)
def test_a_failure_is_an_invalid_reward_with_its_cause_and_the_environment_is_closed(
    tokenizer: PreTrainedTokenizerBase, broken: str, stop: StopReason, words: str
) -> None:
    trajectory, log, _ = play(tokenizer, [SEARCH, ANSWER], broken=broken)
    assert trajectory.stop is stop
    assert isinstance(trajectory.reward, Invalid)
    assert words in trajectory.reward.reason
    assert trajectory.error is not None
    assert log.events[-1] == "close"


def test_an_engine_that_fails_is_a_failure_of_that_trajectory(tokenizer: PreTrainedTokenizerBase) -> None:
    trajectory, log, _ = play(tokenizer, [SEARCH])
    assert trajectory.stop is StopReason.ERROR
    assert trajectory.error is not None
    assert "the script ended" in trajectory.error
    assert len(trajectory.turns) == 1
    assert log.events[-1] == "close"


def test_the_whole_trajectory_has_a_deadline(tokenizer: PreTrainedTokenizerBase) -> None:
    class Slow(ScriptedEngine):
        async def generate(self, *args: object, **kwargs: object) -> None:  # type: ignore[override]
            await asyncio.sleep(60)

    log, renderer = Log([], []), TagRenderer(tokenizer)
    limits = replace(LIMITS, timeout_s=0.05)
    attempt = Attempt(task=TASK, group_id="g", member=0)
    trajectory = asyncio.run(run_trajectory(attempt, Echo(log), Slow(renderer, []), renderer, limits, SAMPLING))
    assert isinstance(trajectory.reward, Invalid)
    assert "trajectory_timeout_s=0.05" in trajectory.reward.reason
    assert log.events[-1] == "close"


def build_worker(
    engine: ScriptedEngine, renderer: TagRenderer, build: Callable[[], Echo], **policy: float
) -> RolloutWorker:
    return RolloutWorker(
        build_environment=build,
        engine=engine,
        renderer=renderer,
        limits=LIMITS,
        sampling=SAMPLING,
        failure=FailurePolicy(**{"max_retries": 2, "max_invalid_share": 0.4, **policy}),  # type: ignore[arg-type]
        max_concurrency=3,
    )


def test_a_retry_gets_a_fresh_environment_and_new_seeds(tokenizer: PreTrainedTokenizerBase) -> None:
    log, renderer = Log([], []), TagRenderer(tokenizer)
    engine = ScriptedEngine(renderer, [SEARCH, ANSWER])
    built: list[Echo] = []

    def build() -> Echo:
        built.append(Echo(log, "tool" if len(built) < 2 else ""))
        return built[-1]

    (group,) = asyncio.run(build_worker(engine, renderer, build).run_groups([("g", TASK)], group_size=1))
    assert group.trajectories[0].attempt == 2
    assert group.rewards() == [1.0]
    assert len(built) == 3
    assert len({params.seed for _, _, params in engine.requests}) == 4  # attempts 0 and 1 sampled once, attempt 2 twice


def test_every_attempt_that_is_thrown_away_is_told_with_its_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    log, renderer = Log([], []), TagRenderer(tokenizer)
    engine = ScriptedEngine(renderer, [SEARCH, ANSWER])
    built: list[Echo] = []

    def build() -> Echo:
        built.append(Echo(log, ["score", "tool", ""][len(built)]))
        return built[-1]

    told: list[Trajectory] = []
    worker = replace(build_worker(engine, renderer, build), on_retry=told.append)
    (group,) = asyncio.run(worker.run_groups([("g", TASK)], group_size=1))
    search, answer = (len(renderer.encode_reply(message)) for message in (SEARCH, text_message("assistant", ANSWER)))
    # The first attempt failed when it was scored, after both replies; the second at its only call.
    assert [(t.attempt, t.num_sampled_tokens) for t in told] == [(0, search + answer), (1, search)]
    assert all(isinstance(t.reward, Invalid) for t in told)
    assert group.trajectories[0].attempt == 2
    # What stays Invalid after the last attempt is not thrown away.
    told.clear()
    last = replace(build_worker(engine, renderer, lambda: Echo(log, "tool"), max_retries=1), on_retry=told.append)
    (group,) = asyncio.run(last.run_groups([("g", TASK)], group_size=1))
    assert ([t.attempt for t in told], group.trajectories[0].attempt, group.rewards()) == ([0], 1, [None])


def test_too_many_failures_stop_the_run_with_the_commonest_cause(tokenizer: PreTrainedTokenizerBase) -> None:
    log, renderer = Log([], []), TagRenderer(tokenizer)
    engine = ScriptedEngine(renderer, [SEARCH, ANSWER])
    worker = build_worker(engine, renderer, lambda: Echo(log, "tool"), max_retries=0)
    groups = asyncio.run(worker.run_groups([("g", TASK)], group_size=4))
    assert groups[0].rewards() == [None] * 4
    with pytest.raises(EnvironmentFault, match=r"4 of 4 .* boom"):
        worker.failure.check(groups)
    healthy = build_worker(engine, renderer, lambda: Echo(log))
    healthy.failure.check(asyncio.run(healthy.run_groups([("g", TASK)], group_size=4)))


def test_groups_and_members_come_back_in_the_order_given(tokenizer: PreTrainedTokenizerBase) -> None:
    log, renderer = Log([], []), TagRenderer(tokenizer)
    engine = ScriptedEngine(renderer, [SEARCH, ANSWER])
    groups = asyncio.run(
        build_worker(engine, renderer, lambda: Echo(log)).run_groups([(f"g{i}", TASK) for i in range(5)], group_size=3)
    )
    assert [g.group_id for g in groups] == [f"g{i}" for i in range(5)]
    assert [[t.member for t in g.trajectories] for g in groups] == [[0, 1, 2]] * 5
