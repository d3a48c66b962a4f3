"""The divergence of a failed attempt by the policy's own continuations, with futures that are known."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from turnwise.badcases.continued import find_by_continuations
from turnwise.badcases.divergence import Divergence, Unknown
from turnwise.core.types import (
    Completion,
    Draw,
    FinishReason,
    IntArray,
    Message,
    Reward,
    SamplingParams,
    Scored,
    Session,
    StopReason,
    Task,
    ToolCall,
    Trajectory,
    text_message,
    to_floats,
)
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import run_trajectory

TASK = Task(environment="doors", prompt=(text_message("user", "What ?"),), payload={})
DRAW = Draw(index=0, task=TASK)
LIMITS = Limits(max_turns=5, max_turn_tokens=40, max_tokens=400, timeout_s=5.0)
SAMPLING = Sampling(temperature=1.0, top_p=1.0, seed=7)
TOKENIZER = train_tokenizer(["What ? here there found open shut"], vocab_size=300, special_tokens=TAG_SPECIAL_TOKENS)
RENDERER = TagRenderer(TOKENIZER)


def search(query: str) -> Message:
    call = ToolCall(id="c", name="search", arguments=f'{{"query": "{query}"}}')
    return Message(role="assistant", content=(), tool_calls=(call,))


class Policy:
    """Plays stored replies, then answers "open" unless it has searched "there", after which it is lost."""

    version = 0

    def __init__(self, *replies: Message) -> None:
        self.replies = list(replies)

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        lost = "there" in TOKENIZER.decode(prompt_ids.tolist())
        answer = text_message("assistant", f"<answer> {'shut' if lost else 'open'} </answer>")
        ids = RENDERER.encode_reply(self.replies.pop(0) if self.replies else answer)
        return Completion(
            token_ids=ids,
            logprobs=to_floats(np.full(len(ids), -0.5)),
            finish_reason=FinishReason.STOP,
            version_first=0,
            version_last=0,
        )

    async def release(self, session: Session) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing to free."""


class Doors(ToolEnvironment):
    """Succeeds with the answer "open"."""

    prefix = "found"

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        return task.prompt, [self.search]

    def search(self, query: str) -> str:
        """Search.

        Args:
            query: What for.
        """
        return f"{self.prefix} {query}"

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        return Scored.of(float("open" in replies[-1].text), {"success": float("open" in replies[-1].text)})


class ForkableDoors(Doors):
    async def fork(self) -> "ForkableDoors":
        return self.copy_episode()


class ChangedDoors(ForkableDoors):
    """Answers otherwise than when the attempt was stored, after which the policy is asked once more."""

    prefix = "there"


class Family:
    """Builds one kind of doors."""

    def __init__(self, kind: type[Doors]) -> None:
        self.kind = kind

    def build_environment(self, task: Task) -> Doors:
        return self.kind(tool_timeout_s=5.0, max_observation_chars=200)


def attempt(*replies: Message) -> Trajectory:
    """The attempt as it was once played, in doors that are not forked."""
    return asyncio.run(
        run_trajectory(
            Attempt(draw=DRAW, member=0),
            Family(Doors).build_environment(TASK),
            Policy(*replies),
            RENDERER,
            LIMITS,
            SAMPLING,
        )
    )


def find(trajectory: Trajectory, kind: type[Doors] = ForkableDoors) -> Divergence | Unknown:
    family: Any = Family(kind)

    async def run() -> Divergence | Unknown:
        return await find_by_continuations(
            family,
            Policy(),
            RENDERER,
            LIMITS,
            SAMPLING,
            DRAW,
            trajectory,
            num_continuations=3,
            gate=asyncio.Semaphore(4),
        )

    return asyncio.run(run())


SHUT = text_message("assistant", "<answer> shut </answer>")


def test_the_reply_after_which_continuations_fail_is_the_divergence() -> None:
    # From the start and after the first search all three continuations say "open"; after the search for "there" none.
    found = find(attempt(search("here"), search("there"), SHUT))
    assert isinstance(found, Divergence)
    assert (found.method, found.turn, found.values) == ("continuations", 1, (1.0, 1.0, 0.0))


def test_an_answer_that_was_wrong_from_a_good_state_is_the_divergence() -> None:
    found = find(attempt(search("here"), SHUT))
    assert isinstance(found, Divergence)
    assert (found.turn, found.values) == (1, (1.0, 1.0))


def test_an_attempt_that_was_lost_from_the_start_has_none() -> None:
    family_task = Task(environment="doors", prompt=(text_message("user", "there ?"),), payload={})
    lost = attempt(SHUT)
    found = asyncio.run(
        find_by_continuations(
            Family(ForkableDoors),  # type: ignore[arg-type]
            Policy(),
            RENDERER,
            LIMITS,
            SAMPLING,
            Draw(index=0, task=family_task),
            lost,
            num_continuations=3,
            gate=asyncio.Semaphore(4),
        )
    )
    assert isinstance(found, Unknown)


@pytest.mark.parametrize(
    ("kind", "reason"), [(Doors, "cannot be forked; use --by oracle"), (ChangedDoors, "answers otherwise than stored")]
)
def test_what_cannot_be_continued_says_why(kind: type[Doors], reason: str) -> None:
    found = find(attempt(search("here"), SHUT), kind)
    assert isinstance(found, Unknown)
    assert reason in found.reason
