"""A search with a policy that says anything: exact values lead to the target, and every token is on record."""

from __future__ import annotations

import asyncio
import math
from random import Random

import numpy as np
import pytest

from turnwise.audit.stored_turns import check_endings, check_turns
from turnwise.core.paths import split_paths
from turnwise.core.types import (
    Completion,
    Draw,
    FinishReason,
    IntArray,
    Invalid,
    SamplingParams,
    Scored,
    Session,
    text_message,
    to_floats,
)
from turnwise.environments.countdown.arithmetic import list_moves, parse_state
from turnwise.environments.countdown.family import Countdown
from turnwise.rendering.tags import TagRenderer
from turnwise.rollout.attempt import Sampling
from turnwise.rollout.conversation import Conversation
from turnwise.rollout.limits import Limits
from turnwise.testing import build_tiny_renderer, build_tiny_tokenizer
from turnwise_worlds.planning.record import KNOWN, count_tokens, to_trajectory
from turnwise_worlds.planning.search import Proposer, Search, run_searches
from turnwise_worlds.planning.values import ExactValue, OutcomeValue, RandomValue, ValueFunction

FAMILY = Countdown()
TOKENIZER = build_tiny_tokenizer(FAMILY.texts(600))
RENDERER = build_tiny_renderer(TOKENIZER)


class UniformEngine:
    """Implements `Engine`: every operation that the rules allow is equally likely."""

    version = 0

    def __init__(self, renderer: TagRenderer) -> None:
        self.renderer = renderer
        self.num_tokens = 0
        self.fails_at: int | None = None
        self.calls = 0

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        self.calls += 1
        if self.calls == self.fails_at:
            raise RuntimeError("the power went out")
        left, _ = parse_state(TOKENIZER.decode(prompt_ids.tolist()))
        moves = list_moves(left, 24)
        ids = self.renderer.encode_reply(
            text_message("assistant", f"<answer> {Random(params.seed).choice(moves)} </answer>")
        )
        self.num_tokens += len(ids)
        return Completion(
            token_ids=ids,
            logprobs=to_floats([-math.log(len(moves)), *[0.0] * (len(ids) - 1)]),
            finish_reason=FinishReason.STOP,
            version_first=0,
            version_last=0,
        )

    async def release(self, session: Session) -> None: ...

    async def close(self) -> None: ...


def search(
    value: ValueFunction, *, calls: int, tasks: int = 30, engine: UniformEngine | None = None, seed: int = 0
) -> list[Search]:
    proposer = Proposer(
        build_environment=FAMILY.build_environment,
        engine=engine or UniformEngine(RENDERER),
        renderer=RENDERER,
        limits=Limits(max_turns=2, max_turn_tokens=16, max_tokens=128, timeout_s=20.0),
        sampling=Sampling(temperature=1.0, seed=seed),
    )
    draws = [Draw(index=index, task=FAMILY.task("heldout", index)) for index in range(tasks)]
    return asyncio.run(run_searches(draws, proposer, value, max_calls=calls, exploration=1.0, scope="test"))


def success(searches: list[Search]) -> float:
    rewards = [to_trajectory(each).reward for each in searches]
    return sum(isinstance(reward, Scored) and reward.total == 1.0 for reward in rewards) / len(rewards)


def test_with_the_exact_value_every_task_is_solved_and_without_it_few_are() -> None:
    solved = search(ExactValue(), calls=60, tasks=12)
    assert success(solved) == 1.0
    assert all(each.calls <= 60 for each in solved)
    assert success(search(RandomValue(0), calls=20, tasks=20)) < 0.3


def test_a_whole_tree_is_searched_and_then_the_search_stops() -> None:
    searches = search(OutcomeValue(), calls=2000, tasks=3)
    for each in searches:
        assert each.calls < 2000
        assert each.root is not None
        assert each.root.is_exhausted
        left, _ = parse_state(each.attempt.task.prompt[0].text)
        assert len(each.root.children) == len({node.place.key for node in each.root.children})
        assert each.root.num_proposals >= len(list_moves(left, 24))
    assert success(searches) == 1.0


@pytest.mark.parametrize("calls", [1, 2, 3, 7, 25])
def test_every_token_is_on_record_once_and_every_path_reads_as_it_was_sampled(calls: int) -> None:
    engine = UniformEngine(RENDERER)
    searches = search(RandomValue(1), calls=calls, tasks=8, engine=engine)
    assert sum(each.calls for each in searches) == engine.calls
    total = 0
    for each in searches:
        trajectory = to_trajectory(each)
        assert trajectory.num_sampled_tokens == sum(count_tokens(each).values())
        total += trajectory.num_sampled_tokens
        assert check_endings(None, trajectory) == []
        assert isinstance(trajectory.reward, Scored)
        best = each.answer
        assert best is not None
        for path in split_paths(trajectory):
            alone = path.trajectory
            assert check_turns(None, alone) == []
            conversation = Conversation(renderer=RENDERER)
            conversation.open(each.attempt.task.prompt, ())
            for number, turn in enumerate(alone.turns):
                if number:
                    conversation.go_on(alone.turns[number - 1].observations)
                np.testing.assert_array_equal(conversation.context_ids, turn.context_ids)
                conversation.append(turn.completion, turn.message)
    assert total == engine.num_tokens


def test_a_reply_that_comes_again_is_recorded_and_its_state_is_not_doubled() -> None:
    [each] = search(RandomValue(0), calls=40, tasks=1)
    trajectory = to_trajectory(each)
    reasons = [ending.reward.reason for ending in trajectory.endings if isinstance(ending.reward, Invalid)]
    assert KNOWN in reasons
    assert each.root is not None
    for node in each.root.walk():
        assert len({child.place.key for child in node.children}) == len(node.children)
        assert sum(child.prior for child in node.children) < 1 + 1e-6


def test_a_search_is_the_same_beside_others_and_alone() -> None:
    together = search(ExactValue(), calls=12, tasks=5)
    alone = search(ExactValue(), calls=12, tasks=1)
    ids = [[turn.completion.token_ids.tolist() for turn in to_trajectory(each[0]).turns] for each in (together, alone)]
    assert ids[0] == ids[1]


def test_an_engine_that_fails_breaks_off_one_search_and_loses_no_token() -> None:
    engine = UniformEngine(RENDERER)
    engine.fails_at = 2
    searches = search(ExactValue(), calls=10, tasks=3, engine=engine)
    broken = [each for each in searches if each.failure is not None]
    assert len(broken) == 1
    reward = to_trajectory(broken[0]).reward
    assert isinstance(reward, Invalid)
    assert "the power went out" in reward.reason
    assert sum(to_trajectory(each).num_sampled_tokens for each in searches) == engine.num_tokens
