"""Judges: their limits, what they read and write, how a recipe names them, and what an episode keeps of them."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import Reply, chat_server
from installed import write_entry_points
from judge_parts import make_parts

from turnwise.audit.recheck import recheck_trajectory
from turnwise.building.copies import list_copies
from turnwise.config.judges import JudgeSection
from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError, EngineError, RewardError
from turnwise.core.judging import EpisodeJudges, JudgedFamily
from turnwise.core.protocols import Environment
from turnwise.core.types import (
    Draw,
    Grammar,
    Invalid,
    Message,
    Reward,
    Scored,
    StopReason,
    Task,
    TrajectoryGroup,
    text_message,
)
from turnwise.core.verdicts import Question, Usage, Verdict
from turnwise.environments.episodes import play_episode
from turnwise.environments.registry import load_family
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.judging.judge_kind import JudgeKind
from turnwise.judging.limits import LimitedJudge
from turnwise.judging.table import build_judge, find_judge
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.workers import FailurePolicy, RolloutWorker
from turnwise.runs.judges import build_judges, check_judges, refuse_model, refuse_policy
from turnwise.store.trajectories import load_groups, save_groups
from turnwise.testing import ScriptedEngine, build_tiny_renderer, build_tiny_tokenizer

QUESTION = Question(messages=(text_message("user", "a poem"),))
RENDERER = build_tiny_renderer(build_tiny_tokenizer(["score: 0.25 a poem Judge how good the following is"]))


class Answers:
    """A judge that gives these answers one after the other; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.seeds = list(answers), list[int]()

    async def judge(self, question: Question) -> Any:
        self.seeds.append(question.seed)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None: ...


def limit(judge: Any, **changes: Any) -> LimitedJudge:
    limits = {"max_concurrent": 2, "timeout_s": 20.0, "max_retries": 2, "seed": 1, **changes}
    return LimitedJudge(judge, name="grader", **limits)


def test_a_question_is_asked_again_with_another_seed_until_there_is_a_finite_score() -> None:
    answers = Answers(math.nan, EngineError("busy"), Verdict(score=0.5, text="fair"))
    verdict = asyncio.run(limit(answers).judge(QUESTION))
    assert (verdict.score, verdict.text) == (0.5, "fair")
    assert len(set(answers.seeds)) == 3


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (math.nan, r"its score is nan"),
        ("good", r"its score is 'good', not a finite number"),
        (KeyError("x"), r"it failed: KeyError"),
        (None, r"its score is None"),
    ],
)
def test_no_verdict_is_an_error_that_names_the_judge(answer: object, words: str) -> None:
    with pytest.raises(RewardError, match=rf"judge 'grader' gave no verdict \(2 attempts\): {words}"):
        asyncio.run(limit(Answers(answer, answer), max_retries=1).judge(QUESTION))


def test_a_judge_that_hangs_is_given_up_at_its_deadline() -> None:
    class Hangs(Answers):
        async def judge(self, question: Question) -> Any:
            await asyncio.Event().wait()

    with pytest.raises(RewardError, match=r"took longer than judges\.grader\.timeout_s=0\.01"):
        asyncio.run(limit(Hangs(), timeout_s=0.01, max_retries=0).judge(QUESTION))


def test_questions_wait_for_a_place() -> None:
    class Counts(Answers):
        num_open = most = 0

        async def judge(self, question: Question) -> float:
            self.num_open += 1
            self.most = max(self.most, self.num_open)
            await asyncio.sleep(0)
            self.num_open -= 1
            return 1.0

    counts = Counts()

    async def ask_all() -> None:
        judge = limit(counts)
        await asyncio.gather(*(judge.judge(QUESTION) for _ in range(7)))

    asyncio.run(ask_all())
    assert counts.most == 2


def test_an_episode_keeps_its_judgements_and_counts_equal_questions() -> None:
    judges = EpisodeJudges({"grader": limit(Answers(0.25, 0.75, 1.0))})

    async def ask() -> None:
        await judges.ask("grader", "a poem")
        await judges.ask("grader", "a poem")
        await judges.ask("grader", "a poem", rubric="rhyme")

    asyncio.run(ask())
    assert [each.question.seed for each in judges.judgements] == [0, 1, 0]
    with pytest.raises(RewardError, match=r"no judge is named 'other': the recipe has grader; use .*\[judges\.other\]"):
        asyncio.run(judges.ask("other", "a poem"))


def build(kind: str, options: dict[str, Any], **changes: Any) -> Any:
    section = JudgeSection(kind=kind, options=options, max_retries=0, cache=0)
    given = make_parts(options, find_judge=lambda name: Answers(0.5), **changes)
    return build_judge(section, find_judge("grader", section), given)


def test_a_checkpoint_judges_by_its_reply_and_leaves_its_session() -> None:
    engine = ScriptedEngine(RENDERER, ["score: 0.25", "score: 0.25", "a poem"])
    judge = build("frozen", {"path": "CHECKPOINT"}, load_model=lambda path: (engine, RENDERER))

    async def ask() -> list[Verdict]:
        return [await judge.judge(QUESTION), await judge.judge(QUESTION)]

    verdicts = asyncio.run(ask())
    assert [verdict.score for verdict in verdicts] == [0.25, 0.25]
    assert verdicts[0].model == "CHECKPOINT"
    assert engine.requests[0][0] != engine.requests[1][0]
    assert not engine._turns


def test_the_policy_judges_with_the_engine_that_samples_and_guided_with_the_grammar_of_the_form() -> None:
    engine = ScriptedEngine(RENDERER, ["score: 0.25"])
    given = make_parts({"guided": True}, load_policy=lambda: (engine, RENDERER), follows_grammars=True)
    judge = build_judge(JudgeSection(kind="policy"), find_judge("grader", JudgeSection(kind="policy")), given)

    async def ask() -> Verdict:
        verdict = await judge.judge(QUESTION)
        await judge.close()
        return verdict

    verdict = asyncio.run(ask())
    assert (verdict.score, verdict.marks, verdict.model) == (0.25, (("score", "0.25"),), "policy")
    [(_, prompt_ids, params)] = engine.requests
    assert params.grammar == Grammar(kind="regex", text=r"score: (0(\.[0-9]{1,4})?|1(\.0{1,4})?)")
    num_written = len(RENDERER.encode_reply(text_message("assistant", "score: 0.25")))
    assert verdict.usage == Usage(prompt_tokens=len(prompt_ids), reply_tokens=num_written)


def test_an_api_judges_and_a_reply_without_verdict_is_repeated_with_another_seed() -> None:
    replies: list[Reply] = ["well", "score: 0.5"]
    with chat_server(lambda prompt: replies.pop(0)) as (url, requests):
        section = JudgeSection(kind="api", options={"url": url, "model": "m"}, max_retries=1)
        judge = build_judge(section, find_judge("grader", section), make_parts(dict(section.options)))

        async def ask() -> Verdict:
            verdict = await judge.judge(replace(QUESTION, rubric="Does it rhyme?"))
            await judge.close()
            return verdict

        verdict = asyncio.run(ask())
    assert (verdict.score, verdict.text, verdict.model) == (0.5, "score: 0.5", "m")
    assert len(requests) == 2
    assert requests[0]["seed"] != requests[1]["seed"]
    assert requests[1]["messages"][0]["content"].startswith("Does it rhyme?")


def test_a_server_that_is_away_is_named_before_a_run() -> None:
    judge = build("api", {"url": "http://127.0.0.1:9/v1", "model": "m"})
    with pytest.raises(ConfigError, match=r"judges\.grader\.options\.url: no server answers at http://127\.0\.0\.1:9"):
        asyncio.run(check_judges({"grader": judge}))
    assert asyncio.run(check_judges({"grader": limit(Answers())})) == {"grader": "built"}


async def rate(question: Question, *, scale: float = 1.0) -> float:
    return scale * len(question.messages[-1].text)


RATE = JudgeKind(name="rate", summary="", build=lambda given: Answers(0.5))


@pytest.mark.parametrize(("path", "score"), [("test_judges:rate", 12.0), ("test_judges:RATE", 0.5)])
def test_a_function_and_a_row_at_an_import_path_judge(path: str, score: float) -> None:
    judge = build(path, {"scale": 2.0})
    assert asyncio.run(judge.judge(QUESTION)).score == score  # "a poem" has six letters


def test_an_installed_package_offers_a_judge_by_a_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_entry_points(tmp_path, "raters", {"turnwise.judges": {"rater": "test_judges:RATE"}})
    monkeypatch.syspath_prepend(tmp_path)
    assert asyncio.run(build("rater", {}).judge(QUESTION)).score == 0.5


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("apii", {}, r"judges\.grader\.kind='apii' is neither one of api, frozen, policy, ensemble, debate"),
        (
            "api",
            {"url": "http://x/v1"},
            r"judges\.grader\.options\.model is missing; judges\.grader\.kind='api' needs it",
        ),
        ("api", {"url": "x", "model": "m"}, r"judges\.grader\.options\.url x must be http"),
        (
            "api",
            {"url": "http://x/v1", "model": "m", "dialect": "anthropic", "guided": True},
            "takes no response_format",
        ),
        ("policy", {"guided": True}, r"judges\.grader\.options\.guided=true needs an engine that follows grammars"),
        ("policy", {}, "a judge is the policy, and nothing here has one"),
        ("ensemble", {"judges": ["a"]}, r"judges\.grader\.options\.judges"),
        ("ensemble", {"judges": ["a", "a"]}, "names a judge twice"),
        ("ensemble", {"judges": ["a", "b"], "min_verdicts": 3}, r"min_verdicts=3 is more than its 2 judges"),
        ("frozen", {"pth": "x"}, r"judges\.grader\.options\.pth is not an option .*did you mean 'path'"),
        ("frozen", {"path": "x"}, r"the checkpoint 'x' judges with the model's tokens, and nothing here has a model"),
        ("test_judges:nothing", {}, "test_judges has no 'nothing'"),
    ],
)
def test_what_cannot_judge_is_refused_in_one_line(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(kind, options)


def test_a_checkpoint_that_judges_is_planned_and_needs_an_engine_of_its_own() -> None:
    frozen = ["judges.grader.kind=frozen", "judges.grader.options.path=CHECKPOINT"]
    assert list_copies(load_config([], frozen)).frozen == ("CHECKPOINT",)
    config = load_config([], [*frozen, "engine.kind=server"])
    with pytest.raises(ConfigError, match=r"judges\.grader\.kind='frozen' with engine\.kind='server'"):
        build_judges(config, refuse_model, refuse_policy)


class Poet(ToolEnvironment):
    """The reply is the poem; a judge decides."""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        return task.prompt, ()

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        verdict = await self.judges.ask("grader", replies[-1].text)
        return Scored(total=verdict.score)


class PoetFamily:
    def task(self, split: str, index: int) -> Task:
        return Task(environment="poet", prompt=(text_message("user", "a poem"),), payload={})

    def build_environment(self, task: Task) -> Environment:
        return Poet()

    def policy(self, name: str) -> Any: ...

    def texts(self, count: int) -> list[str]:
        return []


FAMILY = PoetFamily()
DRAW = Draw(index=0, task=FAMILY.task("train", 0))


def run_episode(*answers: Any) -> Any:
    worker = RolloutWorker(
        build_environment=FAMILY.build_environment,
        engine=ScriptedEngine(RENDERER, ["<answer> a poem </answer>"]),
        renderer=RENDERER,
        limits=Limits(max_turns=2, max_turn_tokens=60, max_tokens=400, timeout_s=20.0),
        sampling=Sampling(temperature=1.0, build_grammar=None, seed=0),
        failure=FailurePolicy(max_retries=0, max_invalid_share=1.0),
        max_open=1,
        judges={"grader": limit(Answers(*answers), max_retries=0)},
    )
    return asyncio.run(worker.run_attempt(Attempt(draw=DRAW, member=0)))


def test_a_rollout_stores_what_judges_said_and_an_audit_reads_it(tmp_path: Path) -> None:
    episode = run_episode(Verdict(score=0.5, text="fair", model="m"))
    [trajectory] = episode.trajectories
    assert trajectory.reward == Scored(total=0.5)
    save_groups(tmp_path, "one", [TrajectoryGroup(draw=DRAW, trajectories=(trajectory,))], decode=None)
    [stored] = load_groups(tmp_path, "one")[0].trajectories
    assert stored.judgements == trajectory.judgements
    assert [each.verdict and each.verdict.text for each in stored.judgements] == ["fair"]

    def recheck(changed: Any) -> Any:
        return asyncio.run(
            recheck_trajectory(
                changed, DRAW.task, family=FAMILY, renderer=RENDERER, seed=0, run_tools=True, timeout_s=20
            )
        )

    assert (recheck(stored).breaches, recheck(stored).reward_checked) == ([], True)
    [(check, text)] = recheck(replace(stored, reward=Scored(total=0.75))).breaches
    assert check == "rewards"
    assert "0.5" in text


def test_a_judge_without_a_verdict_makes_the_reward_invalid() -> None:
    [trajectory] = run_episode(math.nan).trajectories
    assert isinstance(trajectory.reward, Invalid)
    assert trajectory.reward.retryable
    assert trajectory.reward.reason == "judge 'grader' gave no verdict: its score is nan, not a finite number"
    assert trajectory.stop is StopReason.DONE


class Painter:
    """A plain class that asks a judge."""

    def reset(self, seed: int) -> str:
        return "Paint."

    def paint(self, colour: str) -> str:
        """Paint.

        Args:
            colour: A colour.
        """
        self.done = True
        return "painted"

    async def get_reward(self, judges: EpisodeJudges) -> float:
        return (await judges.ask("grader", "a poem")).score

    def _oracle(self) -> tuple[str, dict[str, str]]:
        return "paint", {"colour": "red"}


class Impatient(Painter):
    def get_reward(self, judges: EpisodeJudges) -> float:  # type: ignore[override]
        return 0.0


def test_a_plain_class_asks_judges_and_must_await_them() -> None:
    family = JudgedFamily(load_family("test_judges:Painter", {}), {"grader": limit(Answers(0.5))})
    played = asyncio.run(play_episode(family, family.task("train", 0), family.policy("oracle"), seed=0, max_turns=2))
    assert played.reward == Scored(total=0.5)
    with pytest.raises(ConfigError, match=r"class Impatient: get_reward takes judges.*write async def"):
        load_family("test_judges:Impatient", {})
