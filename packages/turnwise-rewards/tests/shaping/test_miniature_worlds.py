"""The two worlds in which parts of a reward are measured: what is right in them, and what is not."""

import asyncio
import json
from random import Random

import pytest

from turnwise.core.messages import ToolCall, reply_message, text_message
from turnwise.core.types import StopReason
from turnwise_rewards.shaping.drawers import Drawers
from turnwise_rewards.shaping.sources import Sources


def play(family, policy, index, *, max_turns=4):
    """One episode: its reward, and the results of its steps."""

    async def run():
        task = family.task("train", index)
        environment, random = family.build_environment(task), Random(index)
        opening = await environment.reset(task, index)
        messages, replies, results = list(opening.messages), [], []
        for _ in range(max_turns):
            replies.append(policy.reply(task, messages, random))
            results.append(await environment.step(replies[-1]))
            messages += [replies[-1], *results[-1].observations]
            if results[-1].done:
                break
        reward = await environment.score(replies, StopReason.DONE)
        await environment.close()
        return reward, results

    return asyncio.run(run())


class Fixed:
    """Calls for these things, and says a word."""

    def __init__(self, *calls, word="none"):
        self._replies = [
            reply_message("", tool_calls=(ToolCall(id="c", name="search", arguments=json.dumps({"query": what})),))
            for what in calls
        ] + [text_message("assistant", f"<answer> {word} </answer>")]

    def reply(self, task, messages, rng):
        return self._replies[sum(message.role == "assistant" for message in messages)]


def test_a_source_is_right_as_often_as_its_reliability_says() -> None:
    family = Sources()
    payloads = [family.task("train", index).payload for index in range(3000)]
    for name, reliability in (("a", 0.95), ("b", 0.55), ("c", 0.15)):
        own = [payload for payload in payloads if payload["source"] == name]
        assert sum(p["right"] == p["said"] for p in own) / len(own) == pytest.approx(reliability, abs=0.06)
        assert {payload["reliability"] for payload in own} == {reliability}


def test_the_chance_of_an_answer_is_known() -> None:
    family = Sources()
    index = next(i for i in range(99) if family.task("train", i).payload["reliability"] == 0.55)
    payload = family.task("train", index).payload
    other = next(colour for colour in ("red", "blue") if colour != payload["said"])
    assert play(family, Fixed(word=payload["said"]), index)[0].part("chance") == 0.55
    assert play(family, Fixed(word=other), index)[0].part("chance") == pytest.approx(0.45 / 7)
    assert play(family, Fixed(word="purple"), index)[0].part("chance") == 0
    honest, _ = play(family, family.policy("oracle"), index)
    assert (honest.part("stated"), honest.part("chance")) == (1, 0.55)


def test_a_hidden_source_is_named_nowhere() -> None:
    task = Sources(hidden=True).task("train", 0)
    assert task.prompt[0].text.startswith(" source unknown says")
    assert task.payload["source"] == "unknown"


def test_the_named_drawer_holds_the_answer_and_nothing_else_tells_it() -> None:
    family = Drawers(jam=0.0)
    solved = [play(family, family.policy("oracle"), index)[0].total for index in range(20)]
    assert solved == [1.0] * 20
    named, words = (family.task("train", 0).payload[key] for key in ("named", "words"))
    other = next(drawer for drawer in words if drawer != named)
    reward, results = play(family, Fixed(other, other, "bell", word=words[named]), 0)
    assert (reward.total, reward.part("opened")) == (1, 0)  # guessed
    assert [result.signals[0].value for result in results] == [1, 0, 0, 0]  # opened once
    assert results[2].observations[0].text == " ding"


def test_a_stuck_drawer_and_an_unknown_thing_are_errors_and_the_bell_and_the_radio_never_fail() -> None:
    stuck = Drawers(jam=1.0)
    _, results = play(stuck, Fixed("red", "cupboard", "red"), 0)
    errors = [record.error for result in results for record in result.tool_records]
    assert errors == ["error: red is stuck", "error: there is no such thing", "error: red is stuck"]
    _, results = play(stuck, Fixed("bell", "radio", "radio"), 0)
    assert [record.error for result in results for record in result.tool_records] == [None] * 3
    assert results[1].observations[0].text.startswith(" plays ")


def test_only_three_calls_are_answered() -> None:
    _, results = play(Drawers(), Fixed("bell", "bell", "bell", "bell"), 0, max_turns=5)
    assert [record.error for result in results for record in result.tool_records] == [None] * 3 + ["error: time is up"]
