"""The same house in ALFWorld's own engine: the same possible commands, the same sentences, success at the same step."""

import re
from random import Random

import pytest
from alfworld_game import build_game, write_problem

from turnwise_worlds.house.arguments import HouseArguments
from turnwise_worlds.house.plan import plan_action
from turnwise_worlds.house.session import Session
from turnwise_worlds.house.styles import STYLES
from turnwise_worlds.house.world import Kind, list_actions

FULL = STYLES["full"]
IMPOSSIBLE = ("dance", "open shelf 9", "go to", "take egg 1", "heat pen 1 with fridge 1", "use bed 1", "help me")


def sort_lists(sentence: str) -> str:
    """A sentence with what one sees in the order of the alphabet: ALFWorld's order is that of its identifiers."""
    head, see, listed = sentence.rpartition(" you see ")
    items = re.findall(r"[a-z]+ \d+", listed)
    return f"{head}{see}{sorted(items) if items else listed}" if see else sentence


@pytest.mark.parametrize("kind", ["put", "light", "clean", "heat", "cool", "two"])
@pytest.mark.parametrize("places", [5, 9])
def test_a_house_is_the_same_in_the_engine_of_alfworld(kind: Kind, places: int) -> None:
    pytest.importorskip("alfworld", reason="needs alfworld")
    chosen = HouseArguments(places=places, things=4, max_steps=40)
    session = Session.open({"kind": kind, "seed": places}, chosen)
    game = build_game(session.house, session.state)
    theirs, random = game.reset(), Random(places)
    assert theirs["won"] is False
    start = "You are in the middle of a room. Looking quickly around you, you see "
    told = theirs.feedback[theirs.feedback.index(start) :].partition("\n")[0]
    assert sort_lists(told) in {sort_lists(line) for line in FULL.open(session.house).split("\n")}
    while not session.is_over:
        commands = [FULL.command(action) for action in list_actions(session.house, session.state)]
        assert sorted(commands) == sorted({*theirs["admissible_commands"]} - {"help"})
        draw = random.random()
        if draw < 0.15:
            command = random.choice([command for command in IMPOSSIBLE if command not in commands])
        elif draw < 0.5:
            # "look" in the middle of the room names no place in ALFWorld after the first message.
            command = random.choice([each for each in commands if each != "look" or session.state.at])
        else:
            command = FULL.command(plan_action(session.house, session.state))
        session = session.command(command)
        theirs, _, _ = game.step(command)
        assert sort_lists(theirs.feedback) == sort_lists(session.heard)
        assert theirs["won"] == session.is_done
    assert session.is_done


def test_a_problem_declares_what_its_facts_name() -> None:
    session = Session.open({"kind": "two", "seed": 3}, HouseArguments(places=20))
    problem = write_problem(session.house, session.state)
    declared = re.findall(r"([\w]+) - \w+", problem[problem.index("(:objects") : problem.index("(:init")])
    facts = problem[problem.index("(:init") : problem.index("(:goal")]
    named = {word for fact in re.findall(r"\((\w+(?: \w+)+)\)", facts) for word in fact.split()[1:]}
    assert len(declared) == len(set(declared))
    assert named <= set(declared)
    assert problem.count("(") == problem.count(")")
