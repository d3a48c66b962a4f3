"""An episode whose replies come from outside: order, limits, rewards, and what breaks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from asking_worlds import Wanderer, make_task
from panel import Panel, PanelFamily

from turnwise.core.episodes import Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task, text_message
from turnwise.serving.episode import Answer, OutsideEpisode, choose_reward
from turnwise.testing.notes import NotesFamily


def say(text: str) -> Message:
    return text_message("assistant", text)


def play(environment: Panel, script: Callable[[OutsideEpisode], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    """What `script` returns, given the episode after its beginning."""

    async def run() -> Any:
        episode = OutsideEpisode(environment, PanelFamily().task("train", 0), seed=0, **options)
        await episode.begin()
        try:
            return await script(episode)
        finally:
            assert await episode.close() is None
            await episode.close()

    result = asyncio.run(run())
    assert environment.num_closed == 1
    return result


def test_a_reply_waits_for_those_that_were_asked_before_it():
    panel = Panel()

    async def script(episode: OutsideEpisode) -> tuple[tuple[Answer, ...], tuple[Answer, ...]]:
        assert [ask.conversation for ask in episode.wanted] == ["left", "right"]
        early = await episode.reply(say("2"), "right")
        assert ([ask.conversation for ask in episode.wanted], panel.told) == (["left"], [])
        late = await episode.reply(say("1"))
        assert episode.is_done
        assert await episode.score() == {"left": Scored(total=1.0), "right": Scored(total=2.0)}
        return early, late

    early, late = play(panel, script)
    assert early == ()
    assert [(answer.ask.conversation, answer.reply.text) for answer in late] == [("left", "1"), ("right", "2")]
    assert panel.told == [("left", "1"), ("right", "2")]
    assert panel.ends == [EpisodeEnd(stop=StopReason.DONE)]


@pytest.mark.parametrize("seed", range(40))
def test_what_an_episode_does_never_depends_on_the_order_of_the_replies(seed: int):
    async def run(choose: Callable[[list[str]], str]) -> tuple[list[tuple[str, str]], Any]:
        environment, counts = Wanderer(num_roles=3), dict[str, int]()
        episode = OutsideEpisode(environment, make_task(), seed=seed)
        await episode.begin()
        while episode.wanted:
            name = choose([ask.conversation for ask in episode.wanted])
            counts[name] = counts.get(name, 0) + 1
            await episode.reply(say(f"<answer> {name} {counts[name]} </answer>"), name)
        return environment.told, await episode.score()

    in_order = asyncio.run(run(lambda names: names[0]))
    assert asyncio.run(run(Random(seed).choice)) == in_order
    assert len(in_order[0]) > 1


def test_a_reply_where_none_is_wanted_is_refused_and_the_episode_goes_on():
    async def script(episode: OutsideEpisode) -> None:
        with pytest.raises(EnvironmentFault, match="conversation 'middle', only in left, right"):
            await episode.reply(say("1"), "middle")
        await episode.reply(say("1"), "right")
        with pytest.raises(EnvironmentFault, match="conversation 'right', only in left"):
            await episode.reply(say("2"), "right")
        await episode.reply(say("1"))
        with pytest.raises(EnvironmentFault, match="the episode is over"):
            await episode.reply(say("1"))

    play(Panel(), script)


def test_a_conversation_that_has_had_its_replies_ends_the_episode():
    panel = Panel()

    async def script(episode: OutsideEpisode) -> Any:
        await episode.reply(say("4"), "right")
        [asked] = await episode.reply(say("?"))  # right's reply waits for left's, which is never given
        assert [ask.conversation for ask in asked.asked.asks] == ["left"]
        assert (episode.is_truncated, episode.is_done, episode.wanted) == (True, False, ())
        return await episode.score()

    # Left has had its one reply and is asked again; what right has said counts.
    assert play(panel, script, max_turns=1) == {"left": Scored(total=0.0), "right": Scored(total=4.0)}
    assert panel.ends == [EpisodeEnd(stop=StopReason.MAX_TURNS, conversation="left")]


def test_an_episode_that_is_scored_early_ends_where_a_reply_is_wanted():
    panel = Panel()
    assert play(panel, lambda episode: episode.score()) == {"left": Scored(total=0.0), "right": Scored(total=0.0)}
    assert panel.ends == [EpisodeEnd(stop=StopReason.MAX_TURNS, conversation="left")]


def test_what_fails_breaks_the_episode_by_name():
    async def script(episode: OutsideEpisode) -> None:
        with pytest.raises(EnvironmentFault, match=r"^a step of trajectory x: ValueError: out of luck$"):
            await episode.reply(say("crash"))
        assert (episode.is_over, episode.is_done, episode.is_broken) == (True, False, True)

    play(Panel(), script, where="trajectory x")


def test_an_ask_that_breaks_the_spec_breaks_the_episode():
    class Rude(Panel):
        async def begin(self, task: Task, seed: int) -> Asked:
            return Asked(asks=(Ask(role="third", messages=()),))

    async def run() -> None:
        episode = OutsideEpisode(Rude(), make_task(), seed=0)
        with pytest.raises(EnvironmentFault, match="of role 'third', which is not in the environment's spec"):
            await episode.begin()
        assert episode.is_broken

    asyncio.run(run())


def test_the_environments_own_most_replies_end_the_episode():
    panel = Panel(spec=EpisodeSpec(roles=(RoleSpec(name="left"), RoleSpec(name="right")), max_replies=2))

    async def script(episode: OutsideEpisode) -> Any:
        await episode.reply(say("?"))  # a third reply would be wanted
        assert episode.is_truncated
        return await episode.score()

    assert play(panel, script)["left"] == Scored(total=0.0)
    assert panel.ends == [EpisodeEnd(stop=StopReason.MAX_TURNS, conversation="left")]


def test_an_environment_of_one_conversation_is_played_too():
    family = NotesFamily(linked=0.0)
    task = family.task("train", 0)

    async def run() -> tuple[Message, dict[str, Reward]]:
        episode = OutsideEpisode(family.build_environment(task), task, seed=0)
        await episode.begin()
        assert episode.is_single
        assert [tool.name for tool in episode.tools["main"]] == ["search"]
        [answer] = await episode.reply(say(f"<answer> {task.payload['answer']} </answer>"))
        return answer.reply, dict(await episode.score())

    reply, rewards = asyncio.run(run())
    assert rewards["agent"] == replace(Scored(total=1.0), parts=rewards["agent"].parts)  # type: ignore[union-attr]
    assert task.payload["answer"] in reply.text


def test_methods_may_be_plain_functions():
    class Plain:
        """Implements `Environment` but for `async`."""

        def reset(self, task: Task, seed: int) -> Opening:
            return Opening(messages=(text_message("user", "well?"),), tools=())

        def step(self, message: Message) -> StepResult:
            return StepResult(observations=(), done=True)

        def score(self, replies: Sequence[Message], stop: StopReason) -> float:
            return float(len(replies))

        def close(self) -> None:
            pass

    async def run() -> Any:
        episode = OutsideEpisode(Plain(), make_task(), seed=0)  # type: ignore[arg-type]
        await episode.begin()
        await episode.reply(say("yes"))
        return await episode.score(), await episode.close()

    assert asyncio.run(run()) == ({"agent": Scored(total=1.0)}, None)


def test_one_reward_of_several_is_an_invalid_one_or_the_first():
    bad = Invalid(reason="crashed", retryable=True)
    assert choose_reward({"left": Scored(total=1.0), "right": Scored(total=2.0)}) == Scored(total=1.0)
    assert choose_reward({"left": Scored(total=1.0), "right": bad}) == bad
