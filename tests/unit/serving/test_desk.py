"""The desk: whose turn it is, limits, deadlines, expiry, and nothing left open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from panel import Panel, PanelFamily

from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Task, text_message
from turnwise.serving.desk import Desk, EpisodeEnded


class Room:
    """A desk, and the environments that were opened at it."""

    def __init__(self, *, max_open: int = 2, timeout_s: float = 30.0, **options: Any) -> None:
        self.desk = Desk(max_open=max_open, timeout_s=timeout_s, **options)
        self.family = PanelFamily()

    def build(self) -> tuple[Panel, Task]:
        task = self.family.task("train", 0)
        return self.family.build_environment(task), task

    async def open(self, *keys: str) -> None:
        for key in keys:
            async with self.desk.use(key, self.build):
                pass

    async def say(self, key: str, text: str) -> list[str]:
        async with self.desk.use(key) as episode:
            answers = await episode.reply(text_message("assistant", text))
            return [message.text for answer in answers for message in answer.asked.observations]


def at_a_desk(script: Callable[[Room], Coroutine[Any, Any, Any]], **options: Any) -> Room:
    """Run `script`; afterwards every environment has been closed once."""
    room = Room(**options)

    async def run() -> None:
        await script(room)
        await room.desk.close()
        assert room.desk.num_open == 0

    asyncio.run(run())
    assert [panel.num_closed for panel in room.family.built] == [1] * len(room.family.built)
    return room


def test_an_episode_is_opened_once_and_kept_under_its_key():
    async def script(room: Room) -> None:
        await room.open("a", "b", "a")
        assert await room.say("a", "1") == ["left said 1"]
        assert await room.say("b", "2") == ["left said 2"]
        assert await room.say("a", "3") == ["right said 3"]
        assert "a" in room.desk

    room = at_a_desk(script)
    assert [panel.told for panel in room.family.built] == [[("left", "1"), ("right", "3")], [("left", "2")]]


def test_a_key_that_nobody_opened_is_refused():
    async def script(room: Room) -> None:
        with pytest.raises(EnvironmentFault, match="there is no open episode 'a'"):
            await room.say("a", "1")

    assert at_a_desk(script).family.built == []


def test_callers_of_one_episode_take_turns_and_those_of_others_do_not_wait():
    async def script(room: Room) -> None:
        await room.open("a", "b")
        running: list[str] = []

        async def visit(key: str, name: str, until: asyncio.Event, entered: asyncio.Event) -> None:
            async with room.desk.use(key):
                running.append(name)
                entered.set()
                await until.wait()
                running.remove(name)

        events = {name: (asyncio.Event(), asyncio.Event()) for name in ("first", "second", "other")}
        visits = [
            asyncio.ensure_future(visit(key, name, *events[name]))
            for key, name in (("a", "first"), ("a", "second"), ("b", "other"))
        ]
        await events["first"][1].wait()
        await events["other"][1].wait()
        assert running == ["first", "other"]
        events["first"][0].set()
        await events["second"][1].wait()
        assert sorted(running) == ["other", "second"]
        for until, _ in events.values():
            until.set()
        await asyncio.gather(*visits)

    at_a_desk(script)


def test_a_full_desk_refuses_and_the_open_episodes_go_on():
    async def script(room: Room) -> None:
        await room.open("a", "b")
        with pytest.raises(EnvironmentFault, match="2 games are open, the most that this server allows"):
            await room.open("c")
        assert await room.say("a", "1") == ["left said 1"]

    assert len(at_a_desk(script, nouns="games").family.built) == 2


def test_a_desk_that_replaces_ends_the_oldest_that_nobody_uses():
    async def script(room: Room) -> None:
        await room.open("a", "b")
        async with room.desk.use("a"):
            await room.open("c")
            assert [key in room.desk for key in "abc"] == [True, False, True]
            async with room.desk.use("c"):
                with pytest.raises(EnvironmentFault, match="2 episodes are open"):
                    await room.open("d")
        assert [key in room.desk for key in "acd"] == [True, True, False]

    at_a_desk(script, replaces=True)


def test_what_runs_past_the_deadline_ends_its_episode_alone():
    async def script(room: Room) -> None:
        await room.open("a", "b")
        with pytest.raises(TimeoutError):
            await room.say("a", "hang")
        assert [key in room.desk for key in "ab"] == [False, True]

    at_a_desk(script, timeout_s=0.1)


def test_what_fails_ends_its_episode_and_who_waited_for_it_hears_so():
    async def script(room: Room) -> None:
        await room.open("a")
        first, second = await asyncio.gather(room.say("a", "crash"), room.say("a", "1"), return_exceptions=True)
        assert "out of luck" in str(first)
        assert isinstance(second, EpisodeEnded)
        assert "a" not in room.desk
        with pytest.raises(EnvironmentFault, match="opening episode a: RuntimeError: no such task"):
            async with room.desk.use("a", lambda: (_ for _ in ()).throw(RuntimeError("no such task"))):
                raise AssertionError
        assert "a" not in room.desk

    at_a_desk(script)


def test_a_caller_that_leaves_while_waiting_ends_nothing_and_one_that_leaves_in_a_step_does():
    async def script(room: Room) -> None:
        await room.open("a")
        async with room.desk.use("a"):
            waiting = asyncio.ensure_future(room.say("a", "1"))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert "a" in room.desk
        running = asyncio.ensure_future(room.say("a", "hang"))
        while not room.family.built[0].told:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        assert "a" not in room.desk

    at_a_desk(script)


def test_an_episode_that_is_finished_ends_after_those_that_came_before():
    async def script(room: Room) -> None:
        await room.open("a")
        said, _, late = await asyncio.gather(
            room.say("a", "1"), room.desk.finish("a"), room.say("a", "2"), return_exceptions=True
        )
        assert said == ["left said 1"]
        assert isinstance(late, EpisodeEnded)

    at_a_desk(script)


def test_idle_episodes_expire():
    async def script(room: Room) -> None:
        await room.open("a", "b")
        async with room.desk.use("a"):
            await asyncio.sleep(0.02)
            await room.desk.sweep()
        assert [key in room.desk for key in "ab"] == [True, False]

    at_a_desk(script, idle_s=0.01)
