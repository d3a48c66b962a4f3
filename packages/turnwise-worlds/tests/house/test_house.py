"""Houses: the rules, both styles, the goals, the plan that always has an answer, states and forks, controls."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Scored, StopReason, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.house.arguments import HouseArguments
from turnwise_worlds.house.catalog import BELONGS, CHANGES, LAMP, OPENABLE, PLACES, kind_of
from turnwise_worlds.house.environment import HouseEnvironment
from turnwise_worlds.house.family import House as Houses
from turnwise_worlds.house.generate import make_house
from turnwise_worlds.house.plan import measure_progress, plan_action
from turnwise_worlds.house.session import Session
from turnwise_worlds.house.styles import STYLES, StyleName
from turnwise_worlds.house.world import Action, House, Kind, State, Verb, act, find_held, is_done, list_actions

KINDS: tuple[Kind, ...] = get_args(Kind)
STYLE_NAMES: tuple[StyleName, ...] = get_args(StyleName)
PLACED = ("fridge 1", "sinkbasin 1", "shelf 1", "microwave 1", "drawer 1", "drawer 2")
HOUSE = House(kind="heat", wanted="egg", target="shelf", places=PLACED, things=("egg 1", "pen 1"))
START = State(where=("fridge 1", "shelf 1"))


def open_session(kind: Kind = "put", seed: int = 0, **chosen: Any) -> Session:
    return Session.open({"kind": kind, "seed": seed}, HouseArguments(**chosen))


def do(house: House, state: State, *actions: Action) -> State:
    """The state after actions, all of them possible."""
    for action in actions:
        after = act(house, state, action)
        assert after is not None, action
        state = after
    return state


def play(task: Task, environment: HouseEnvironment, commands: Sequence[str]) -> tuple[list[str], Scored]:
    """What is said after each command, and the reward."""

    async def run() -> tuple[list[str], Scored]:
        await environment.reset(task, 0)
        results = [await environment.step(answer_message(command)) for command in commands]
        reward = await environment.score((), StopReason.DONE)
        assert isinstance(reward, Scored)
        return [result.observations[0].text if result.observations else "" for result in results], reward

    return asyncio.run(run())


# ------------------------------------------------------------------------------------------------ rules


def test_a_thing_is_found_changed_and_placed() -> None:
    state = do(HOUSE, START, Action("go", place="fridge 1"))
    assert act(HOUSE, state, Action("take", "egg 1", "fridge 1")) is None  # the fridge is closed
    state = do(HOUSE, state, Action("open", place="fridge 1"), Action("take", "egg 1", "fridge 1"))
    assert find_held(HOUSE, state) == "egg 1"
    cooled = do(HOUSE, state, Action("cool", "egg 1", "fridge 1"))
    assert cooled.has == {("egg 1", "cold")}
    heated = do(HOUSE, cooled, Action("go", place="microwave 1"), Action("heat", "egg 1", "microwave 1"))
    assert heated.has == {("egg 1", "hot")}  # the microwave is closed, as in ALFWorld, and cold has gone
    clean = do(HOUSE, heated, Action("go", place="sinkbasin 1"), Action("clean", "egg 1", "sinkbasin 1"))
    assert clean.has == {("egg 1", "hot"), ("egg 1", "clean")}
    at_shelf = do(HOUSE, clean, Action("go", place="shelf 1"))
    assert not is_done(HOUSE, at_shelf)
    assert is_done(HOUSE, do(HOUSE, at_shelf, Action("put", "egg 1", "shelf 1")))
    raw = do(HOUSE, state, Action("go", place="shelf 1"), Action("put", "egg 1", "shelf 1"))
    assert not is_done(HOUSE, raw)  # it is not hot


@pytest.mark.parametrize(
    "action",
    [
        Action("go", place="bed 1"),  # there is none
        Action("go", place="shelf 1"),  # one stands there
        Action("open", place="shelf 1"),  # it has no door
        Action("open", place="fridge 1"),  # it is elsewhere
        Action("close", place="drawer 1"),
        Action("take", "egg 1", "fridge 1"),
        Action("take", "pen 2", "shelf 1"),
        Action("put", "egg 1", "shelf 1"),  # it is not held
        Action("put", "", "shelf 1"),
        Action("heat", "pen 1", "shelf 1"),
        Action("use", thing="desklamp 1"),
        Action("examine", thing="egg 1"),
    ],
)
def test_what_is_impossible_changes_nothing(action: Action) -> None:
    state = replace(START, at="shelf 1")
    assert act(HOUSE, state, action) is None


def test_one_thing_is_held_and_a_pen_is_never_heated() -> None:
    state = do(HOUSE, replace(START, at="shelf 1"), Action("take", "pen 1", "shelf 1"))
    at_fridge = do(HOUSE, state, Action("go", place="fridge 1"), Action("open", place="fridge 1"))
    assert act(HOUSE, at_fridge, Action("take", "egg 1", "fridge 1")) is None
    assert (
        act(HOUSE, do(HOUSE, state, Action("go", place="microwave 1")), Action("heat", "pen 1", "microwave 1")) is None
    )


def test_two_things_must_be_at_the_same_place() -> None:
    house = replace(HOUSE, kind="two", target="drawer", things=("egg 1", "egg 2"))
    apart = State(where=("drawer 1", "drawer 2"))
    assert not is_done(house, apart)
    assert is_done(house, State(where=("drawer 2", "drawer 2")))
    # The first drawer has as many: the egg of the other one is fetched, from where one stands if one can choose.
    assert plan_action(house, replace(apart, at="drawer 2")) == Action("go", place="drawer 1")


def test_one_looks_at_a_thing_under_a_lamp_that_was_used() -> None:
    house = replace(HOUSE, kind="light", target="", things=("egg 1", "desklamp 1"))
    state = State(where=("", "shelf 1"), at="shelf 1")
    assert not is_done(house, state)
    assert act(house, replace(state, where=("drawer 1", "shelf 1")), Action("take", "desklamp 1", "shelf 1")) is None
    lit = do(house, state, Action("use", thing="desklamp 1"))
    assert is_done(house, lit)
    assert not is_done(house, replace(lit, at="drawer 1"))
    assert not is_done(house, replace(lit, where=("shelf 1", "shelf 1")))


# ------------------------------------------------------------------------------------------------ houses


@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**40),
    places=st.integers(4, 30),
    things=st.integers(0, 24),
    belongs=st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_every_house_has_what_its_task_needs(kind: Kind, seed: int, places: int, things: int, belongs: float) -> None:
    house, state = make_house(kind, seed, places=places, things=things, belongs=belongs)
    assert len(house.places) == len(set(house.places)) == places
    assert len(house.things) == len(set(house.things)) == things + 1 + (kind in ("two", "light"))
    assert set(state.where) <= set(house.places)
    assert sum(kind_of(thing) == house.wanted for thing in house.things) == 1 + (kind == "two")
    if kind == "light":
        assert any(kind_of(thing) == LAMP for thing in house.things)
    else:
        assert house.target in {kind_of(place) for place in house.places}
        assert house.target not in {
            kind_of(at) for thing, at in zip(house.things, state.where, strict=True) if kind_of(thing) == house.wanted
        }
    if kind in CHANGES:
        assert CHANGES[kind][0] in {kind_of(place) for place in house.places}
    assert not is_done(house, state)


def test_things_lie_where_they_belong_seven_times_in_ten() -> None:
    at_home = []
    for seed in range(600):
        house, state = make_house("put", seed, places=6, things=0, belongs=0.7)
        at_home.append(kind_of(state.where[0]) in BELONGS[house.wanted])
    assert 0.64 < sum(at_home) / len(at_home) < 0.76  # 3.2 standard errors of .0187


def test_the_catalog_names_known_kinds_by_one_word() -> None:
    assert {place for homes in BELONGS.values() for place in homes} <= set(PLACES)
    assert set(PLACES) >= OPENABLE
    assert {place for place, _, _ in CHANGES.values()} <= set(PLACES)
    assert all(allowed <= set(BELONGS) for _, allowed, _ in CHANGES.values())
    assert all(name.isalpha() and name.islower() for name in (*PLACES, *BELONGS))
    assert not set(PLACES) & set(BELONGS)


# ------------------------------------------------------------------------------------------------ styles


@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**40), walk=st.integers(0, 2**40), places=st.integers(4, 18))
@settings(max_examples=40, deadline=None)
def test_both_styles_are_the_same_house(kind: Kind, seed: int, walk: int, places: int) -> None:
    sessions = {
        style: open_session(kind, seed, style=style, places=places, things=5, max_steps=15) for style in STYLE_NAMES
    }
    random = Random(walk)
    while not sessions["full"].is_over:
        session = sessions["full"]
        possible = list(list_actions(session.house, session.state))
        for name, each in sessions.items():
            style = STYLES[name]
            written = [style.command(action) for action in possible]
            assert len(set(written)) == len(possible)
            assert [style.read(each.house, each.state, command) for command in written] == possible
        # One in four names anything: mostly impossible, in either style.
        anything = Action("go", place=random.choice([*session.house.places, "bed 9"]))
        if random.random() < 0.5:
            anything = Action("take", random.choice(session.house.things), session.state.at)
        action = anything if random.random() < 0.25 else random.choice(possible)
        sessions = {name: each.command(STYLES[name].command(action)) for name, each in sessions.items()}
        full, terse = sessions["full"], sessions["terse"]
        assert full.state == terse.state
        assert full.signals == terse.signals
        assert full.seen == terse.seen
        assert full.is_over == terse.is_over
        assert (full.heard == "Nothing happens.") == (terse.heard == " no") == (action not in possible)
        assert [thing for thing in full.house.things if thing in full.heard] == [
            thing for thing in full.house.things if thing.removesuffix(" 1") in _names(terse.heard, full.house)
        ]


def _names(heard: str, house: House) -> set[str]:
    """The things that a terse outcome names: a kind, and a number if it is not 1."""
    words = heard.split()
    pairs = {f"{word} {after}" for word, after in pairwise(words)}
    alone = {word for word, after in zip(words, [*words[1:], ""], strict=True) if not after.isdigit()}
    return (pairs | alone) & {thing.removesuffix(" 1") for thing in house.things}


def test_the_sentences_of_an_episode() -> None:
    session = Session(chosen=HouseArguments(), house=HOUSE, state=START)
    said = []
    for command in (
        "go to fridge 1",
        "Open Fridge 1",
        "take egg 1 from fridge 1",
        "inventory",
        "examine egg 1",
        "cool egg 1 with fridge 1",
        "examine egg 1",
        "dance",
        "go to shelf 1",
        "put egg 1 in/on shelf 1",
        "look",
    ):
        session = session.command(command)
        said.append(session.heard)
    assert said == [
        "You arrive at fridge 1. The fridge 1 is closed.",
        "You open the fridge 1. The fridge 1 is open. In it, you see a egg 1.",
        "You pick up the egg 1 from the fridge 1.",
        "You are carrying: a egg 1.",
        "There's nothing special about egg 1.",
        "You cool the egg 1 using the fridge 1.",
        "This is a cold egg 1.",
        "Nothing happens.",
        "You arrive at shelf 1. On the shelf 1, you see a pen 1.",
        "You move the egg 1 to the shelf 1.",
        "You are facing the shelf 1. Next to it, you see nothing.",
    ]


@pytest.mark.parametrize("command", ["move {} to {}", "put {} in/on {}", "put {} in {}", "put {} on {}"])
@pytest.mark.parametrize("place", HOUSE.places)
def test_what_was_taken_can_be_put_anywhere_also_back(command: str, place: str) -> None:
    state = State(where=("", "shelf 1"), at=place, opened=frozenset(HOUSE.places) - {"shelf 1", "sinkbasin 1"})
    session = Session(chosen=HouseArguments(), house=HOUSE, state=state).command(command.format("egg 1", place))
    assert session.heard == f"You move the egg 1 to the {place}."
    assert session.state.where == (place, "shelf 1")
    assert session.command(f"take egg 1 from {place}").state == state


def test_the_words_of_a_terse_episode() -> None:
    session = Session(chosen=HouseArguments(style="terse"), house=HOUSE, state=START)
    assert session.style.open(HOUSE) == " fridge sinkbasin shelf microwave drawer drawer 2 : heat egg shelf"
    said = []
    for command in (
        "go fridge",
        "open",
        "take egg",
        "heat",
        "go microwave",
        "heat",
        "go drawer 2",
        "go shelf",
        "inventory",
        "put",
    ):
        session = session.command(command)
        said.append(session.heard)
    assert said == [
        " fridge shut",
        " fridge egg",
        " got egg",
        " no",
        " microwave shut",
        " hot egg",
        " drawer 2 shut",
        " shelf pen",
        " egg",
        " shelf egg",
    ]
    assert session.is_done
    assert session.steps == 10


@given(text=st.text(max_size=30) | st.lists(st.sampled_from(("go", "to", "put", "1", "egg", "take"))).map(" ".join))
@settings(max_examples=100, deadline=None)
def test_any_text_is_a_command_or_nothing_happens(text: str) -> None:
    for style in STYLE_NAMES:
        session = Session(chosen=HouseArguments(style=style), house=HOUSE, state=START).command(text)
        assert session.steps == 1
        assert session.heard


# ------------------------------------------------------------------------------------------------ plan


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [0.0, 0.3, 0.6])
def test_the_plan_has_an_answer_in_every_state_and_reaches_the_goal(kind: Kind, noise: float) -> None:
    for seed in range(25):
        house, state = make_house(kind, seed, places=4 + seed % 20, things=seed % 6, belongs=0.7)
        random, steps = Random(seed), 0
        while not is_done(house, state):
            action = plan_action(house, state)
            assert 0 <= measure_progress(house, state) < 1
            if random.random() < noise and steps < 40:
                action = random.choice(list(list_actions(house, state)))
            after = act(house, state, action)
            assert after is not None, (kind, seed, steps, action)
            state, steps = after, steps + 1
            assert steps < 60
        assert measure_progress(house, state) == 1
        assert noise or steps <= (11 if kind == "two" else 9)
        with pytest.raises(ValueError, match="the task is fulfilled; plan before it is"):
            plan_action(house, state)


def test_progress_rises_with_what_is_done() -> None:
    held = replace(START, where=("", "shelf 1"))
    hot = replace(held, has=frozenset({("egg 1", "hot")}))
    assert measure_progress(HOUSE, START) == 0
    assert measure_progress(HOUSE, held) == pytest.approx(1 / 3)
    assert measure_progress(HOUSE, hot) == pytest.approx(2 / 3)
    assert measure_progress(HOUSE, replace(hot, where=("shelf 1", "shelf 1"))) == 1


# ------------------------------------------------------------------------------------------------ episodes


def test_an_episode_ends_with_the_task_or_the_last_step() -> None:
    family = Houses(style="terse", places=5, things=2, max_steps=3)
    task = family.task("train", 0)
    said, reward = play(task, family.build_environment(task), ["go nowhere", "", "look"])
    assert said == [" no", " no", ""]
    assert reward.total == reward.part("success") == 0
    environment = family.build_environment(task)
    play(task, environment, ["look"] * 3)
    with pytest.raises(EnvironmentFault, match="HouseEnvironment was stepped after its episode ended"):
        asyncio.run(environment.step(answer_message("look")))


def test_a_fulfilled_task_is_worth_one() -> None:
    family = Houses(kinds={"clean": 1})
    task = family.task("heldout", 3)
    session, commands = Session.open(task.payload, HouseArguments()), []
    while not session.is_over:
        commands.append(session.style.command(plan_action(session.house, session.state)))
        session = session.command(commands[-1])
    said, reward = play(task, family.build_environment(task), commands)
    assert reward.total == reward.part("success") == reward.part("progress") == 1
    assert said[-1] == ""
    assert "".join(said).count("You clean") == 1


def test_what_is_measured_of_replies() -> None:
    session = Session(chosen=HouseArguments(style="terse"), house=HOUSE, state=START)
    measured = []
    for command in ("go shelf", "go fridge", "go shelf", "take pen", "go drawer", "dance", "go fridge"):
        session = session.command(command)
        measured.append(dict(session.signals))
    first = {"looks_where_it_belongs": 0.0, "looks_again": 0.0}
    # The fridge was shut when it was left, so nothing in it was seen; with a pen in one's hand one does not look.
    assert measured == [first, {"looks_again": 0.0}, {"looks_again": 1.0}, {}, {}, {}, {}]
    held = replace(session, state=State(where=("", "shelf 1"), at="shelf 1"))
    assert dict(held.command("put").signals) == {"is_prepared": 0.0}
    hot = replace(held, state=replace(held.state, has=frozenset({("egg 1", "hot")})))
    assert dict(hot.command("put").signals) == {"is_prepared": 1.0}
    assert dict(replace(session, state=START).command("go fridge").signals)["looks_where_it_belongs"] == 1.0


def test_a_state_is_the_same_however_it_was_reached() -> None:
    family = Houses(style="terse", places=5, kinds={"put": 1})
    task = family.task("train", 1)
    places = [name.removesuffix(" 1") for name in Session.open(task.payload, HouseArguments(places=5)).house.places]
    short, long, other = (family.build_environment(task) for _ in range(3))
    play(task, short, [f"go {places[0]}"])
    play(task, long, [f"go {places[1]}", "dance", f"go {places[0]}"])
    play(task, other, [f"go {places[1]}"])
    assert short.state_hash() == long.state_hash() != other.state_hash()
    fork = asyncio.run(short.fork())
    asyncio.run(fork.step(answer_message(f"go {places[1]}")))
    assert fork.state_hash() == other.state_hash()
    assert short.state_hash() == long.state_hash()


@pytest.mark.parametrize(
    ("style", "again"), [("terse", " : heat egg shelf"), ("full", "\nYour task is to: put a hot egg in/on a shelf.")]
)
def test_the_task_is_repeated_after_every_outcome_if_that_is_chosen(style: StyleName, again: str) -> None:
    session = Session(chosen=HouseArguments(style=style, remind=True), house=HOUSE, state=START)
    assert session.style.open(HOUSE).endswith(again)
    after = session.command("look")
    assert after.shown == after.heard + again
    hidden = HouseArguments(style=style, remind=True, observations="blank")
    assert replace(session, chosen=hidden).command("look").shown == "." + again


# ------------------------------------------------------------------------------------------------ controls


def test_hidden_outcomes_say_nothing_and_change_nothing_else() -> None:
    own, blank = open_session("heat", 4), open_session("heat", 4, observations="blank")
    for command in ("go to fridge 1", "open fridge 1", "dance"):
        own, blank = own.command(command), blank.command(command)
        assert blank.heard == "."
        assert blank.state == own.state


def test_under_shuffled_names_every_place_is_another() -> None:
    session = open_session("put", 2, names="shuffled", places=6)
    reached = [session.command(f"go to {place}").state.at for place in session.house.places]
    assert sorted(reached) == sorted(session.house.places)
    assert all(at != place for at, place in zip(reached, session.house.places, strict=True))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kinds": {"fetch": 1}}, "kinds.fetch=1: unknown kind; use put, light, clean, heat, cool, two"),
        ({"places": 3}, "places=3: it must be greater than or equal to 4"),
        ({"style": "long"}, "style='long': it must be 'full' or 'terse'"),
        ({"belongs": 1.5}, "belongs=1.5: it must be less than or equal to 1"),
    ],
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Houses(**wrong)
    assert str(raised.value).startswith(message)


def test_every_verb_is_met_in_both_styles() -> None:
    written: dict[str, set[Verb]] = {style: set() for style in STYLE_NAMES}
    for kind in KINDS:
        session = open_session(kind, 1)
        random = Random(0)
        for _ in range(150):
            actions = list(list_actions(session.house, session.state))
            for style in STYLE_NAMES:
                written[style] |= {action.verb for action in actions if STYLES[style].command(action)}
            action = plan_action(session.house, session.state) if random.random() < 0.3 else random.choice(actions)
            state = act(session.house, session.state, action)
            assert state is not None
            if is_done(session.house, state):
                break
            session = replace(session, state=state)
    assert all(verbs == set(get_args(Verb)) for verbs in written.values())
