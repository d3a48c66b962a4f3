"""What every environment family owes, with one conversation or several: `family_cases.py` lists them.

An episode is played as an evaluation plays it, by the desk that serves every caller outside a rollout.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, TypeVar

import pytest
from contract_table import list_names, read_contract, read_seam
from family_cases import CASES, EXCUSED, OWN, Case, build_family, shared_family

from turnwise.core.checked import to_asking
from turnwise.core.episodes import AskingEnvironment, EpisodeEnd
from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import (
    Environment,
    EnvironmentFamily,
    ForkableEnvironment,
    GoldAnswers,
    ScriptedPolicy,
    Split,
    StatefulEnvironment,
)
from turnwise.core.types import (
    Message,
    Reward,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolCallError,
    Trajectory,
    TrajectoryId,
    text_message,
)
from turnwise.environments.episodes import Episode, Played
from turnwise.evaluation.summary import is_success
from turnwise.serving.episode import OutsideEpisode

T = TypeVar("T")
WITH_CONTROLS = [(name, changes) for name, case in CASES.items() for changes in case.controls]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A case, and the family that its tests share."""

    name: str
    case: Case
    family: EnvironmentFamily

    def take(self, split: Split, count: int) -> list[Task]:
        return take(self.family, split, count)

    def play(self, task: Task, policy: str | ScriptedPolicy, seed: int = 0) -> tuple[Played, list[str | None]]:
        return run(play(self.family, task, policy, seed, max_turns=self.case.max_turns))


@pytest.fixture(params=CASES, scope="module")
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject(name=request.param, case=CASES[request.param], family=shared_family(request.param))


@pytest.fixture
def single(subject: Subject) -> Subject:
    """A subject of one conversation."""
    if isinstance(subject.family.build_environment(subject.family.task("train", 0)), AskingEnvironment):
        pytest.skip("asks in several conversations")
    return subject


def state_of(environment: object) -> str | None:
    return environment.state_hash() if isinstance(environment, StatefulEnvironment) else None


class Kept:
    """A family that keeps the environment it built last."""

    def __init__(self, family: EnvironmentFamily) -> None:
        self._family = family

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def build_environment(self, task: Task) -> Environment | AskingEnvironment:
        self.built = self._family.build_environment(task)
        return self.built


async def play(
    family: EnvironmentFamily, task: Task, policy: str | ScriptedPolicy, seed: int = 0, *, max_turns: int
) -> tuple[Played, list[str | None]]:
    """An episode, and the state after its opening and after every reply."""
    kept: Any = Kept(family)
    speaker = family.policy(policy) if isinstance(policy, str) else policy
    episode = Episode(kept, task, speaker, seed=seed, max_turns=max_turns)
    try:
        await episode.open()
        states = [state_of(kept.built)]
        while not episode.is_over:
            await episode.turn()
            states.append(state_of(kept.built))
        played = await episode.finish()
    finally:
        await episode.close()
    if not isinstance(kept.built, AskingEnvironment):  # either goes on with something to read, or is over
        assert all(bool(result.observations) != result.done for result in played.results)
    return played, states


class Fixed:
    """Says what is written down."""

    def __init__(self, replies: Sequence[Message]) -> None:
        self._left = iter(replies)

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return next(self._left)


def run(work: Awaitable[T]) -> T:
    async def await_it() -> T:
        return await work

    return asyncio.run(await_it())


def success(family: EnvironmentFamily, tasks: list[Task], policy: str, max_turns: int) -> float:
    """Share of the tasks that a policy succeeds on, judged as an evaluation does; of several roles, their mean."""

    async def play_all() -> list[Played]:
        return [(await play(family, task, policy, seed, max_turns=max_turns))[0] for seed, task in enumerate(tasks)]

    def succeeded(reward: Reward) -> bool:
        assert isinstance(reward, Scored)
        identity = TrajectoryId(draw=0, member=0)
        return is_success(Trajectory(id=identity, task_id="", turns=(), stop=StopReason.DONE, reward=reward))

    return mean(succeeded(reward) for played in run(play_all()) for reward in played.rewards.values())


def take(family: EnvironmentFamily, split: Split, count: int) -> list[Task]:
    def draw() -> Iterator[Task]:
        for index in range(count):
            try:
                yield family.task(split, index)
            except IndexError:
                return

    return list(draw())


# ------------------------------------------------------------------------------------------------ the list


of_all_packages = pytest.mark.skipif(find_spec("turnwise_worlds") is None, reason="the page tells of every package")


@of_all_packages
def test_every_environment_runs_through_this_contract_or_the_page_says_why_not() -> None:
    run_here = {case.family or name for name, case in CASES.items()} & set(OWN)
    assert run_here | set(EXCUSED) == set(OWN)
    assert not run_here & set(EXCUSED)
    root = Path(__file__).parents[2]
    assert [path for _, path in EXCUSED.values() if not (root / path).is_file()] == []
    runs, left_out = read_contract("test_environment_families.py")
    assert set(list_names(runs)) == (run_here | {"mcp"})
    said = [(names, reason) for names, _, reason in (part.partition(": ") for part in left_out.split("; "))]
    assert {name: reason for names, reason in said for name in list_names(names)} == {
        name: reason for name, (reason, _) in EXCUSED.items() if name != "mcp"
    }


@of_all_packages
def test_environments_that_ask_are_those_of_the_page() -> None:
    page = read_seam("`AskingEnvironment`")
    asking = {
        case.family or name
        for name, case in CASES.items()
        if isinstance(shared_family(name).build_environment(shared_family(name).task("train", 0)), AskingEnvironment)
    }
    assert set(list_names(page)) == asking | {"Environment"}


@of_all_packages
def test_families_with_gold_answers_are_those_of_the_page() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "branching.md").read_text(encoding="utf-8").split())
    listed = page.partition("`answer_reply(task, answer)`; ")[2].partition(" do.")[0]
    named = {case.family or name for name, case in CASES.items() if isinstance(shared_family(name), GoldAnswers)}
    assert set(list_names(listed)) - set(EXCUSED) == named & set(OWN) - set(EXCUSED)


# ------------------------------------------------------------------------------------------------ tasks


def test_a_task_is_a_pure_function_of_split_and_index(subject: Subject) -> None:
    family, other = subject.family, build_family(subject.name)
    assert isinstance(family, EnvironmentFamily)
    for split in ("train", "heldout"):
        forwards = take(family, split, 20)
        assert len(forwards) == 20
        assert [other.task(split, index) for index in reversed(range(20))][::-1] == forwards
        for task in forwards:
            assert json.loads(json.dumps(dict(task.payload))) == task.payload
            assert task.prompt
            assert all(message.text for message in task.prompt)
            # The identity is that of the content.
            assert task.id == replace(task, id="").id


def test_splits_share_no_task(subject: Subject) -> None:
    if subject.case.shares:
        pytest.skip(subject.case.shares)
    train, heldout = ({subject.case.identity(task) for task in subject.take(s, 150)} for s in ("train", "heldout"))  # type: ignore[arg-type]
    assert train
    assert heldout
    assert not train & heldout


def test_texts_are_as_many_as_asked_for_and_repeatable(subject: Subject) -> None:
    texts = subject.family.texts(30)
    assert len(texts) == 30
    assert all(texts)
    assert list(build_family(subject.name).texts(30)) == list(texts)


# ------------------------------------------------------------------------------------------------ policies


def test_the_oracle_succeeds_and_chance_does_not(subject: Subject) -> None:
    tasks = subject.take("heldout", 40)
    assert success(subject.family, tasks, "oracle", subject.case.max_turns) >= 0.95
    assert success(subject.family, tasks, "random", subject.case.max_turns) <= subject.case.chance


@pytest.mark.parametrize(("name", "changes"), WITH_CONTROLS)
def test_under_a_control_the_oracle_fails_the_same_tasks(name: str, changes: dict[str, Any]) -> None:
    case = CASES[name]
    plain, control = shared_family(name), build_family(name, **changes)
    tasks = [task for task in take(plain, "heldout", 60) if case.control_tasks(task)]
    assert [task for task in take(control, "heldout", 60) if case.control_tasks(task)] == tasks
    assert success(control, tasks, "oracle", case.max_turns) <= case.spoilt


def test_the_gold_answer_is_right_where_a_family_names_it(subject: Subject) -> None:
    family = subject.family
    if not isinstance(family, GoldAnswers):
        pytest.skip("names no gold answers")
    for task in subject.take("heldout", 8):
        reply = family.answer_reply(task, family.gold_answer(task))
        assert reply != family.answer_reply(task, "")
        played, _ = subject.play(task, Fixed([reply]))
        assert played.results[-1].done
        assert isinstance(played.reward, Scored)
        assert played.reward.part("success") == 1.0


# ------------------------------------------------------------------------------------------------ episodes


def timeless(played: Played) -> Played:
    results = tuple(
        replace(result, tool_records=tuple(replace(record, seconds=0.0) for record in result.tool_records))
        for result in played.results
    )
    return replace(played, results=results, seconds=())


def test_seeds_reproduce_an_episode(subject: Subject) -> None:
    for task in subject.take("train", 4):
        for policy in ("oracle", "random"):
            (one, states), (other, others) = (subject.play(task, policy, seed=3) for _ in range(2))
            assert timeless(one) == timeless(other)
            assert states == others


def test_what_the_model_reads_does_not_depend_on_the_gold_answer(subject: Subject) -> None:
    """Everything a policy is shown stays the same when the gold answer is another, for the same replies."""
    if not subject.case.gold:
        pytest.skip("has no gold answer in its payload")

    async def replay(task: Task, replies: Sequence[Message]) -> list[Any]:
        episode = OutsideEpisode(subject.family.build_environment(task), task, seed=0)
        try:
            await episode.begin()
            shown: list[Any] = [episode.wanted]
            for reply in replies:
                shown += [(answer.asked.asks, answer.asked.observations) for answer in await episode.reply(reply)]
            return shown
        finally:
            await episode.close()

    for task in subject.take("heldout", 6):
        played, _ = subject.play(task, "oracle")
        blind = replace(task, payload={**task.payload, **spoil(task.payload, subject.case.gold)})
        assert run(replay(blind, played.replies)) == run(replay(task, played.replies))


def spoil(payload: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    junk: dict[str, Any] = {
        "label": "bad",
        "answers": ["4711"],
        "evidence": [],
        "calls": [["nothing0", {}]],
        "missing": "nothing",
        "answer": "4711",
        "bug": {},
        "other_bugs": [],
        "hidden": [],
        "parts": [],
        "script": [],
    }
    return {key: junk[key] for key in keys if key in payload}


def test_an_environment_is_used_once(single: Subject) -> None:
    family = single.family
    task = family.task("train", 0)
    reply = family.policy("oracle").reply(task, task.prompt, Random(0))

    async def misuse() -> None:
        fresh = family.build_environment(task)
        assert isinstance(fresh, Environment)
        assert fresh is not family.build_environment(task)
        with pytest.raises(EnvironmentFault, match="stepped before reset"):
            await fresh.step(reply)
        await fresh.reset(task, 0)
        with pytest.raises(EnvironmentFault, match="reset twice"):
            await fresh.reset(task, 0)
        if not (await fresh.step(reply)).done:
            while not (await fresh.step(text_message("assistant", "<answer> \\boxed{nothing} </answer>"))).done:
                pass
        with pytest.raises(EnvironmentFault, match=r"after its episode ended|a third answer"):
            await fresh.step(reply)
        assert isinstance(await fresh.score([reply], StopReason.DONE), Scored)
        await fresh.close()
        await fresh.close()
        with pytest.raises(EnvironmentFault):
            await fresh.step(reply)

    run(misuse())


def test_an_environment_that_was_never_opened_is_closed(subject: Subject) -> None:
    async def close() -> None:
        unused = to_asking(subject.family.build_environment(subject.family.task("train", 0)))
        await unused.close()
        await unused.close()

    run(close())


def test_malformed_and_unknown_calls_are_answered(subject: Subject) -> None:
    error = ToolCallError(kind="bad_json", raw="{", message="a tool call is not valid JSON")
    wrong = [
        text_message("assistant", "x", tool_errors=(error,)),
        text_message("assistant", "", tool_calls=(ToolCall(id="c", name="no_such_tool", arguments="{}"),)),
        text_message("assistant", "", tool_calls=(ToolCall(id="c", name="search", arguments="{not json"),)),
    ]
    for task in subject.take("train", 3):
        for message in wrong:

            async def answer(task: Task = task, message: Message = message) -> Played:
                episode = Episode(subject.family, task, Fixed([message]), seed=0, max_turns=16)
                try:
                    await episode.open()
                    await episode.turn()
                    return await episode.finish()
                finally:
                    await episode.close()

            played = run(answer())
            if len(played.rewards) == 1:  # of several roles another may be asked already
                assert played.results[0].done or played.results[0].observations
            assert all(isinstance(reward, Scored) for reward in played.rewards.values())
            assert played.rewards[played.asks[0].role].part("success") in (None, 0.0)  # type: ignore[union-attr]


def test_an_episode_cut_by_a_limit_is_scored(subject: Subject) -> None:
    async def cut(task: Task) -> tuple[str, Mapping[str, Reward]]:
        environment = to_asking(subject.family.build_environment(task))
        asked = await environment.begin(task, 0)
        end = EpisodeEnd(stop=StopReason.MAX_TOKENS, conversation=asked.asks[0].conversation)
        rewards = await environment.score({}, end)
        await environment.close()
        return asked.asks[0].role, rewards

    for task in subject.take("heldout", 6):
        role, rewards = run(cut(task))
        assert all(isinstance(reward, Scored) for reward in rewards.values())
        assert rewards[role].part("success") in (None, 0.0)  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------ states and forks


def test_equal_states_have_equal_hashes_and_every_act_changes_them(subject: Subject) -> None:
    hashes: dict[str, str] = {}
    for task in subject.take("heldout", 8):
        (one, states), (_, others) = (subject.play(task, "oracle") for _ in range(2))
        assert states == others
        if states[0] is None:
            pytest.skip("has no states")
        acts: list[Any] = [[reply.text] for reply in one.replies]
        if subject.case.acts == "calls":
            acts = [[(r.call.name, r.call.arguments) for r in result.tool_records] for result in one.results]
        # A state is read before every reply; the one that ends an episode by words alone leaves the calls' as it was.
        read = states[: len(one.replies)]
        for index, state in enumerate(read):
            assert isinstance(state, str)
            moment = f"{task.id} after {[act for turn in acts[:index] for act in turn]}"
            assert subject.case.meets or hashes.setdefault(state, moment) == moment
        if subject.case.returns:
            assert all(before != after for before, after in pairwise(read))
        else:
            assert len(set(read)) == 1 + sum(map(len, acts[: len(read) - 1]))


def test_a_fork_and_its_origin_know_nothing_of_each_other(single: Subject) -> None:
    for task in single.take("train", 6):
        played, states = single.play(task, "oracle", seed=5)
        if len(played.replies) < 2:
            continue
        seen = [result.observations for result in played.results]

        async def branch(
            task: Task = task, played: Played = played, states: list[str | None] = states, seen: Any = seen
        ) -> None:
            environment = single.family.build_environment(task)
            assert isinstance(environment, Environment)
            await environment.reset(task, 5)
            if not isinstance(environment, ForkableEnvironment):
                return
            before = await environment.fork()
            await environment.step(played.replies[0])
            after = await environment.fork()
            assert state_of(after) == state_of(environment) == states[1]
            # The origin ends another way and closes; the forks go on as the episode did.
            if not (await environment.step(played.replies[0])).done:
                await environment.step(text_message("assistant", "<answer> nothing </answer> \\boxed{nothing}"))
            assert [state_of(before), state_of(after)] == states[:2]
            await environment.close()
            for twin, done in ((before, 0), (after, 1)):
                assert [(await twin.step(reply)).observations for reply in played.replies[done:]] == seen[done:]
                assert await twin.score(played.replies, StopReason.DONE) == played.reward
                await twin.close()

        run(branch())
