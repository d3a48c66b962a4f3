"""Episodes with an interpreter: policies, controls, observations, limits, scoring, and the tool switched off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from turnwise.core.errors import SandboxError
from turnwise.core.types import (
    Invalid,
    Message,
    Reward,
    Scored,
    StopReason,
    Task,
    ToolCallError,
    ToolRecord,
    text_message,
)
from turnwise.environments.math_code.arguments import MathArguments
from turnwise.environments.math_code.environment import (
    INVALID_REPLY,
    NO_CALLS_LEFT,
    NO_INTERPRETER,
    NO_OUTPUT,
    MathEnvironment,
    describe_execution,
    strip_fence,
)
from turnwise.environments.math_code.family import MathCode
from turnwise.environments.math_code.policies import answer_message, run_message
from turnwise_sandbox.types import Execution, Limits, Program

STAND_IN: dict[str, Any] = {"sandbox": "stand_in_sandbox:SubprocessSandbox", "prompt": "short", "traceback_lines": 1}


async def play(family: MathCode, index: int, policy: str) -> tuple[Reward, list[Message], list[ToolRecord]]:
    task = family.task("heldout", index)
    environment = family.build_environment(task)
    assert isinstance(environment, MathEnvironment)
    opening = await environment.reset(task, index)
    messages, replies, rng = list(opening.messages), [], Random(index)
    for _ in range(6):
        replies.append(family.policy(policy).reply(task, messages, rng))
        result = await environment.step(replies[-1])
        messages += [replies[-1], *result.observations]
        if result.done:
            break
    reward = await environment.score(replies, StopReason.DONE)
    await environment.close()
    return reward, replies, environment.tool_records


def success(count: int, policy: str, **arguments: Any) -> float:
    """Share of held-out tasks a policy answers correctly."""
    family = MathCode(**{**STAND_IN, **arguments})

    async def run() -> list[Reward]:
        return [(await play(family, index, policy))[0] for index in range(count)]

    return (
        sum(reward.part("success") or 0.0 for reward in asyncio.run(run()) if not isinstance(reward, Invalid)) / count
    )


# ------------------------------------------------------------------------------------------------ policies and controls


def test_the_oracle_solves_everything_and_only_with_the_interpreter() -> None:
    assert success(40, "oracle") == 1.0
    assert success(100, "oracle", code=False) <= 0.1


def test_the_random_policy_fails() -> None:
    assert success(60, "random") <= 0.1


def test_the_naive_policy_fails_where_it_slips_and_rarely_recovers() -> None:
    # Every program has its slip and none is corrected: only a lucky guess (1 in 100) is right.
    assert (
        success(40, "naive", kinds={"chain": 1.0, "word": 1.0, "power": 1.0, "count": 1.0}, bug_rate=1.0, fix_rate=0.0)
        <= 0.1
    )
    assert success(25, "naive", bug_rate=1.0, fix_rate=1.0) == 1.0
    assert success(20, "naive", bug_rate=0.0, kinds={"chain": 1.0, "word": 1.0}) == 1.0


# ------------------------------------------------------------------------------------------------ one environment


class Recorded:
    """Answers each program with the next of some executions, and keeps the programs."""

    def __init__(self, *executions: Execution | SandboxError) -> None:
        self.executions = list(executions)
        self.programs: list[Program] = []

    async def run(self, program: Program, limits: Limits) -> Execution:
        self.programs.append(program)
        execution = self.executions[len(self.programs) - 1]
        if isinstance(execution, SandboxError):
            raise execution
        return execution


def arguments(**changes: Any) -> MathArguments:
    values: dict[str, Any] = {
        "max_calls": 2,
        "wall_s": 2.0,
        "traceback_lines": 2,
        "reward": "sign",
        "tool_timeout_s": 5.0,
        "reward_timeout_s": 5.0,
        "max_observation_chars": 400,
    }
    return MathArguments(**{**values, **changes})


def ran(stdout: str = "", stderr: str = "", exit_code: int | None = 0, **fields: Any) -> Execution:
    return Execution(stdout=stdout.encode(), stderr=stderr.encode(), exit_code=exit_code, **fields)


TASK = Task(environment="math_code", prompt=(text_message("user", "6 * 7 ?"),), payload={"answers": ["42"]})
TRACEBACK = (
    "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\n    f()\nNameError: name 'f' "
    "is not defined\n"
)


def episode(runner: Recorded, replies: Sequence[Message], **changes: Any) -> tuple[list[str], list[str | None], Reward]:
    """(observations, errors of the calls, reward) of replies in turn."""

    async def run() -> tuple[list[str], list[str | None], Reward]:
        environment = MathEnvironment(
            runner=runner, judge=lambda answer: answer == TASK.payload["answers"][0], chosen=arguments(**changes)
        )
        await environment.reset(TASK, 5)
        seen = [observation.text for reply in replies for observation in (await environment.step(reply)).observations]
        reward = await environment.score(replies, StopReason.DONE)
        return seen, [record.error for record in environment.tool_records], reward

    return asyncio.run(run())


def test_an_error_is_shown_recorded_and_can_be_recovered_from() -> None:
    runner = Recorded(ran(stderr=TRACEBACK, exit_code=1), ran("42\n"))
    replies = [run_message("python", code, number) for number, code in enumerate(("f()", "print(42)"))]
    seen, errors, reward = episode(runner, [*replies, answer_message(42)])
    shown = "    f()\nNameError: name 'f' is not defined\n"  # the last two lines
    assert seen == [shown, "42\n"]
    assert errors == [shown, None]
    assert reward.total == 1.0  # type: ignore[union-attr]
    assert [program.code for program in runner.programs] == ["f()", "print(42)"]
    assert runner.programs[0].stdin == b""
    assert runner.programs[0].seed != runner.programs[1].seed


def test_without_an_interpreter_nothing_runs() -> None:
    runner = Recorded()
    seen, errors, reward = episode(runner, [run_message("python", "print(42)", 0), answer_message(41)], code=False)
    assert (seen, errors, runner.programs) == ([NO_INTERPRETER], [None], [])
    assert reward.total == -1.0  # type: ignore[union-attr]


def test_calls_are_counted() -> None:
    runner = Recorded(ran("1\n"), ran("2\n"))
    seen, _, _ = episode(runner, [run_message("python", f"print({n})", n) for n in range(3)])
    assert seen == ["1\n", "2\n", NO_CALLS_LEFT]


def test_a_malformed_reply_is_told_what_is_valid() -> None:
    error = ToolCallError(kind="no_action", raw="hm", message="no code")
    reply = Message(role="assistant", content=(), tool_errors=(error,))
    assert episode(Recorded(), [reply])[0] == [INVALID_REPLY]


def test_only_a_box_in_the_last_reply_counts() -> None:
    first = Message(
        role="assistant", content=answer_message(42).content, tool_calls=run_message("python", "print(1)", 0).tool_calls
    )
    assert episode(Recorded(ran("\\boxed{42}\n")), [first, text_message("assistant", "42")])[2].total == -1.0  # type: ignore[union-attr]
    assert episode(Recorded(ran("\\boxed{42}\n")), [first])[2].total == -1.0  # type: ignore[union-attr]
    assert episode(Recorded(), [answer_message(42)])[2].total == 1.0  # type: ignore[union-attr]


def test_the_sandboxs_own_failure_is_not_the_models() -> None:
    with pytest.raises(SandboxError, match="no place"):
        episode(Recorded(SandboxError("no place")), [run_message("python", "print(1)", 0)])


def test_a_judge_that_fails_makes_the_reward_invalid() -> None:
    async def run() -> Reward:
        environment = MathEnvironment(runner=Recorded(), judge=lambda answer: 1 / 0 > 1, chosen=arguments())
        await environment.reset(TASK, 0)
        return await environment.score([answer_message(1)], StopReason.DONE)

    reward = asyncio.run(run())
    assert isinstance(reward, Invalid)
    assert "ZeroDivisionError" in reward.reason


def test_the_verl_rule_pays_for_trying() -> None:
    wrong = [run_message("python", "print(1)", 0), answer_message(1)]
    # Two replies are four messages with prompt and tool answer: -1 + 0.05 * (4 - 2) = -0.9.
    assert episode(Recorded(ran("1\n")), wrong, reward="verl")[2].total == pytest.approx(-0.9)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("execution", "text"),
    [
        (ran("7\n"), "7\n"),
        (ran(" \n"), NO_OUTPUT),
        (ran("7\n", TRACEBACK, 1), "7\n    f()\nNameError: name 'f' is not defined\n"),
        (ran("half", exit_code=None, limit="wall"), "half\nLimitError: the program hit its wall limit\n"),
        (ran(exit_code=None, signal=11), "the program ended with signal 11\n"),
        (ran(exit_code=3), "the program ended with status 3\n"),
        (ran("x", stdout_dropped=9), "x\n[9 bytes of output dropped]\n"),
        (Execution(stdout=b"\xff", stderr=b"", exit_code=0), "�"),
    ],
)
def test_what_the_model_sees_of_an_execution(execution: Execution, text: str) -> None:
    assert describe_execution(execution, traceback_lines=2) == text


@pytest.mark.parametrize(
    ("code", "stripped"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("\n```\na\n\nb\n```\n", "a\n\nb"),
        ("print('```')", "print('```')"),
        ("``` py\nx", "``` py\nx"),
        ("```python\n```", ""),
    ],
)
def test_a_fence_around_the_program_is_no_part_of_it(code: str, stripped: str) -> None:
    assert strip_fence(code) == stripped


def test_a_fork_goes_on_by_itself() -> None:
    family = MathCode(**STAND_IN)

    async def run() -> list[tuple[str, int]]:
        task = family.task("heldout", 0)
        environment = family.build_environment(task)
        assert isinstance(environment, MathEnvironment)
        await environment.reset(task, 0)
        await environment.step(run_message("python", "print(1)", 0))
        twin = await environment.fork()
        step = await environment.step(run_message("python", "print(2)", 1))
        broken = await twin.step(run_message("python", "1 / 0", 1))
        # A failed program is an error of the fork's call, and of no other.
        assert step.tool_records[0].error is None
        assert broken.tool_records[0].error is not None
        for each in (environment, twin):
            await each.close()
        return [
            (step.observations[0].text, len(environment.tool_records)),
            (broken.observations[0].text, len(twin.tool_records)),
        ]

    (own, own_calls), (broken, broken_calls) = asyncio.run(run())
    assert own == "2\n"
    assert "ZeroDivisionError" in broken
    assert (own_calls, broken_calls) == (2, 2)


def test_a_calculator_runs_expressions_in_the_sandbox_and_nothing_else() -> None:
    runner = Recorded(ran("42\n"))
    replies = [run_message("calculator", text, number) for number, text in enumerate(("__import__('os')", "6 * 7"))]
    seen, errors, reward = episode(runner, [*replies, answer_message(42)], calculator=True)
    refusal = "error: the calculator takes up to 200 characters: numbers, + - * / // % and parentheses"
    assert seen == [refusal, "42\n"]
    assert errors == [refusal, None]
    assert [program.code for program in runner.programs] == ["print(6 * 7)"]
    assert isinstance(reward, Scored)
    assert reward.total == 1.0


def test_without_its_rule_there_is_no_calculator() -> None:
    seen, _, _ = episode(Recorded(), [run_message("calculator", "6 * 7", 0), answer_message(42)])
    assert seen == ["error: there is no tool 'calculator'; known tools: python"]
