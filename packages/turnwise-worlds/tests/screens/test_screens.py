"""Screens: what actions do, what pictures and text show, what the reward reads, what policies and controls get."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import StepResult
from turnwise.core.types import Message, Scored, StopReason, Task
from turnwise_worlds.screens.family import Screens
from turnwise_worlds.screens.policies import act_message, click_message, follow
from turnwise_worlds.screens.screen import COLOURS, SIDE, WORDS, Element, Kind, Screen, make_screen
from turnwise_worlds.screens.session import Session
from turnwise_worlds.screens.show import CELL, describe, draw

FORM = Screen(kind="form", target="red", word="kalo", places=(("blue", (0, 1)), ("red", (2, 3))), ok=(3, 0))
LIST = Screen(kind="list", target="pink", items=tuple(COLOURS))
CELLS = st.tuples(st.integers(0, SIDE - 1), st.integers(0, SIDE - 1))
ACTIONS = st.one_of(
    CELLS.map(lambda cell: lambda screen: screen.click(cell)),
    st.sampled_from(WORDS).map(lambda word: lambda screen: screen.type(word)),
    st.sampled_from(("up", "down")).map(lambda direction: lambda screen: screen.scroll(direction)),
)


def see(picture: np.ndarray) -> list[Element]:
    """Read the elements of a picture by their pixels, without the texts of fields."""
    names = {colour: name for name, colour in COLOURS.items()}
    elements = []
    for row in range(SIDE):
        for column in range(SIDE):
            cell = picture[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
            at = {place: tuple(map(int, cell[place])) for place in ((0, 7), (5, 0), (13, 13), (6, 7), (2, 2), (7, 7))}
            if at[0, 7] == (60, 60, 60):
                elements.append(Element(role="thumb", cell=(row, column)))
            elif at[5, 0] in names:
                elements.append(Element(role="item", cell=(row, column), colour=names[at[5, 0]]))
            elif at[13, 13] == (250, 250, 250):
                elements.append(Element(role="ok", cell=(row, column)))
            elif at[13, 13] in names and at[7, 7] == (250, 250, 250):
                text = "text" if at[6, 7] == (60, 60, 60) else ""
                focus = at[2, 2] == (60, 60, 60)
                colour = names[at[13, 13]]
                elements.append(Element(role="field", cell=(row, column), colour=colour, text=text, has_focus=focus))
            elif at[13, 13] in names:
                elements.append(Element(role="button", cell=(row, column), colour=names[at[13, 13]]))
    return elements


@given(
    kind=st.sampled_from(("press", "form", "list")), seed=st.integers(0, 2**40), actions=st.lists(ACTIONS, max_size=6)
)
@settings(max_examples=60, deadline=None)
def test_the_picture_shows_every_element_and_the_text_says_the_same(kind: Kind, seed: int, actions: list) -> None:
    screen = make_screen({"kind": kind, "seed": seed})
    for action in actions:
        screen = action(screen)
    elements = screen.elements
    assert see(draw(elements)) == [replace(each, text="text" if each.text else "") for each in elements]
    lines = describe(elements).split("\n")
    assert len(lines) == len(elements)
    for line, each in zip(lines, elements, strict=True):
        words = line.split()
        assert each.role in words
        assert f"{each.cell[0] + 1} {each.cell[1] + 1}" in line
        assert (each.colour in words) == bool(each.colour)
        assert (each.text in words) == bool(each.text)


def test_a_form_is_filled_by_hand() -> None:
    focused = FORM.click((2, 3))
    assert [each.has_focus for each in focused.elements] == [False, True, False]
    assert FORM.type("kalo") == FORM  # nothing has the focus
    typed = focused.type("kalo")
    assert typed.typed == (("red", "kalo"),)
    assert typed.click((3, 0)).succeeded
    assert not typed.click((1, 1)).chosen
    assert not focused.type("mine").click((3, 0)).succeeded
    assert focused.type("mine").type("kalo").click((3, 0)).succeeded  # the second text replaces the first
    assert not FORM.click((0, 1)).type("kalo").click((3, 0)).succeeded
    assert not typed.click((0, 1)).type("kalo").click((3, 0)).succeeded  # the other field is not empty
    assert not FORM.click((3, 0)).succeeded


def test_a_list_shows_three_items_and_stops_at_its_ends() -> None:
    # Six items: scrolling shows 0-2, 3-5.
    assert LIST.scroll("up") == LIST
    down = LIST.scroll("down")
    assert [each.colour for each in down.elements if each.role == "item"] == ["yellow", "pink", "black"]
    assert down.scroll("down") == down
    assert down.click((1, 0)).succeeded
    assert not down.click((0, 0)).succeeded
    assert down.click((1, 1)) == down  # an item is in the first column
    assert [each.cell[0] for each in down.elements if each.role == "thumb"] == [3]


def play(family: Screens, task: Task, replies: Sequence[Message]) -> tuple[list[StepResult], Scored]:
    async def run() -> tuple[list[StepResult], Scored]:
        environment = family.build_environment(task)
        await environment.reset(task, 0)
        results = [await environment.step(reply) for reply in replies]
        reward = await environment.score(replies, StopReason.DONE if results[-1].done else StopReason.MAX_TURNS)
        await environment.close()
        assert isinstance(reward, Scored)
        return results, reward

    return asyncio.run(run())


def oracle_replies(family: Screens, task: Task) -> list[Message]:
    messages, random = list(task.prompt), Random(0)
    while True:
        reply = family.policy("oracle").reply(task, messages, random)
        messages.append(reply)
        if follow(Session.open(task.payload, family._chosen), messages).screen.chosen:
            return [message for message in messages if message.role == "assistant"]


def test_the_surface_changes_what_is_shown_and_nothing_else() -> None:
    families = {surface: Screens(surface=surface) for surface in ("picture", "text", "both")}
    for index in range(12):
        told = {}
        for surface, family in families.items():
            task = family.task("heldout", index)
            replies = oracle_replies(family, task)
            results, reward = play(family, task, replies)
            told[surface] = (task.payload, replies, reward, [result.done for result in results])
            shown = [task.prompt[0], *(message for result in results for message in result.observations)]
            assert all(bool(message.images) == (surface != "text") for message in shown)
            assert all(("\n" in message.text) == (surface != "picture") for message in shown)
            assert reward.total == 1.0
        assert told["picture"] == told["text"] == told["both"]


def test_the_reward_is_that_of_the_state_whatever_is_shown() -> None:
    plain, other = Screens(), Screens(shown="other")
    for index in range(12):
        task = plain.task("heldout", index)
        assert other.task("heldout", index) == task
        replies = oracle_replies(plain, task)
        assert play(other, task, replies)[1].total == 1.0


def test_calls_outside_the_screen_are_refused_and_useless_ones_change_nothing() -> None:
    family = Screens()
    task = next(t for t in (family.task("train", i) for i in range(20)) if t.payload["kind"] == "press")
    replies = [
        click_message(0, (4, 0)),
        act_message(1, "type", text="kalo"),
        act_message(2, "scroll", direction="left"),
        act_message(3, "scroll", direction="up"),
    ]
    results, reward = play(family, task, replies)
    assert results[0].observations[0].text == "error: no row 5"
    assert "must be one of" in results[2].observations[0].text
    assert [result.signals[0].value for result in results] == [0.0] * 4
    assert results[1].observations[0].images == results[3].observations[0].images == task.prompt[0].images
    assert (reward.total, reward.part("decided")) == (0.0, 0.0)


@pytest.mark.parametrize("text", ["", "two words", "kalo\n ok 1 1", "<image>", "x" * 17, "\ufdd4", "\x00"])
def test_what_is_no_word_is_not_typed_so_that_no_text_looks_like_an_element(text: str) -> None:
    family = Screens(surface="text", kinds={"form": 1.0})
    task = family.task("train", 0)
    click = next(reply for reply in oracle_replies(family, task) if reply.tool_calls[0].name == "click")
    results, _ = play(family, task, [click, act_message(1, "type", text=text)])
    assert results[1].observations[0].text == "error: no word"
    assert results[1].signals[0].value == 0.0


@pytest.mark.parametrize("row", [True, "2", 2.5, None, 10**400, -1, [1]])
def test_a_row_is_a_whole_number_on_the_screen(row: object) -> None:
    family = Screens()
    task = family.task("train", 0)
    results, reward = play(family, task, [act_message(0, "click", row=row, column=1)])
    assert results[0].observations[0].text.startswith("error: ")
    assert not results[0].observations[0].images
    assert reward.total == 0.0


def test_states_are_equal_however_they_were_reached_and_forks_go_their_own_way() -> None:
    family = Screens(kinds={"list": 1.0})
    task = family.task("train", 0)

    async def run() -> None:
        one, other = family.build_environment(task), family.build_environment(task)
        await one.reset(task, 0)
        await other.reset(task, 0)
        for number, direction in enumerate(("down", "up")):
            await one.step(act_message(number, "scroll", direction=direction))
        assert one.state_hash() == other.state_hash()
        twin = await one.fork()
        await twin.step(act_message(3, "scroll", direction="down"))
        assert one.state_hash() == other.state_hash() != twin.state_hash()

    asyncio.run(run())


def worth(policy: str, count: int = 150, **arguments: object) -> float:
    """Success on held-out tasks, from a policy's replies alone."""
    family = Screens(**arguments)
    won = 0
    for index in range(count):
        task, random = family.task("heldout", index), Random(index)
        messages = list(task.prompt)
        session = Session.open(task.payload, family._chosen)
        while not session.screen.chosen and len(messages) < 7:
            messages.append(family.policy(policy).reply(task, messages, random))
            session = follow(Session.open(task.payload, family._chosen), messages)
        won += session.screen.succeeded
    return won / count


def test_what_the_policies_and_the_controls_are_worth() -> None:
    assert worth("oracle") == 1.0
    assert 0.1 < worth("naive") < 0.5
    assert worth("random") < 0.15
    assert worth("oracle", shown="empty") < 0.2
    assert worth("oracle", shown="other") < 0.2


def test_kinds_and_switches_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"kinds.type=1: unknown kind; use press, form, list"):
        Screens(kinds={"type": 1})
    with pytest.raises(ConfigError, match="surface"):
        Screens(surface="html")
