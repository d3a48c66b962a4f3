"""Stored trajectories checked again: a changed tool is found, one that cannot be repeated is no breach."""

import asyncio
import time
from dataclasses import replace
from itertools import count
from random import Random

import pytest
from made_run import Adder, AdderFamily, CharRenderer, double, encode, make_task, play

from turnwise.audit.recheck import SLOW_CALL_S, Rechecked, check_rendering, recheck_trajectory
from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Environment, Opening, StepResult
from turnwise.core.types import (
    ConversationOpening,
    Invalid,
    Message,
    Scored,
    Task,
    Trajectory,
    TurnScores,
    text_message,
    to_ids,
)

TASK = make_task(0)


def recheck(trajectory: Trajectory, family: AdderFamily, *, run_tools: bool = True) -> Rechecked:
    return asyncio.run(
        recheck_trajectory(
            trajectory, TASK, family=family, renderer=CharRenderer(), seed=0, run_tools=run_tools, timeout_s=20
        )
    )


def test_the_same_tool_gives_the_same_episode() -> None:
    outcome = recheck(play(double), AdderFamily(double))
    assert (outcome.breaches, outcome.not_checked, outcome.num_calls, outcome.reward_checked) == ([], [], 2, True)


def test_another_tool_is_a_breach_that_names_the_turn() -> None:
    outcome = recheck(play(double), AdderFamily(lambda number: number + 1))
    # 1 + 1 is what doubling gave, 2 + 1 is not: the second turn.
    [(check, text)] = outcome.breaches
    assert check == "tools"
    assert text == """turn 1: add({"number": 2}) gives '3', on record is '4'"""
    assert not outcome.reward_checked


def test_a_tool_that_cannot_be_repeated_is_no_breach() -> None:
    numbers = count()
    family = AdderFamily(lambda number: next(numbers))
    outcome = recheck(play(double), family)
    assert outcome.breaches == []
    assert ("tools", "tools that answer differently each time") in outcome.not_checked


def test_a_slow_call_may_have_met_a_deadline() -> None:
    slow = play(double)
    turns = [
        replace(turn, tool_records=tuple(replace(r, seconds=4.0) for r in turn.tool_records)) for turn in slow.turns
    ]
    outcome = recheck(replace(slow, turns=tuple(turns)), AdderFamily(lambda number: 0))
    assert outcome.breaches == []
    assert [check for check, _ in outcome.not_checked] == ["tools", "rewards"]


def test_a_call_that_was_slow_only_the_first_time_is_looked_at_again() -> None:
    """What runs the tool may have to start first, which takes longer than a call."""
    calls = count()

    def start_and_answer(number: int) -> int:
        if not next(calls):
            time.sleep(SLOW_CALL_S + 0.05)
        return 7

    [(check, text)] = recheck(play(double), AdderFamily(start_and_answer)).breaches
    assert (check, text) == ("tools", """turn 0: add({"number": 1}) gives '7', on record is '2'""")


def test_rewards_are_recomputed_where_the_environment_allows_it() -> None:
    trajectory = play(double)
    assert isinstance(trajectory.reward, Scored)
    wrong = replace(trajectory, reward=replace(trajectory.reward, total=5.0))
    unable = recheck(wrong, AdderFamily(double), run_tools=False)
    assert (unable.breaches, unable.not_checked) == ([], [("rewards", "rewards of Adder, which need --replay-tools")])
    able = recheck(wrong, AdderFamily(double, from_records=True), run_tools=False)
    assert able.breaches == [("rewards", "the stored reward is 5, scoring again gives 2")]
    assert recheck(wrong, AdderFamily(double)).breaches == able.breaches
    invalid = recheck(replace(trajectory, reward=Invalid(reason="hung", retryable=True)), AdderFamily(double))
    assert invalid.not_checked == [("rewards", "rewards that are Invalid")]


def test_an_environment_that_does_not_open_again_is_no_breach() -> None:
    class Closed(AdderFamily):
        def build_environment(self, task: Task) -> Environment:
            raise EnvironmentFault("the sandbox is not there")

    outcome = recheck(play(double), Closed(double))
    assert outcome.breaches == []
    assert {check for check, _ in outcome.not_checked} == {"prompts", "rewards"}


def test_an_environment_is_closed_whatever_happens() -> None:
    closed: list[str] = []

    class Noted(Adder):
        async def reset(self, task: Task, seed: int) -> Opening:
            if fault == "reset":
                raise OSError("broken")
            return await super().reset(task, seed)

        async def close(self) -> None:
            closed.append(fault)
            if fault == "close":
                raise OSError("broken")
            await super().close()

    class Family(AdderFamily):
        def build_environment(self, task: Task) -> Environment:
            return Noted(double)

    for fault in ("reset", "close", "none"):
        outcome = recheck(play(double), Family(double))
        assert outcome.breaches == []
        assert bool(outcome.not_checked) == (fault != "none")
    assert closed == ["reset", "close", "none"]


def test_a_turns_reward_is_compared() -> None:
    class Paid(Adder):
        async def step(self, message: Message) -> StepResult:
            return replace(await super().step(message), scores=TurnScores(reward=0.5))

    class Family(AdderFamily):
        def build_environment(self, task: Task) -> Environment:
            return Paid(double)

    trajectory = play(double)
    assert recheck(trajectory, Family(double)).breaches == [
        ("tools", "turn 0: the turn gets the reward 0.5, on record is None")
    ]
    paid = tuple(replace(turn, scores=TurnScores(reward=0.5)) for turn in trajectory.turns)
    assert recheck(replace(trajectory, turns=paid), Family(double)).breaches == []


def opening_of(trajectory: Trajectory) -> list[str]:
    opening = asyncio.run(AdderFamily(double).build_environment(TASK).reset(TASK, 0))
    return check_rendering(trajectory, opening, CharRenderer())


def test_branches_on_record_are_proven_along_their_own_path() -> None:
    trajectory = play(double)
    branch = replace(trajectory.turns[1], parent=0)
    tree = replace(trajectory, turns=(*trajectory.turns, branch))
    assert opening_of(tree) == []
    problems = opening_of(replace(tree, turns=(*trajectory.turns, replace(branch, parent=1))))
    assert problems[0].startswith("the context of turn 3 does not extend what came before: token 0 is")


def test_every_conversation_is_rendered_from_its_own_opening() -> None:
    """A second conversation starts with what is on record for it."""
    first = play(double)
    summary = ConversationOpening(name="summary", messages=(text_message("user", "go on"),))
    main = ConversationOpening(name="main", messages=(text_message("user", "add 0 000"),))
    root = replace(first.turns[-1], parent=None, context_ids=encode("go on"), conversation=1)
    episode = replace(first, turns=(*first.turns[:2], root), conversations=(main, summary))
    calls = first.turns[-1].message
    assert opening_of(replace(episode, turns=(*episode.turns[:2], replace(root, message=calls)))) == []
    problems = opening_of(replace(episode, conversations=(summary, main)))
    assert [problem.partition(" does not")[0] for problem in problems] == [
        "the context of turn 0",
        "the context of turn 2",
    ]
    outcome = recheck(episode, AdderFamily(double))
    assert outcome.not_checked == [("rewards", "trajectories of several paths or conversations")]


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
