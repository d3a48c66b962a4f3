"""What a trajectory does, pinned with the scripted engine: stop reasons, limits, failures, deadlines, closing.

If a change breaks one of these, it changes what users train on; do not bend the test.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import ToolFailure
from turnwise.core.protocols import StepResult
from turnwise.core.types import (
    Completion,
    Draw,
    DropReason,
    Grammar,
    IntArray,
    Invalid,
    Message,
    Reward,
    SamplingParams,
    Scored,
    Session,
    StopReason,
    Task,
    ToolCall,
    ToolSpec,
    Trajectory,
    TrajectoryId,
    text_message,
)
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.rollout import loop
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import Cut, run_trajectory

LIMITS = Limits(max_turns=3, max_turn_tokens=40, max_tokens=400, timeout_s=5.0)
SAMPLING = Sampling(temperature=1.0, top_p=1.0, seed=7)
TASK = Task(environment="echo", prompt=(text_message("user", "What ?"),), payload={})
ATTEMPT = Attempt(draw=Draw(index=5, task=TASK), member=2, number=1)
SEARCH = Message(
    role="assistant", content=(), tool_calls=(ToolCall(id="c", name="search", arguments='{"query": "here"}'),)
)
ANSWER = "<answer> here </answer>"


@dataclass(eq=False)
class Log:
    """What the environments of one test did."""

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
    trajectory = asyncio.run(run_trajectory(ATTEMPT, Echo(log, broken), engine, renderer, limits, SAMPLING))
    return trajectory, log, engine


def test_search_then_answer(tokenizer: PreTrainedTokenizerBase) -> None:
    trajectory, log, engine = play(tokenizer, [SEARCH, ANSWER])
    assert trajectory.id == TrajectoryId(draw=5, member=2, attempt=1)
    assert trajectory.task_id == TASK.id
    assert {session for session, _, _ in engine.requests} == {Session("train/5", "2/1")}
    assert trajectory.stop is StopReason.DONE
    assert trajectory.reward == Scored(total=1.0)
    assert trajectory.error is None
    assert trajectory.conversations == ()  # one conversation, opened by the environment
    assert [t.parent for t in trajectory.turns] == [None, 0]
    assert trajectory.num_tool_calls == 1
    assert log.events == ["setup", "score", "close"]  # scored before it is closed
    first, second = (prompt.tolist() for _, prompt, _ in engine.requests)
    turn = trajectory.turns[0]
    # The second prompt is the first, then the sampled tokens, then only what the observation added.
    assert second == [*first, *turn.completion.token_ids.tolist(), *trajectory.turns[1].context_ids.tolist()]
    assert "found here" in tokenizer.decode(trajectory.turns[1].context_ids.tolist())


def test_replies_are_held_to_a_grammar_of_the_tools_on_offer(tokenizer: PreTrainedTokenizerBase) -> None:
    def name_them(tools: Sequence[ToolSpec]) -> Grammar:
        return Grammar(kind="regex", text="|".join(tool.name for tool in tools))

    renderer = TagRenderer(tokenizer)
    engine = ScriptedEngine(renderer, [SEARCH, ANSWER])
    sampling = replace(SAMPLING, build_grammar=name_them)
    asyncio.run(run_trajectory(ATTEMPT, Echo(Log([], [])), engine, renderer, LIMITS, sampling))
    assert [params.grammar for _, _, params in engine.requests] == [Grammar(kind="regex", text="search")] * 2
    _, _, free = play(tokenizer, [ANSWER])
    assert [params.grammar for _, _, params in free.requests] == [None]


class Counting(Echo):
    """Its state is the number of searches made; the broken one cannot name it."""

    def state_hash(self) -> str:
        if self._broken == "state":
            raise LookupError("no state")
        return f"{len(self.tool_records)} searches"


def test_a_turn_carries_the_state_its_reply_was_sampled_in(tokenizer: PreTrainedTokenizerBase) -> None:
    def run(environment: Echo, script: list[Message | str], limits: Limits = LIMITS) -> Trajectory:
        renderer = TagRenderer(tokenizer)
        engine = ScriptedEngine(renderer, script)
        return asyncio.run(run_trajectory(ATTEMPT, environment, engine, renderer, limits, SAMPLING))

    log = Log([], [])
    searched = run(Counting(log), [SEARCH, SEARCH, ANSWER])
    assert [turn.state for turn in searched.turns] == ["0 searches", "1 searches", "2 searches"]
    # Also where a limit cut the reply off before the environment saw it.
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
        ("hang", StopReason.TOOL_TIMEOUT, "ran longer than 0.05 s"),
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
    assert trajectory.reward.retryable
    assert trajectory.error is not None
    assert words in trajectory.error
    assert log.events[-1] == "close"


def test_an_engine_that_fails_is_a_failure_of_that_trajectory(tokenizer: PreTrainedTokenizerBase) -> None:
    trajectory, log, _ = play(tokenizer, [SEARCH])
    assert trajectory.stop is StopReason.ERROR
    assert trajectory.error is not None
    assert "the script is over" in trajectory.error
    assert len(trajectory.turns) == 1
    assert log.events[-1] == "close"


class Broken(ScriptedEngine):
    """Raises, hangs or lets itself be cancelled instead of replying; may misbehave when a session is released."""

    def __init__(self, renderer: TagRenderer, how: str = "", release: str = "") -> None:
        super().__init__(renderer, [SEARCH, ANSWER])
        self.how, self.on_release = how, release
        self.released: list[Session] = []

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        if self.how == "timeout":
            raise TimeoutError("no connection")
        if self.how == "hang":
            await asyncio.sleep(60)
        if self.how == "cancelled":
            future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
            future.cancel()  # as an engine that is closed does with its requests
            return await future
        return await super().generate(prompt_ids, params, session=session)

    async def release(self, session: Session) -> None:
        self.released.append(session)
        await misbehave(self.on_release)


async def misbehave(how: str) -> None:
    """Raise, hang, or hang and ignore one cancellation."""
    if how == "raise":
        raise OSError("cannot let go")
    if how == "hang":
        await asyncio.sleep(60)
    if how == "swallow":
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)


class Clinging(Echo):
    """Misbehaves when it is closed, or in a step."""

    def __init__(self, log: Log, *, on_close: str = "", on_step: str = "", on_score: str = "") -> None:
        super().__init__(log)
        self.on_close, self.on_step, self.on_score = on_close, on_step, on_score

    async def step(self, message: Message) -> StepResult:
        await misbehave(self.on_step)
        return await super().step(message)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        self._log.events.append("score begins")
        await misbehave(self.on_score)
        return await super().score(replies, stop)

    async def close(self) -> None:
        self._log.events.append("close begins")
        await misbehave(self.on_close)
        await super().close()


def run(
    renderer: TagRenderer, environment: Echo, engine: ScriptedEngine, limits: Limits = LIMITS
) -> tuple[Trajectory, float]:
    """The trajectory, and the seconds until it had ended."""

    async def timed() -> tuple[Trajectory, float]:
        started = time.perf_counter()
        trajectory = await run_trajectory(ATTEMPT, environment, engine, renderer, limits, SAMPLING)
        return trajectory, time.perf_counter() - started

    return asyncio.run(timed())


def test_the_whole_trajectory_has_a_deadline(tokenizer: PreTrainedTokenizerBase) -> None:
    log, renderer = Log([], []), TagRenderer(tokenizer)
    trajectory, _ = run(renderer, Echo(log), Broken(renderer, "hang"), replace(LIMITS, timeout_s=0.05))
    assert trajectory.stop is StopReason.ERROR
    assert trajectory.error == "TimeoutError: exceeded rollout.trajectory_timeout_s=0.05"
    assert trajectory.reward == Invalid(reason=trajectory.error, retryable=True)
    assert log.events[-1] == "close"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("timeout", "EngineError: the engine failed in session train/5/2/1: TimeoutError: no connection"),
        ("cancelled", "CancelledError: the engine or the environment cancelled"),
    ],
)
def test_a_time_out_or_cancellation_inside_the_engine_is_the_engines_failure(
    tokenizer: PreTrainedTokenizerBase, how: str, words: str
) -> None:
    log, renderer = Log([], []), TagRenderer(tokenizer)
    trajectory, _ = run(renderer, Echo(log), Broken(renderer, how))
    assert trajectory.stop is StopReason.ERROR
    assert trajectory.error is not None
    assert trajectory.error.startswith(words)
    assert trajectory.reward == Invalid(reason=trajectory.error, retryable=True)
    assert log.events[-1] == "close"


def test_a_step_that_ignores_its_deadline_is_left_behind(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CLOSE_S", 0.05)
    log, renderer = Log([], []), TagRenderer(tokenizer)
    environment, limits = Clinging(log, on_step="swallow"), replace(LIMITS, timeout_s=0.05)
    trajectory, seconds = run(renderer, environment, ScriptedEngine(renderer, [SEARCH]), limits)
    assert trajectory.error == "TimeoutError: exceeded rollout.trajectory_timeout_s=0.05"
    assert len(trajectory.turns) == 1  # what was sampled before
    assert log.events[-1] == "close"
    assert seconds < 5


@pytest.mark.parametrize("how", ["raise", "hang", "swallow"])
@pytest.mark.parametrize("where", ["close", "release"])
def test_what_goes_wrong_in_closing_is_noted_and_nothing_hangs(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch, where: str, how: str
) -> None:
    monkeypatch.setattr(loop, "CLOSE_S", 0.05)
    log, renderer = Log([], []), TagRenderer(tokenizer)
    engine = Broken(renderer, release=how if where == "release" else "")
    trajectory, seconds = run(renderer, Clinging(log, on_close=how if where == "close" else ""), engine)
    assert trajectory.stop is StopReason.DONE
    assert trajectory.reward == Scored(total=1.0)
    assert trajectory.error is not None
    assert ("cannot let go" if how == "raise" else "not done after 0.05 s") in trajectory.error
    begins = {"close": "EnvironmentFault: closing the environment", "release": "EngineError: releasing session"}
    assert trajectory.error.startswith(begins[where])
    assert "close begins" in log.events
    assert len(engine.released) == 1  # the one does not keep the other from being done
    assert seconds < 5


def test_a_close_may_be_a_plain_function_and_what_it_raises_for_the_model_is_a_problem_like_any_other(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    class Plain(Echo):
        def close(self) -> None:  # type: ignore[override]
            """Is no coroutine."""

    class Talking(Echo):
        async def close(self) -> None:
            raise ToolFailure("too late to tell the model")

    for kind, words in ((Plain, "None"), (Talking, "too late")):
        renderer = TagRenderer(tokenizer)
        trajectory, _ = run(renderer, kind(Log([], [])), ScriptedEngine(renderer, [ANSWER]))
        assert trajectory.reward == Scored(total=1.0)
        assert words in str(trajectory.error)


def test_a_failure_and_a_problem_in_closing_are_both_told(tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = TagRenderer(tokenizer)
    trajectory, _ = run(renderer, Clinging(Log([], []), on_close="raise"), Broken(renderer, "timeout", "raise"))
    assert trajectory.error is not None
    for words in ("no connection", "closing the environment", "releasing session"):
        assert words in trajectory.error
    assert isinstance(trajectory.reward, Invalid)
    assert "closing" not in trajectory.reward.reason


async def cancel_when(
    log: Log, event: str, work: Coroutine[Any, Any, Trajectory], cut: Cut, reason: DropReason | None, times: int = 1
) -> Any:
    """Start `work`, cancel it `times` times when the log has `event`, and await it. None: not as a cut."""
    task = asyncio.create_task(work)
    async with asyncio.timeout(10):
        while event not in log.events:
            await asyncio.sleep(0)
    cut.reason = reason
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.01)
    (result,) = await asyncio.gather(task, return_exceptions=True)
    return result


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("event", "environment", "stop"),
    [
        ("score begins", {"on_score": "hang"}, StopReason.CUT),
        # The environment ignores the cancellation: the cut waits CLOSE_S for it.
        ("score begins", {"on_score": "swallow"}, StopReason.CUT),
        ("close begins", {"on_close": "hang"}, StopReason.DONE),
    ],
)
def test_a_cut_while_scoring_or_closing_loses_no_turn(
    tokenizer: PreTrainedTokenizerBase,
    monkeypatch: pytest.MonkeyPatch,
    event: str,
    environment: dict[str, str],
    stop: StopReason,
    times: int,
) -> None:
    monkeypatch.setattr(loop, "CLOSE_S", 0.1)
    log, renderer = Log([], []), TagRenderer(tokenizer)
    engine, cut = ScriptedEngine(renderer, [SEARCH, ANSWER]), Cut()
    work = run_trajectory(ATTEMPT, Clinging(log, **environment), engine, renderer, LIMITS, SAMPLING, cut=cut)
    trajectory = asyncio.run(cancel_when(log, event, work, cut, DropReason.LATE, times))
    assert trajectory.stop is stop
    assert len(trajectory.turns) == 2
    assert log.events.count("close begins") == 1
    if stop is StopReason.CUT:
        assert trajectory.reward == Invalid(reason=trajectory.error, retryable=False)
    else:
        assert trajectory.reward == Scored(total=1.0)


def test_an_environment_that_ignores_a_cut_samples_nothing_more(tokenizer: PreTrainedTokenizerBase) -> None:
    class Stubborn(Echo):
        async def step(self, message: Message) -> StepResult:
            self._log.events.append("step begins")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return await super().step(message)
            raise AssertionError("nothing cancelled the step")

    log, renderer = Log([], []), TagRenderer(tokenizer)
    engine, cut = ScriptedEngine(renderer, [SEARCH, ANSWER]), Cut()
    work = run_trajectory(ATTEMPT, Stubborn(log), engine, renderer, LIMITS, SAMPLING, cut=cut)
    trajectory = asyncio.run(cancel_when(log, "step begins", work, cut, DropReason.OVERDRAWN))
    assert trajectory.stop is StopReason.CUT
    assert len(trajectory.turns) == len(engine.requests) == 1


@pytest.mark.parametrize("event", ["setup", "score begins", "close begins"])
def test_a_cancellation_goes_on_after_the_environment_was_closed(
    tokenizer: PreTrainedTokenizerBase, event: str
) -> None:
    class Slow(Clinging):
        async def close(self) -> None:
            self._log.events.append("close begins")
            await asyncio.sleep(0.03)
            self._log.events.append("closed")

    log, renderer = Log([], []), TagRenderer(tokenizer)
    engine = Broken(renderer, "hang" if event == "setup" else "")
    environment, cut = Slow(log, on_score="hang" if event == "score begins" else ""), Cut()
    work = run_trajectory(ATTEMPT, environment, engine, renderer, LIMITS, SAMPLING, cut=cut)
    result = asyncio.run(cancel_when(log, event, work, cut, None, times=2))
    assert isinstance(result, asyncio.CancelledError)
    assert log.events[-1] == "closed"
