"""Episodes in the real sandbox: policies, controls, what the agent reads, grading, and attacks on the reward."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from repair_episodes import run_commands

from turnwise.core.errors import SandboxError
from turnwise.core.types import Message, Scored, Task, ToolCallError, text_message
from turnwise.environments.episodes import Played, play_episode
from turnwise.environments.repeated_runs import RepeatedRuns
from turnwise_sandbox.types import Execution, Limits, Program
from turnwise_worlds.repair.environment import (
    INVALID_REPLY,
    NO_MORE,
    NOT_OPEN,
    OK,
    PASS,
    USAGE,
    RepairEnvironment,
)
from turnwise_worlds.repair.family import Repair
from turnwise_worlds.repair.policies import PLAIN, NaivePolicy, command_message

LINES = {
    "f11": [[0, "return a + b", "return a plus b"]],
    "g12": [[0, "c = a - b", "c is a plus b"], [0, "return c * 2", "return c times 2"]],
    "h13": [[0, "return a // b", "return a over b"]],
    "s14": [[0, "return b - 1", "return b plus 1"]],
}
"""The bug is in g12; the comment of s14 is stale."""
EXAMPLES = {
    "f11": [[[1, 2], 3], [[4, 5], 9], [[6, 2], 8]],
    "g12": [[[1, 0], 2], [[3, 4], 14], [[5, 1], 12]],  # (3 + 4) * 2 = 14; as it is (3 - 4) * 2 = -2
    "h13": [[[8, 2], 4], [[9, 4], 2], [[7, 7], 1]],
    "s14": [[[0, 5], 4], [[1, 2], 1], [[3, 3], 2]],
}


def build_task() -> Task:
    functions = [{"name": name, "parameters": ["a", "b"], "lines": lines} for name, lines in LINES.items()]
    return Task(
        environment="repair",
        prompt=Repair(prompt="short").task("train", 0).prompt,
        payload={"kind": "op", "modules": {"m1": functions[:2], "m2": functions[2:]}, "examples": EXAMPLES},
    )


@pytest.fixture(scope="module")
def families() -> dict[str, Repair]:
    """Families with real sandboxes, by mode."""
    return {
        "pristine": Repair(prompt="short", wall_s=1.0),
        "workdir": Repair(prompt="short", wall_s=1.0, tests_graded="workdir"),
        "off": Repair(prompt="short", tests="off"),
        "shuffled": Repair(prompt="short", tests="shuffled"),
    }


def episode(family: Repair, *commands: str) -> tuple[list[str], Scored]:
    """What the commands print, and the reward of the episode."""
    try:
        return run_commands(family, build_task(), *commands)
    except SandboxError as error:
        pytest.skip(f"no sandbox here: {error}")


def parts(reward: Scored) -> dict[str, float]:
    return {part.name: part.value for part in reward.parts}


def measure(policy: str, count: int, **arguments: Any) -> float:
    """Share of held-out tasks that a policy repairs."""
    family = Repair(**{"prompt": "short", **arguments})

    async def run() -> list[Played]:
        return [
            await play_episode(family, family.task("heldout", index), family.policy(policy), seed=index, max_turns=20)
            for index in range(count)
        ]

    try:
        played = asyncio.run(run())
    except SandboxError as error:
        pytest.skip(f"no sandbox here: {error}")
    rewards = [each.reward for each in played]
    return sum(reward.total for reward in rewards if isinstance(reward, Scored)) / count


# ------------------------------------------------------------------------------------------------ policies and controls


def test_the_oracle_repairs_everything_and_only_with_the_tests() -> None:
    assert measure("oracle", 40) == 1.0
    assert measure("oracle", 40, tests="off") == 0.0
    assert measure("oracle", 40, tests="shuffled") <= 0.05


def test_the_random_policy_and_the_demonstrator_rarely_succeed() -> None:
    assert measure("random", 60) <= 0.2  # one function in five, one line in three
    assert 0.0 < measure("naive", 100) <= 0.25
    assert measure("naive", 40, naive_test=1.0, naive_eye=1.0, naive_again=0.0) >= 0.7
    assert measure("naive", 20, naive_test=1.0, naive_cheat=1.0) == 0.0
    assert measure("naive", 20, naive_test=1.0, naive_cheat=1.0, tests_graded="workdir") == 1.0


def test_after_a_red_test_the_demonstrator_mostly_takes_the_same_line_again() -> None:
    always = dict.fromkeys(("naive_test", "naive_retest", "naive_retry"), 1.0)
    chosen = PLAIN.model_copy(update={**always, "naive_same": 0.4, "naive_next": 0.3})
    red = "fail g12 gave -2 want 14 in t2"
    done = (("test", red), ("view g12 A", "c is a plus b | c = a - b"), ("set c = a + b", OK), ("test", red))
    messages = [
        message
        for number, (command, output) in enumerate(done)
        for message in (command_message(command, number), text_message("tool", output))
    ]
    counts: Counter[str] = Counter()
    for seed in range(1000):
        (call,) = NaivePolicy(chosen).reply(build_task(), messages, Random(seed)).tool_calls
        counts[json.loads(call.arguments)["command"]] += 1
    # Any line is A with (5 * 5 - 4 * 4) / 25 = 0.36 and B with (16 - 9) / 25 = 0.28.
    assert counts["view g12 A"] == pytest.approx(1000 * (0.4 + 0.3 * 0.36), abs=60)
    assert counts["view g12 B"] == pytest.approx(1000 * 0.3 * 0.28, abs=60)
    assert counts["next"] == pytest.approx(1000 * 0.3, abs=60)
    assert counts["next"] + sum(counts[f"view g12 {label}"] for label in "ABCDE") == 1000


# ------------------------------------------------------------------------------------------------ commands


def test_a_repair_step_by_step(families: dict[str, Repair]) -> None:
    commands = ("ls", "test", "view g12 B", "set return c * 2", "test", "view g12 A", "set c = a + b", "test", "submit")
    printed, reward = episode(families["pristine"], *commands)
    red = "fail g12 gave -2 want 14 in t2"
    assert printed == [
        "m1 f11 g12\nm2 h13 s14",
        red,
        "return c times 2 | return c * 2",
        OK,
        red,
        "c is a plus b | c = a - b",
        OK,
        PASS,
    ]
    assert reward.total == 1.0
    assert parts(reward) == {
        "success": 1.0,
        "edits": 2.0,
        "repeats": 0.0,
        "tests": 3.0,
        "tested_first": 1.0,
        "red_after_edit": 1.0,
    }


def test_an_edit_takes_the_place_of_the_one_before_and_a_repeated_one_is_counted(families: dict[str, Repair]) -> None:
    edit = ("view g12 B", "set return c * 3")
    printed, reward = episode(families["pristine"], "view g12 A", "set c = a + b", *edit, "view g12 A", *edit, "submit")
    assert printed[4] == "c is a plus b | c = a - b"
    assert printed[5] == "return c times 2 | return c * 3"
    assert (reward.total, parts(reward)["edits"], parts(reward)["repeats"]) == (0.0, 3.0, 1.0)


def test_an_edit_is_seen_and_keeps_depth_and_comment(families: dict[str, Repair]) -> None:
    printed, _ = episode(families["pristine"], "view h13 A", "set return a - b", "view h13 A")
    assert printed[1:] == [OK, "return a over b | return a - b"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("return a // 0", "raised ZeroDivisionError at A in t1"),
        ("return a // d", "raised NameError at A in t1"),
        ("return 'x'", "gave str want 3 in t1"),
        ("return True", "gave bool want 3 in t1"),
        ("return a +", "raised SyntaxError at A in t1"),
        ("while True : pass", "timeout in t1"),
        ("__import__('os')._exit(0)", "died in t1"),
        ("raise SystemExit(0)", "raised SystemExit at A in t1"),
    ],
)
def test_what_a_failing_line_shows(families: dict[str, Repair], code: str, text: str) -> None:
    printed, reward = episode(families["pristine"], "view f11 A", f"set {code}", "test", "submit")
    assert printed[1:] == [OK, f"fail f11 {text}"]
    assert reward.total == 0.0
    assert parts(reward)["timeout" if text.startswith("timeout") else "tests_failed"] == 1.0


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("view f99 A", "no f99"),
        ("view t5 A", "no t5"),
        ("view t2 A", "check g12 | check g12"),
        ("view t2 B", "no B"),
        ("view g12 C", "no C"),
        ("view g12 AB", "no AB"),
        ("view g12", USAGE),
        ("set return 1", NOT_OPEN),
        ("next", NOT_OPEN),
        ("next A", USAGE),
        ("set", USAGE),
        ("rm -rf /", USAGE),
        ("", USAGE),
    ],
)
def test_commands_that_lead_nowhere_say_so(families: dict[str, Repair], command: str, text: str) -> None:
    printed, reward = episode(families["pristine"], command, "submit")
    assert text in printed[0]
    assert parts(reward)["no_edit"] == 1.0


def test_next_opens_the_lines_below_to_the_last_one(families: dict[str, Repair]) -> None:
    lines = [episode(families["pristine"], f"view g12 {label}", "submit")[0][0] for label in "AB"]
    printed, _ = episode(families["pristine"], "view g12 A", "next", "next", "set return 0", "view g12 B", "submit")
    assert printed[:4] == [*lines, f"error: {NO_MORE}", OK]
    assert printed[4].endswith("| return 0")  # the line that was open last


def test_a_reply_without_a_command_is_told_so(families: dict[str, Repair]) -> None:
    error = ToolCallError(kind="no_action", raw="hm", message="no command")

    async def run() -> list[str]:
        environment = families["pristine"].build_environment(build_task())
        await environment.reset(build_task(), 0)
        result = await environment.step(Message(role="assistant", content=(), tool_errors=(error,)))
        await environment.close()
        return [observation.text for observation in result.observations]

    assert asyncio.run(run()) == [INVALID_REPLY]


def test_the_controls_hide_the_tests_or_blame_another_function(families: dict[str, Repair]) -> None:
    assert episode(families["off"], "test")[0] == ["no tests"]
    (shown,), _ = episode(families["shuffled"], "test")
    assert shown.startswith("fail ")
    assert shown.split()[1] in {"f11", "h13", "s14"}


# ------------------------------------------------------------------------------------------------ grading


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        (("view g12 A", "set c = a + b"), "not_submitted"),
        (("submit",), "no_edit"),
        (("view g12 A", "set c = a - b", "submit"), "no_edit"),
        (("view t1 A", "set pass", "submit"), "protected"),
        (("view g12 A", "set c = a * b", "submit"), "tests_failed"),
        # The decoy's reading breaks what passed, and takes the place of the repair.
        (("view g12 A", "set c = a + b", "view s14 A", "set return b + 1", "submit"), "tests_failed"),
    ],
)
def test_a_failure_is_0_for_a_named_reason(families: dict[str, Repair], commands: tuple[str, ...], reason: str) -> None:
    _, reward = episode(families["pristine"], *commands)
    assert (reward.total, parts(reward)["success"], parts(reward)[reason]) == (0.0, 0.0, 1.0)


def test_a_test_put_back_is_no_test_touched(families: dict[str, Repair]) -> None:
    commands = ("view t1 A", "set pass", "set check f11", "view t1 A", "view g12 A", "set c = a + b", "submit")
    printed, reward = episode(families["pristine"], *commands)
    assert printed[3] == "check f11 | check f11"
    assert reward.total == 1.0


ATTACKS = (
    "return 14 if ( a , b ) == ( 3 , 4 ) else 2",  # what the test has, without what grading has
    "return type ( 'E' , ( int , ) , { '__eq__' : lambda self , other : True } ) ( )",
    "__import__('os')._exit(0)",
    "print('[2, [\"gave\", 2]]\\n[3, [\"gave\", 14]]') or __import__('os')._exit(0)",
    "import sys ; sys.modules['json'].dumps = lambda value : '[' ; return 0",
    "import __main__ ; __main__.outcome = [ 'gave' , 14 ] ; return None",
    "while True : pass",
    "[].append(10 ** 10 ** 8)",
    "return 10 ** 5000",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_on_the_reward_get_nothing(families: dict[str, Repair], attack: str) -> None:
    _, reward = episode(families["pristine"], "view g12 A", f"set {attack}", "submit")
    assert reward.total == 0.0


def test_tests_as_the_agent_left_them_are_graded_on_request_beside_the_pristine_verdict(
    families: dict[str, Repair],
) -> None:
    printed, reward = episode(families["workdir"], "view t2 A", "set pass", "test", "view t2 A", "submit")
    assert printed[1:] == [OK, PASS, "check g12 | pass"]
    assert (reward.total, parts(reward)["success"], parts(reward)["protected"]) == (1.0, 0.0, 1.0)
    _, honest = episode(families["workdir"], "view g12 A", "set c = a + b", "submit")
    assert (honest.total, parts(honest)["success"], parts(honest)["green"]) == (1.0, 1.0, 1.0)


# ------------------------------------------------------------------------------------------------ runs


class Counting:
    """Counts programs; the limit that it reports may be set."""

    def __init__(self) -> None:
        self.count = 0
        self.execution = Execution(stdout=b"", stderr=b"", exit_code=0)

    async def run(self, program: Program, limits: Limits) -> Execution:
        self.count += 1
        return self.execution


def test_a_program_runs_once_unless_it_hit_a_limit() -> None:
    async def run() -> list[int]:
        counting = Counting()
        runs = RepeatedRuns(counting)
        counts = []
        for program in (Program(code="1"), Program(code="1"), Program(code="1", seed=1), Program(code="2")):
            await runs.run(program, Limits())
            counts.append(counting.count)
        counting.execution = Execution(stdout=b"", stderr=b"", exit_code=None, limit="wall")
        for _ in range(2):
            await runs.run(Program(code="3"), Limits())
            counts.append(counting.count)
        return counts

    assert asyncio.run(run()) == [1, 1, 2, 3, 4, 5]


def test_a_fork_goes_on_by_itself_and_equal_pasts_have_equal_hashes(families: dict[str, Repair]) -> None:
    async def run() -> tuple[str, str, bool, bool]:
        environments = [families["pristine"].build_environment(build_task()) for _ in range(2)]
        first, second = environments
        assert isinstance(first, RepairEnvironment)
        assert isinstance(second, RepairEnvironment)
        for environment in (first, second):
            await environment.reset(build_task(), 0)
            await environment.step(command_message("view g12 A", 0))
        equal = first.state_hash() == second.state_hash()
        twin = await first.fork()
        await twin.step(command_message("set c = a + b", 1))
        changed = twin.state_hash() != first.state_hash()
        shown = [(await each.step(command_message("view g12 A", 2))).observations[0].text for each in (first, twin)]
        for environment in (first, second, twin):
            await environment.close()
        return shown[0], shown[1], equal, changed

    before, after, equal, changed = asyncio.run(run())
    assert (before, after) == ("c is a plus b | c = a - b", "c is a plus b | c = a + b")
    assert equal
    assert changed
