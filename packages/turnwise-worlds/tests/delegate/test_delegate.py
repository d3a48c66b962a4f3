"""A planner and its searchers: what each sees, what the parts are worth, how calls without end are stopped."""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

import pytest

from turnwise.audit.replay import recheck_episode
from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.types import Draw, Episode, Message, Scored, StopReason, Task, ToolCall, text_message
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.environment import SearchEnvironment
from turnwise.environments.search_qa.policies import search_message
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.tokenizer import train_tokenizer
from turnwise.rollout.attempt import Attempt, Sampling, environment_seed
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import run_episode
from turnwise.rollout.policies import ScriptedRole
from turnwise_worlds.delegate.environment import NO_ANSWER, PLANNER, SEARCHER
from turnwise_worlds.delegate.family import Delegate

ARGUMENTS: dict[str, Any] = {
    "num_entities": 16,
    "tasks_per_world": 8,
    "num_words": 16,
    "num_distractors": 0,
    "document_format": "plain",
    "prompt": "short",
    "kinds": {"1hop": 0.25, "2hop": 0.75},
}
LIMITS = Limits(max_turns=6, max_turn_tokens=200, max_tokens=2000, timeout_s=60.0)


@cache
def renderer() -> CallsRenderer:
    texts = Delegate(**ARGUMENTS).texts(300)
    return CallsRenderer(train_tokenizer(texts, vocab_size=500, special_tokens=CALLS_FORMAT.special_tokens))


class Says:
    """A policy that is a function of what the conversation holds."""

    def __init__(self, say: Callable[[Sequence[Message]], Message]) -> None:
        self._say = say

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return self._say(messages)


def play(family: Delegate, policy: ScriptedPolicy, index: int = 0) -> Episode:
    task = family.task("heldout", index)
    policies = {role: ScriptedRole(policy=policy, renderer=renderer()) for role in (PLANNER, SEARCHER, "agent")}
    attempt = Attempt(draw=Draw(index=index, task=task), member=0)
    sampling = Sampling(temperature=1.0, seed=index)
    return asyncio.run(run_episode(attempt, family.build_environment(task), policies, LIMITS, sampling))


def success(policy: str, count: int, **arguments: Any) -> float:
    """Share of held-out tasks that a scripted policy answers right."""
    family = Delegate(**ARGUMENTS, **arguments)
    rewards = [play(family, family.policy(policy), i).trajectories[0].reward for i in range(count)]
    return sum(reward.part("success") or 0.0 for reward in rewards if isinstance(reward, Scored)) / count


def calls(*named: tuple[str, str]) -> Message:
    """A reply with several calls."""
    return Message(
        role="assistant",
        content=(),
        tool_calls=tuple(
            ToolCall(id=f"c{i}", name=name, arguments=json.dumps({"query": query}))
            for i, (name, query) in enumerate(named)
        ),
    )


def test_the_planner_sees_answers_and_a_searcher_its_question_only() -> None:
    family = Delegate(**ARGUMENTS | {"kinds": {"2hop": 1.0}})
    episode = play(family, family.policy("oracle"))
    planner, searcher = episode.trajectories
    assert (planner.id.role, searcher.id.role) == (PLANNER, SEARCHER)
    assert [len(planner.turns), len(searcher.turns)] == [3, 4]
    assert planner.reward == searcher.reward
    first, second = searcher.conversations
    assert [(o.name, o.caller) for o in (first, second)] == [("searcher1", "main"), ("searcher2", "main")]
    question = episode.draw.task.payload["question"]
    asked = [json.loads(turn.message.tool_calls[0].arguments)["query"] for turn in planner.turns[:2]]
    assert [o.messages[0].text for o in (first, second)] == [f"Find {query}\n" for query in asked]
    assert not any(question in o.messages[0].text for o in (first, second))
    # What the planner reads between is each searcher's answer, and nothing that the searcher read.
    answers = [turn.message.text for turn in searcher.turns if not turn.message.tool_calls]
    seen = [turn.observations[0].text for turn in planner.turns[:2]]
    assert [f"<answer> {text} </answer>" for text in seen] == answers
    passages = [turn.observations[0].text for turn in searcher.turns if turn.message.tool_calls]
    assert all(" is " in text and text not in "".join(seen) for text in passages)
    assert [tool.name for tool in first.tools] == ["search", "ask"]
    # A record is what a call came to when the reply was told: a searcher's answer comes later.
    assert [len(turn.tool_records) for turn in (*planner.turns, *searcher.turns)] == [0, 0, 0, 1, 0, 1, 0]


def test_what_the_policies_and_the_controls_are_worth() -> None:
    assert success("oracle", 40) == 1.0
    assert success("oracle", 20, answers="swapped") < 0.1
    assert success("oracle", 20, search="off") == 0.0
    assert 0.1 < success("naive", 40) < 0.5
    assert success("random", 40) < 0.2
    mixed = {"kinds": {"no_search": 1.0, "3hop": 1.0, "unanswerable": 1.0}}
    family = Delegate(**ARGUMENTS | mixed)
    for index in range(12):
        episode = play(family, family.policy("oracle"), index)
        assert episode.trajectories[0].reward == Scored(total=1.0, parts=episode.trajectories[0].reward.parts)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["no_search", "2hop"])
def test_an_audit_plays_an_episode_again_also_one_in_which_nobody_is_asked(kind: str) -> None:
    family = Delegate(**ARGUMENTS | {"kinds": {kind: 1.0}})
    episode = play(family, family.policy("oracle"))
    assert bool(episode.trajectories[1].turns) == (kind == "2hop")
    assert_replays(family, episode)


@pytest.mark.parametrize("max_replies", range(3, 9))
def test_an_audit_stops_where_the_replies_are_used_up(max_replies: int) -> None:
    def say(messages: Sequence[Message]) -> Message:
        return answer_message("x") if messages[0].text.startswith("Find ") else calls(("ask", "one"), ("ask", "two"))

    family = Delegate(**ARGUMENTS, max_replies=max_replies)
    episode = play(family, Says(say))
    assert (episode.stop, sum(len(t.turns) for t in episode.trajectories)) == (StopReason.MAX_TURNS, max_replies)
    assert_replays(family, episode)


def assert_replays(family: Delegate, episode: Episode) -> None:
    """The environment asks again for what is on record, and gives the same rewards."""
    task = episode.draw.task
    environment = family.build_environment(task)
    assert isinstance(environment, AskingEnvironment)
    seed = environment_seed(0, episode.draw)
    checked = asyncio.run(
        recheck_episode(
            episode.trajectories,
            task,
            environment=environment,
            renderer=renderer(),
            seed=seed,
            run_tools=False,
            timeout_s=60.0,
        )
    )
    assert [(outcome.breaches, outcome.reward_checked) for outcome in checked.values()] == [([], True)] * 2


def test_one_agent_gets_the_same_tasks_and_searches_by_itself() -> None:
    two, one = Delegate(**ARGUMENTS), Delegate(**ARGUMENTS, agents="one")
    assert [two.task("train", i).id for i in range(8)] == [one.task("train", i).id for i in range(8)]
    assert two.texts(50) == one.texts(50)
    assert isinstance(one.build_environment(one.task("train", 0)), SearchEnvironment)
    [trajectory] = play(one, one.policy("oracle")).trajectories
    assert isinstance(trajectory.reward, Scored)
    assert trajectory.reward.total == 1.0


def test_searchers_asked_at_once_answer_in_the_order_in_which_they_were_asked() -> None:
    def say(messages: Sequence[Message]) -> Message:
        if messages[0].text.startswith("Find "):
            return answer_message(messages[0].text.removeprefix("Find ").strip().upper())
        if len(messages) == 1:
            return calls(("ask", "first"), ("look", "x"), ("ask", "second"))
        return answer_message("done")

    planner, searcher = play(Delegate(**ARGUMENTS), Says(say)).trajectories
    [one, error, two] = [message.text for message in planner.turns[0].observations]
    assert (one, two) == ("FIRST", "SECOND")
    assert error == "error: there is no tool 'look'; known tools: ask"
    assert len(searcher.conversations) == 2


def test_a_planner_cannot_search_and_a_searcher_that_says_nothing_is_reported() -> None:
    def say(messages: Sequence[Message]) -> Message:
        if messages[0].text.startswith("Find "):
            return answer_message("")
        return [search_message("x", 0), calls(("ask", "y")), answer_message("z")][len(messages) // 2]

    planner, _ = play(Delegate(**ARGUMENTS), Says(say)).trajectories
    assert planner.turns[0].observations[0].text == "error: there is no tool 'search'; known tools: ask"
    assert planner.turns[1].observations[0].text == NO_ANSWER


@pytest.mark.parametrize(
    ("arguments", "stop", "replies"),
    [
        ({"max_depth": 3}, StopReason.MAX_DEPTH, 4),
        ({"max_depth": 100, "max_replies": 7}, StopReason.MAX_TURNS, 7),
    ],
)
def test_a_searcher_that_asks_without_end_is_stopped(arguments: dict[str, int], stop: StopReason, replies: int) -> None:
    episode = play(Delegate(**ARGUMENTS, **arguments), Says(lambda messages: calls(("ask", "the same"))))
    assert episode.stop is stop
    assert sum(len(t.turns) for t in episode.trajectories) == replies
    assert [t.reward.total for t in episode.trajectories if isinstance(t.reward, Scored)] == [0.0, 0.0]


def test_a_planner_that_asks_without_end_is_stopped() -> None:
    def say(messages: Sequence[Message]) -> Message:
        return answer_message("x") if messages[0].text.startswith("Find ") else calls(("ask", "again"))

    episode = play(Delegate(**ARGUMENTS, max_replies=100), Says(say))
    assert (episode.stop, len(episode.trajectories[0].turns)) == (StopReason.MAX_TURNS, LIMITS.max_turns)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="formal questions about generated worlds"):
        Delegate(wording="natural", kinds={"2hop": 1.0})
    with pytest.raises(ConfigError, match="kinds has union; the family delegate supports only no_search, 1hop"):
        Delegate(kinds={"union": 1.0})
    with pytest.raises(ConfigError, match="max_depth=0"):
        Delegate(max_depth=0)
    family = Delegate(**ARGUMENTS)
    task = family.task("train", 0)

    async def tell_a_stranger() -> None:
        environment = family.build_environment(task)
        assert isinstance(environment, AskingEnvironment)
        await environment.begin(task, 0)
        await environment.tell("searcher9", text_message("assistant", "x"))

    with pytest.raises(EnvironmentFault, match="'searcher9', where it had not asked for"):
        asyncio.run(tell_a_stranger())
