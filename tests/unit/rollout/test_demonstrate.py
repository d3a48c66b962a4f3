"""Demonstrations: what a scripted policy does in a real episode, as completions to imitate."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest
from panel import Panel

from turnwise.core.episodes import Ask, Asked
from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Draw, Message, Reward, Scored, StopReason, Task, ToolCall, TrajectoryId, text_message
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.rollout.demonstrate import play_demonstration

RENDERER = TagRenderer(train_tokenizer(["What ? here found"], vocab_size=300, special_tokens=TAG_SPECIAL_TOKENS))
TASK = Task(environment="shelf", prompt=(text_message("user", "What ?"),), payload={"answer": "here"})


class Shelf(ToolEnvironment):
    """Answers a search with what it was asked for."""

    def __init__(self, *, breaks_closing: bool = False) -> None:
        super().__init__()
        self.num_closed = 0
        self._breaks_closing = breaks_closing

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        return task.prompt, [self.search]

    async def search(self, query: str) -> str:
        """Search.

        Args:
            query: What for.
        """
        return f"found {query}"

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        return Scored(total=float("here" in replies[-1].text))

    async def teardown(self) -> None:
        self.num_closed += 1
        if self._breaks_closing:
            raise OSError("cannot let go")


class Oracle:
    """Searches `num_searches` times, then answers."""

    def __init__(self, num_searches: int) -> None:
        self._num_searches = num_searches

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        if sum(message.role == "tool" for message in messages) < self._num_searches:
            call = ToolCall(id="c", name="search", arguments='{"query": "here"}')
            return Message(role="assistant", content=(), tool_calls=(call,))
        return text_message("assistant", f"<answer> {task.payload['answer']} </answer>")


def test_a_demonstration_is_a_trajectory_with_unknown_logprobs() -> None:
    environment = Shelf()
    episode = asyncio.run(
        play_demonstration(Draw(index=3, task=TASK), Oracle(1), environment, RENDERER, seed=1, max_turns=4)
    )
    [trajectory] = episode.trajectories
    assert trajectory.id == TrajectoryId(draw=3, member=0)
    assert (trajectory.task_id, trajectory.stop, trajectory.reward) == (TASK.id, StopReason.DONE, Scored(total=1.0))
    assert [turn.parent for turn in trajectory.turns] == [None, 0]
    assert trajectory.error is None
    for turn in trajectory.turns:
        assert turn.completion.token_ids.tolist() == RENDERER.encode_reply(turn.message).tolist()
        assert np.isnan(turn.completion.logprobs).all()
    opening = RENDERER.open(TASK.prompt, [])
    assert trajectory.turns[0].context_ids.tolist() == opening.tolist()
    added = RENDERER.extend(opening, trajectory.turns[0].completion.token_ids, trajectory.turns[0].observations, [])
    assert trajectory.turns[1].context_ids.tolist() == added.tolist()
    assert trajectory.num_tool_calls == environment.num_closed == 1


def test_a_policy_that_never_finishes_is_named_and_its_environment_closed() -> None:
    environment = Shelf()
    with pytest.raises(EnvironmentFault, match=r"policy Oracle did not finish task .* within 2 turns"):
        asyncio.run(play_demonstration(Draw(index=0, task=TASK), Oracle(9), environment, RENDERER, seed=1, max_turns=2))
    assert environment.num_closed == 1


def test_an_environment_that_asks_a_role_it_does_not_have_is_refused_as_in_a_rollout() -> None:
    class Rude(Panel):
        async def begin(self, task: Task, seed: int) -> Asked:
            return Asked(asks=(Ask(role="third", conversation="third", messages=task.prompt),))

    panel = Rude()
    with pytest.raises(EnvironmentFault, match="is of role 'third', which is not in the environment's spec"):
        asyncio.run(play_demonstration(Draw(index=0, task=TASK), Oracle(0), panel, RENDERER, seed=0, max_turns=4))
    assert panel.num_closed == 1


def test_a_problem_in_closing_is_noted() -> None:
    episode = asyncio.run(
        play_demonstration(
            Draw(index=0, task=TASK), Oracle(0), Shelf(breaks_closing=True), RENDERER, seed=1, max_turns=2
        )
    )
    [trajectory] = episode.trajectories
    assert trajectory.reward == Scored(total=1.0)
    assert trajectory.error == "EnvironmentFault: closing the environment: OSError: cannot let go"
