"""Plans and the calls that follow them: what is shown, what is scored, controls that must fail."""

import asyncio
from typing import Any

import pytest
from asked_episodes import play_asked, scored, speak_as

from turnwise.core.episodes import EpisodeEnd
from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Scored, StopReason, text_message
from turnwise_worlds.plan.family import Plan
from turnwise_worlds.plan.world import (
    ENTITIES,
    format_question,
    look_up,
    parse_plan,
    parse_question,
)

DONE = EpisodeEnd(stop=StopReason.DONE)


def play(family: Plan, index: int, policy: str) -> tuple[Scored, list[str]]:
    """Reward of a scripted policy on a held-out task, and every text it was shown."""
    task = family.task("heldout", index)
    speak = speak_as(family.policy(policy), task, seed=index)
    rewards, asks, _ = play_asked(family.build_environment(task), task, speak)
    assert all(ask.role == ask.conversation for ask in asks)
    assert rewards["planner"] == rewards["actor"]
    return scored(rewards)["actor"], [ask.messages[0].text for ask in asks]


def share(part: str, policy: str, count: int = 100, **arguments: Any) -> float:
    family = Plan(**arguments)
    return sum(play(family, index, policy)[0].part(part) or 0.0 for index in range(count)) / count


def test_a_question_is_its_plan_reversed() -> None:
    assert format_question(("author", "birthplace"), "kabo") == "birthplace of author of kabo"
    assert parse_question("birthplace of author of kabo") == (("author", "birthplace"), "kabo")
    assert parse_plan("author ; birthplace ; child") == ("author", "birthplace")
    assert parse_plan("; author what") == ("author", "none")
    assert look_up(1, "author", "kabo") == look_up(1, "author", "kabo") in ENTITIES
    assert look_up(1, "author", "nobody") == look_up(1, "none", "kabo") == "nothing"


def test_the_actor_is_shown_the_plan_and_nothing_else_of_the_planner() -> None:
    reward, shown = play(Plan(), 0, "oracle")
    question = Plan().task("heldout", 0).payload["question"]
    plan, _ = parse_question(question)
    assert shown[0] == f" question {question} plan"
    assert shown[1] == f" question {question} plan {plan[0]} ; {plan[1]} call"
    assert shown[2].startswith(" found ")
    assert (reward.total, reward.part("planned"), reward.part("followed")) == (1.0, 1.0, 1.0)


def test_what_the_policies_and_the_controls_are_worth() -> None:
    assert share("success", "oracle") == 1.0
    assert 0.4 < share("success", "naive") < 0.7
    assert share("success", "naive", plan="given") == 1.0
    assert share("success", "oracle", plan="swapped") < 0.15
    assert share("success", "oracle", plan="swapped", success="followed") == 1.0
    assert share("success", "oracle", plan="shuffled") < 0.15
    assert share("success", "oracle", plan="none") < 0.15
    assert share("followed", "random") < 0.1


def test_every_plan_that_is_shown_has_as_many_words() -> None:
    lengths = {
        len(play(Plan(plan=plan), index, "naive")[1][1].split())
        for plan in ("own", "given", "swapped", "shuffled", "none")
        for index in range(20)
    }
    assert len(lengths) == 1


def test_a_call_before_the_plan_is_refused() -> None:
    async def run() -> None:
        family = Plan()
        task = family.task("train", 0)
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell("actor", text_message("assistant", "<answer> author kabo </answer>"))

    with pytest.raises(EnvironmentFault, match="had not asked for"):
        asyncio.run(run())
