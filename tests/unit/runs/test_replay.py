"""Replaying stored trajectories: a changed tool is found, one that cannot be repeated is not blamed, and nothing is
guessed."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from random import Random

import numpy as np
import pytest

from turnwise.audit.recheck import SLOW_CALL_S, Replayed, check_rendering, replay_trajectory
from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Environment, ScriptedPolicy, Split, StepResult
from turnwise.core.types import (
    Completion,
    FinishReason,
    IntArray,
    Invalid,
    Message,
    Reward,
    Scored,
    StopReason,
    Task,
    TextPart,
    ToolCall,
    ToolSpec,
    Trajectory,
    Turn,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.environments.tool_environment import ToolEnvironment

TASK = Task(environment="adder", prompt=(text_message("user", "add"),), payload={})


class Adder(ToolEnvironment):
    """One tool, which `answer` decides."""

    def __init__(self, answer: Callable[[int], int]) -> None:
        super().__init__()
        self._answer = answer

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        return task.prompt, (self.add,)

    def add(self, number: int) -> int:
        """Add.

        Args:
            number: A number.
        """
        return self._answer(number)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        return Scored(total=float(len(self.tool_records)))


class AdderFamily:
    """Environments of one `answer`."""

    def __init__(self, answer: Callable[[int], int], *, from_records: bool = False) -> None:
        self._answer = answer
        self._from_records = from_records

    def task(self, split: Split, index: int) -> Task:
        return TASK

    def build_environment(self) -> Environment:
        environment = Adder(self._answer)
        if self._from_records:
            environment.scores_from_records = True  # type: ignore[attr-defined]
        return environment

    def policy(self, name: str) -> ScriptedPolicy:
        raise NotImplementedError

    def texts(self, count: int) -> Sequence[str]:
        return []


class CharRenderer:
    """One token per character; a reply is `call:number` or an answer."""

    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        return encode("".join(message.text for message in messages))

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        return encode("".join(message.text for message in observations))

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray) -> Message:
        text = "".join(map(chr, completion_ids.tolist()))
        name, colon, number = text.partition(":")
        calls = (
            (ToolCall(id=f"call_{len(prompt_ids)}", name=name, arguments=f'{{"number": {number}}}'),) if colon else ()
        )
        return Message(role="assistant", content=(TextPart(text=text),), tool_calls=calls)

    def encode_reply(self, message: Message) -> IntArray:
        return encode(message.text)


def encode(text: str) -> IntArray:
    return to_ids([ord(character) for character in text])


def play(answer: Callable[[int], int], replies: Sequence[str] = ("add:1", "add:2", "done")) -> Trajectory:
    """What a rollout of these replies records."""

    async def run() -> Trajectory:
        environment, renderer = AdderFamily(answer).build_environment(), CharRenderer()
        opening = await environment.reset(TASK, 0)
        context = prompt = renderer.open(opening.messages, opening.tools)
        turns: list[Turn] = []
        for number, text in enumerate(replies):
            ids = encode(text)
            message = renderer.parse(prompt, ids)
            completion = Completion(
                token_ids=ids,
                logprobs=to_floats([-1.0] * len(ids)),
                finish_reason=FinishReason.STOP,
                version_first=0,
                version_last=0,
            )
            result: StepResult = await environment.step(message)
            turns.append(
                Turn(
                    parent=number - 1 if number else None,
                    context_ids=context,
                    completion=completion,
                    message=message,
                    observations=result.observations,
                    tool_records=result.tool_records,
                )
            )
            context = renderer.extend(prompt, ids, result.observations, opening.tools)
            prompt = to_ids(np.concatenate([prompt, ids, context]))
        reward = await environment.score([turn.message for turn in turns], StopReason.DONE)
        await environment.close()
        return Trajectory(
            task_id=TASK.id, group_id="g", member=0, turns=tuple(turns), stop=StopReason.DONE, reward=reward
        )

    return asyncio.run(run())


def replayed(trajectory: Trajectory, family: AdderFamily, *, run_tools: bool = True) -> Replayed:
    return asyncio.run(
        replay_trajectory(
            trajectory, TASK, family=family, renderer=CharRenderer(), seed=0, run_tools=run_tools, timeout_s=20
        )
    )


def double(number: int) -> int:
    return 2 * number


def test_the_same_tool_gives_the_same_episode() -> None:
    found = replayed(play(double), AdderFamily(double))
    assert (found.breaches, found.not_checked, found.num_calls, found.reward_checked) == ([], [], 2, True)


def test_another_tool_is_a_breach_that_names_the_turn() -> None:
    found = replayed(play(double), AdderFamily(lambda number: number + 1))
    # 1 + 1 is what doubling gave, 2 + 1 is not: the second turn.
    [(check, text)] = found.breaches
    assert check == "tools"
    assert text == """turn 1: add({"number": 2}) gives '3', on record is '4'"""
    assert not found.reward_checked


def test_a_tool_that_cannot_be_repeated_is_not_blamed() -> None:
    numbers = count()
    family = AdderFamily(lambda number: next(numbers))
    found = replayed(play(double), family)
    assert found.breaches == []
    assert ("tools", "tools that answer two replays differently") in found.not_checked


def test_a_slow_call_may_have_met_a_deadline() -> None:
    slow = play(double)
    turns = [
        replace(turn, tool_records=tuple(replace(r, seconds=4.0) for r in turn.tool_records)) for turn in slow.turns
    ]
    found = replayed(replace(slow, turns=tuple(turns)), AdderFamily(lambda number: 0))
    assert found.breaches == []
    assert [check for check, _ in found.not_checked] == ["tools", "rewards"]


def test_a_call_that_was_slow_only_the_first_time_is_looked_at_again() -> None:
    """What runs the tool may have to start first, which takes longer than a call."""
    calls = count()

    def start_and_answer(number: int) -> int:
        if not next(calls):
            time.sleep(SLOW_CALL_S + 0.05)
        return 7

    [(check, text)] = replayed(play(double), AdderFamily(start_and_answer)).breaches
    assert (check, text) == ("tools", """turn 0: add({"number": 1}) gives '7', on record is '2'""")


def test_rewards_are_recomputed_where_the_environment_allows_it() -> None:
    trajectory = play(double)
    wrong = replace(trajectory, reward=Scored(total=5.0))
    unable = replayed(wrong, AdderFamily(double), run_tools=False)
    assert (unable.breaches, unable.not_checked) == ([], [("rewards", "rewards of Adder, which need --replay-tools")])
    able = replayed(wrong, AdderFamily(double, from_records=True), run_tools=False)
    assert able.breaches == [("rewards", "the stored reward is 5, scoring again gives 2")]
    assert replayed(wrong, AdderFamily(double)).breaches == able.breaches
    invalid = replayed(replace(trajectory, reward=Invalid(reason="hung", retryable=True)), AdderFamily(double))
    assert invalid.not_checked == [("rewards", "rewards that are Invalid")]


def test_an_environment_that_does_not_open_again_is_no_breach() -> None:
    class Closed(AdderFamily):
        def build_environment(self) -> Environment:
            raise EnvironmentFault("the sandbox is not there")

    found = replayed(play(double), Closed(double))
    assert found.breaches == []
    assert {check for check, _ in found.not_checked} == {"prompts", "rewards"}


def opening_of(trajectory: Trajectory) -> list[str]:
    opening = asyncio.run(AdderFamily(double).build_environment().reset(TASK, 0))
    return check_rendering(trajectory, opening, CharRenderer())


def test_branches_on_record_are_proven_along_their_own_path() -> None:
    trajectory = play(double)
    branch = replace(trajectory.turns[1], parent=0)
    tree = replace(trajectory, turns=(*trajectory.turns, branch))
    assert opening_of(tree) == []
    problems = opening_of(replace(tree, turns=(*trajectory.turns, replace(branch, parent=1))))
    assert problems[0].startswith("the context of turn 3 does not extend what came before: token 0 is")


@pytest.mark.parametrize("seed", range(5))
def test_any_flipped_token_is_seen(seed: int) -> None:
    trajectory = play(double)
    rng = Random(seed)
    index = rng.randrange(3)
    turn = trajectory.turns[index]
    ids = turn.completion.token_ids.copy()
    ids[rng.randrange(len(ids))] += 1
    flipped = replace(turn, completion=replace(turn.completion, token_ids=to_ids(ids)))
    turns = (*trajectory.turns[:index], flipped, *trajectory.turns[index + 1 :])
    assert any(f"turn {index}" in problem for problem in opening_of(replace(trajectory, turns=turns)))
