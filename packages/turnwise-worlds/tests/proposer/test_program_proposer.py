"""Programs that a model proposes: the language, what is wrong with one, and which are held out."""

from random import Random

import pytest
from asked_episodes import play_asked, read_parts, speak_as
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.episodes import Ask
from turnwise.core.types import Message
from turnwise.environments.replies import answer_message as say
from turnwise_worlds.proposer.pay import FLAWS
from turnwise_worlds.proposer.program_family import GROUPS, ProgramProposer, build_problem, judge
from turnwise_worlds.proposer.programs import (
    BASE,
    OPERATIONS,
    Program,
    format_program,
    parse_program,
    run_program,
)

FAMILY = ProgramProposer(solvers=4)


def test_programs_run_as_by_hand() -> None:
    by_hand = {
        "dbl inc on 7": [4, 5],
        "neg neg on 3": [7, 3],
        "half on 9": [4],
        "sqr on 4": [6],
        "cube on 3": [7],
        "seven on 6": [4],
        "inv on 3": [7],
        "flip far tri on 2": [7, 2, 6],
        "on 4": [],
    }
    programs = {text: parse_program(text) for text in by_hand}
    assert {text: run_program(p) if p else None for text, p in programs.items()} == by_hand
    assert run_program(Program(operations=("inc", "inv"), value=3)) is None
    for name, operation in OPERATIONS.items():
        assert {operation(x) for x in range(BASE)} <= {None, *range(BASE)}, name


@pytest.mark.parametrize(
    "text",
    ["", "on", "7", "inc", "inc 7", "inc on 10", "inc on x", "inc on -1", "inc inc inc inc on 1", "x on 1"],
)
def test_what_is_no_program_is_not_read(text: str) -> None:
    assert parse_program(text) is None
    assert judge(parse_program(text)) == "ill_formed"


def test_every_flaw_has_its_name() -> None:
    held_out = parse_program(FAMILY.task("heldout", 0).payload["program"])
    assert held_out is not None
    assert held_out.is_held_out
    assert judge(held_out) == "ill_formed"
    flaws = {"inv on 2": "unsolvable", "on 4": "trivial", "neg on 0": "trivial", "inc on 0": None, "neg neg on 3": None}
    assert {text: judge(parse_program(text)) for text in flaws} == flaws


@given(st.lists(st.sampled_from(list(OPERATIONS)), max_size=3), st.integers(0, BASE - 1))
def test_programs_are_read_as_they_are_written_and_numbered_apart(names: list[str], value: int) -> None:
    program = Program(operations=tuple(names), value=value)
    assert parse_program(format_program(program)) == program
    assert judge(program) in (None, *FLAWS)


def test_no_two_programs_have_one_number() -> None:
    programs = [
        Program(operations=names, value=value)
        for names in [(a, b) for a in OPERATIONS for b in OPERATIONS] + [(a,) for a in OPERATIONS]
        for value in range(BASE)
    ]
    numbers = [build_problem(program).kind.number for program in programs if run_program(program) is not None]
    assert len(set(numbers)) == len(numbers) > 1000


def test_solvers_are_judged_by_their_last_word() -> None:
    task = FAMILY.task("train", 0)
    answers = {"solver0": "dbl 4 inc 5", "solver1": "5", "solver2": "5 4", "solver3": ""}

    def speak(ask: Ask, messages: list[Message]) -> Message:
        return say("dbl inc on 7" if ask.conversation == "main" else answers[ask.conversation])

    rewards, _, said = play_asked(FAMILY.build_environment(task), task, speak)
    assert [read_parts(rewards[f"solver{i}"])["success"] for i in range(4)] == [1.0, 1.0, 0.0, 0.0]
    parts = read_parts(rewards["proposer"])
    assert (parts["kind_dbl"], parts["solved_dbl"], parts["kind_inc"]) == (1.0, 0.5, 0.0)
    assert said["solver0"][0].text == "Run: dbl inc on 7\n"


def test_what_the_policies_are_worth_and_what_they_propose() -> None:
    for policy, expected in (("oracle", (1.0, 1.0)), ("naive", (1.0, 1.0)), ("random", (0.0, 0.3))):
        wins = 0.0
        for index in range(60):
            task = FAMILY.task("heldout", index)
            rewards, _, _ = play_asked(
                FAMILY.build_environment(task), task, speak_as(FAMILY.policy(policy), task, seed=index)
            )
            wins += read_parts(rewards["solver0"])["success"]
        assert expected[0] <= wins / 60 <= expected[1]
    task, rng = FAMILY.task("train", 0), Random(0)
    drawn = [FAMILY.policy("prior").reply(task, task.prompt, rng).text for _ in range(300)]
    assert sum("inc" in text for text in drawn) > 10 * sum("inv" in text for text in drawn)


def test_held_out_programs_are_of_every_group_and_never_proposed() -> None:
    for index in range(30):
        task = FAMILY.task("heldout", index)
        program = parse_program(task.payload["program"])
        assert program is not None
        assert program.rarest in GROUPS[task.payload["kind"]]
        assert judge(program) == "ill_formed"
