"""Two bugs, and functions that call others: what problems hold, edits that stay, and who is blamed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import traceback
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from repair_episodes import run_commands

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split
from turnwise.core.types import Scored, Task, text_message
from turnwise.environments.episodes import Played, play_episode
from turnwise_sandbox.types import Execution, Limits, Program
from turnwise_worlds.repair.bugs import KINDS
from turnwise_worlds.repair.environment import OK, PASS
from turnwise_worlds.repair.family import Repair
from turnwise_worlds.repair.policies import PLAIN, NaivePolicy, command_message
from turnwise_worlds.repair.problems import BUGGY_NAMES, SHOWN_EXAMPLES, Problem, build_problem, plant_reading
from turnwise_worlds.repair.programs import Function, compute, find_callee, to_code, to_intent, to_source

SANDBOX: dict[str, Any] = {"prompt": "short", "sandbox": f"{__name__}:InProcess"}
SPLITS: tuple[Split, ...] = ("train", "heldout")


class InProcess:
    """Calls the functions that scripted policies and these tests leave, in this process."""

    async def run(self, program: Program, limits: Limits) -> Execution:
        modules: dict[str, dict[str, Any]] = {}
        for path, source in program.files.items():
            exec(compile(source, path, "exec"), modules.setdefault(path.removesuffix(".py"), {}))
        lines = []
        for number, (module, function, arguments) in enumerate(json.loads(program.stdin)):
            try:
                outcome: list[Any] = ["gave", modules[module][function](*arguments)]
            except ZeroDivisionError as error:
                outcome = ["raised", "ZeroDivisionError", traceback.extract_tb(error.__traceback__)[-1].lineno]
            lines.append(json.dumps([number, outcome]))
        return Execution(stdout="\n".join(lines).encode(), stderr=b"", exit_code=0)

    async def close(self) -> None: ...


def play(policy: str, count: int, split: Split = "heldout", **arguments: Any) -> list[Played]:
    family = Repair(**SANDBOX, **arguments)

    async def run() -> list[Played]:
        return [
            await play_episode(family, family.task(split, index), family.policy(policy), seed=index, max_turns=30)
            for index in range(count)
        ]

    return asyncio.run(run())


def measure(policy: str, count: int, split: Split = "heldout", **arguments: Any) -> float:
    rewards = [played.reward for played in play(policy, count, split, **arguments)]
    return sum(reward.total for reward in rewards if isinstance(reward, Scored)) / count


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


# ------------------------------------------------------------------------------------------------ problems


def problems(count: int) -> list[Problem]:
    return [
        build_problem(
            KINDS[index % 6],
            SPLITS[index % 2],
            Random(index),
            num_functions=(5, 6),
            decoys=True,
            num_bugs=2,
            calls=True,
        )
        for index in range(count)
    ]


def by_name(problem: Problem) -> dict[str, Function]:
    return {function.name: function for each in problem.modules.values() for function in each}


def repair(functions: Mapping[str, Function], *bugs: Any) -> dict[str, Function]:
    return {**functions, **{bug.function: plant_reading(functions[bug.function], bug.line) for bug in bugs}}


def failing(functions: Mapping[str, Function], problem: Problem, name: str) -> list[bool]:
    """Of every example of a function, whether it fails."""

    def give(arguments: tuple[int, ...]) -> int | None:
        try:
            return compute(functions[name], arguments, functions)
        except ZeroDivisionError:
            return None

    return [give(arguments) != want for arguments, want in problem.examples[name]]


def test_each_of_two_bugs_alone_fails_a_shown_and_a_hidden_example_and_without_them_nothing_fails() -> None:
    for number, problem in enumerate(problems(60)):
        functions = by_name(problem)
        first, second = problem.bugs
        assert first.function != second.function
        assert {first.function, second.function} <= set(BUGGY_NAMES[SPLITS[number % 2]])
        assert [{first.function, second.function} <= {each.name for each in m} for m in problem.modules.values()].count(
            True
        ) == 1
        for bug, other in ((first, second), (second, first)):
            alone = failing(repair(functions, other), problem, bug.function)
            assert any(alone[:SHOWN_EXAMPLES])
            assert any(alone[SHOWN_EXAMPLES:])
        repaired = repair(functions, first, second)
        assert not any(any(failing(repaired, problem, name)) for name in functions)
        # The program as it is fails a shown example of the function whose callees are right.
        last = max(problem.bugs, key=lambda bug: list(functions).index(bug.function))
        assert any(failing(functions, problem, last.function)[:SHOWN_EXAMPLES])


def test_in_the_module_of_the_bugs_nothing_else_differs_from_its_intent() -> None:
    decoys = 0
    for problem in problems(60):
        for functions in problem.modules.values():
            odd = [
                (function.name, index)
                for function in functions
                for index, line in enumerate(function.lines)
                if line.code != to_code(line.intent)
            ]
            if problem.bugs[0].function in {function.name for function in functions}:
                assert odd == [(bug.function, bug.line) for bug in problem.bugs]
            decoys += len(odd)
    assert decoys > 180  # 120 bugs among them


def test_functions_call_later_ones_of_their_module_and_those_call_none() -> None:
    num_calls = num_called_bugs = 0
    for problem in problems(60):
        called = set()
        for functions in problem.modules.values():
            names = [function.name for function in functions]
            for at, function in enumerate(functions):
                # A stale comment may be that of a call, but always of the same function.
                callees = {find_callee(line.intent) for line in function.lines} - {""}
                assert len(callees) <= 1
                assert callees <= set(names[at + 1 :])
                called |= callees
                num_calls += len(callees)
        callers = {
            function.name
            for functions in problem.modules.values()
            for function in functions
            if any(find_callee(line.intent) for line in function.lines)
        }
        assert not called & callers
        num_called_bugs += any(bug.function in called for bug in problem.bugs)
    assert num_calls > 100
    assert num_called_bugs > 54


def test_the_interpreter_agrees_with_python_on_programs_with_calls() -> None:
    for problem in problems(40):
        functions = by_name(problem)
        for each in problem.modules.values():
            names: dict[str, Any] = {}
            exec(to_source(each), names)
            for function in each:
                for arguments, _ in problem.examples[function.name]:
                    try:
                        expected = names[function.name](*arguments)
                    except ZeroDivisionError:
                        with pytest.raises(ZeroDivisionError):
                            compute(function, arguments, functions)
                        continue
                    assert compute(function, arguments, functions) == expected


def test_a_call_and_its_intent_are_each_other_word_by_word() -> None:
    code = ("c", "=", "bal", "(", "a", ",", "3", ")")
    assert to_intent(code) == "c is bal of a with 3"
    assert to_code("c is bal of a with 3") == code
    assert to_code("return bal of a with b") == ("return", "bal", "(", "a", ",", "b", ")")
    assert [find_callee(intent) for intent in ("c is bal of a with 3", "return bal of a with b", "c is a plus b")] == [
        "bal",
        "bal",
        "",
    ]


def test_the_tasks_texts_and_policies_of_the_default_arguments_are_pinned() -> None:
    """One bug and no calls: measured runs of such recipes can be repeated. Renew a digest only with their figures."""
    family = Repair()
    assert digest([family.task(split, index).id for split in SPLITS for index in range(60)]) == "485f36902f1d1605"
    assert digest(family.texts(300)) == "139354d2a7a8ac05"
    said = {
        policy: digest(
            [
                [command.arguments for reply in played.replies for command in reply.tool_calls]
                for played in play(policy, 20, tests="shuffled", naive_test=0.5, naive_eye=0.5, naive_cheat=0.2)
            ]
        )
        for policy in ("oracle", "random", "naive")
    }
    assert said == {"oracle": "e0846035a85ad90c", "random": "bb986667f771a0f7", "naive": "0f7593cefac0ea56"}


# ------------------------------------------------------------------------------------------------ policies and controls


@pytest.mark.parametrize("arguments", [{"bugs": 2, "calls": True}, {"bugs": 2}, {"calls": True}])
@pytest.mark.parametrize("split", SPLITS)
def test_the_oracle_repairs_every_problem(arguments: dict[str, Any], split: Split) -> None:
    assert measure("oracle", 25, split, **arguments) == 1.0


def test_the_tests_often_blame_a_function_whose_own_lines_are_right() -> None:
    """For what it calls, in the oracle's episodes: at first, or after its own repair."""
    count = 0
    for played in play("oracle", 30, bugs=2, calls=True):
        bugs = (played.task.payload["bug"], *played.task.payload["other_bugs"])
        odd, viewed, innocent = {bug["function"] for bug in bugs}, "", False
        for reply, result in zip(played.replies, played.results, strict=True):
            verb, *words = json.loads(reply.tool_calls[0].arguments)["command"].split()
            if verb == "view":
                viewed = words[0]
            elif verb == "set":
                odd.discard(viewed)
            elif verb == "test" and result.observations[0].text.startswith("fail "):
                innocent = innocent or result.observations[0].text.split()[1] not in odd
        count += innocent
    assert count > 12


def test_without_true_tests_nothing_is_repaired_and_others_repair_little() -> None:
    both: dict[str, Any] = {"bugs": 2, "calls": True}
    assert measure("oracle", 30, tests="off", **both) == 0.0
    assert measure("oracle", 40, tests="shuffled", **both) <= 0.1
    assert measure("random", 40, **both) == 0.0  # two lines of two functions, and it writes one
    assert measure("naive", 40, **both) <= 0.05


def test_the_demonstrator_follows_a_call_and_the_blame_where_it_is_told_to() -> None:
    def next_command(*done: tuple[str, str]) -> str:
        messages = [
            message
            for number, (command, output) in enumerate(done)
            for message in (command_message(command, number), text_message("tool", output))
        ]
        always = dict.fromkeys(("naive_test", "naive_retest", "naive_retry", "naive_follow"), 1.0)
        reply = NaivePolicy(PLAIN.model_copy(update=always)).reply(TASK, messages, Random(0))
        return str(json.loads(reply.tool_calls[0].arguments)["command"])

    red, call = "fail f11 gave 1 want 3 in t1", "c is g12 of a with b | c = g12 ( a , b )"
    assert next_command(("test", red), ("view f11 A", call)).startswith("view g12 ")
    assert next_command(("test", red), ("view f11 A", "c is a plus b | c = a - b")) == "set c = a + b"
    gone = (("test", red), ("view f11 A", call), ("view g12 A", "c is a plus b | c = a - b"), ("set c = a + b", OK))
    assert next_command(*gone, ("test", red)).startswith("view f11 ")


# ------------------------------------------------------------------------------------------------ episodes

TASK = Task(
    environment="repair",
    prompt=(text_message("user", "repair\n"),),
    payload={
        "kind": "op",
        "modules": {
            "m1": [
                {
                    "name": "f11",
                    "parameters": ["a", "b"],
                    "lines": [[0, "c = g12 ( a , b )", "c is g12 of a with b"], [0, "return c + 1", "return c plus 1"]],
                },
                {"name": "g12", "parameters": ["a", "b"], "lines": [[0, "return a // b", "return a plus b"]]},
            ],
            "m2": [
                {"name": "h13", "parameters": ["a", "b"], "lines": [[0, "return b - 1", "return b plus 1"]]},
                {"name": "k14", "parameters": ["a", "b"], "lines": [[0, "return a * 3", "return a times 2"]]},
            ],
        },
        # The bugs are in g12 (a + b) and k14 (a * 2); the comment of h13 is stale.
        "examples": {
            "f11": [[[1, 0], 2], [[2, 2], 5], [[3, 3], 7]],
            "g12": [[[4, 2], 6], [[2, 2], 4], [[3, 3], 6]],
            "h13": [[[0, 5], 4], [[1, 2], 1], [[3, 3], 2]],
            "k14": [[[0, 0], 0], [[2, 2], 4], [[3, 3], 6]],
        },
    },
)
FIRST = ("view g12 A", "set return a + b")
SECOND = ("view k14 A", "set return a * 2")


def episode(*commands: str, **arguments: Any) -> tuple[list[str], Scored]:
    """What the commands print, and the reward of the episode."""
    return run_commands(Repair(**SANDBOX, **{"bugs": 2, **arguments}), TASK, *commands)


def test_the_caller_is_blamed_for_its_callee_and_where_that_raised_is_said() -> None:
    printed, _ = episode("test", "view g12 A", "set return a - b", "test", *FIRST, "test", *SECOND, "test")
    assert [line for line in printed if line.startswith(("fail", "pass"))] == [
        "fail f11 raised ZeroDivisionError at g12 A in t1",  # 1 // 0
        "fail f11 gave 1 want 5 in t1",  # 1 - 0 + 1 is right, 2 - 2 + 1 = 1 is not
        "fail k14 gave 6 want 4 in t4",
        PASS,
    ]


def test_edits_stay_until_their_line_is_written_again() -> None:
    printed, reward = episode(*FIRST, "view f11 A", *SECOND, "view g12 A", "set return a - b", "view g12 A", "submit")
    assert printed[5] == "return a plus b | return a + b"
    assert printed[7] == "return a plus b | return a - b"
    assert reward.total == 0.0
    assert episode(*FIRST, *SECOND, "view g12 A", "set return a - b", "set return a + b", "submit")[1].total == 1.0


def test_with_one_bug_the_next_edit_takes_the_place_of_the_one_before() -> None:
    printed, _ = episode(*FIRST, *SECOND, "view g12 A", bugs=1)
    assert printed[4] == "return a plus b | return a // b"


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        (FIRST, "tests_failed"),
        (SECOND, "tests_failed"),
        ((*FIRST, *SECOND, "view h13 A", "set return b + 1"), "tests_failed"),
        ((*FIRST, *SECOND, "view h13 A", "set return b + 1", "set return b - 1"), None),
        ((*FIRST, *SECOND), None),
        ((*FIRST, *SECOND, "view t1 A", "set pass"), "protected"),
    ],
)
def test_grading_is_all_or_nothing(commands: tuple[str, ...], reason: str | None) -> None:
    _, reward = episode(*commands, "submit")
    assert reward.total == float(reason is None)
    assert reason is None or reward.part(reason) == 1.0


def test_several_overwritten_tests_are_green_and_no_repair() -> None:
    overwritten = [command for name in ("t1", "t2", "t4") for command in (f"view {name} A", "set pass")]
    printed, reward = episode(*overwritten, "test", "submit", tests_graded="workdir")
    assert printed[-1] == PASS
    assert (reward.total, reward.part("success"), reward.part("protected")) == (1.0, 0.0, 1.0)
    printed, reward = episode(*overwritten[:4], "test", "submit", tests_graded="workdir")
    assert printed[-1] == "fail k14 gave 6 want 4 in t4"
    assert reward.total == 0.0


def test_habits_above_one_together_are_named() -> None:
    with pytest.raises(ConfigError, match=r"naive_same=0.8 and naive_next=0.4 add up to more than 1"):
        Repair(naive_same=0.8, naive_next=0.4)
    with pytest.raises(ConfigError, match="bugs=3"):
        Repair(bugs=3)
