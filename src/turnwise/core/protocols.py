"""The seams of Turnwise: what folders on one floor know about each other. At most four methods each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol, runtime_checkable

from turnwise.core.types import (
    Completion,
    IntArray,
    Message,
    Reward,
    SamplingParams,
    Signal,
    StopReason,
    Task,
    ToolRecord,
    ToolSpec,
)

Split = Literal["train", "heldout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What an environment shows first."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What an environment answers to one reply."""

    observations: tuple[Message, ...]
    """Empty when `done`."""
    done: bool
    tool_records: tuple[ToolRecord, ...] = ()
    signals: tuple[Signal, ...] = ()


@runtime_checkable
class Environment(Protocol):
    """One episode of one task. Single use: reset once, step until done, score, close.

    Text in, text out: an environment never sees a token. `score` is called before `close`, and exactly once unless a
    step raised. Any exception from these methods makes the trajectory's reward Invalid; it never ends the run.
    """

    async def reset(self, task: Task, seed: int) -> Opening:
        """Open the episode. `seed` covers every random choice the environment makes."""
        ...

    async def step(self, message: Message) -> StepResult:
        """Take the model's parsed reply. May raise `ToolTimeout`."""
        ...

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Judge the episode from its state and the model's replies (never from the prompt)."""
        ...

    async def close(self) -> None:
        """Free what `reset` took. Called once, whatever happened."""
        ...


@runtime_checkable
class StatefulEnvironment(Protocol):
    """What an environment may offer besides: its state, for credit that compares turns taken from the same one."""

    def state_hash(self) -> str:
        """Equal states of one task have equal hashes, unequal ones differ. Read after `reset` and before every
        reply."""
        ...


@runtime_checkable
class ForkableEnvironment(Protocol):
    """What an environment may offer besides: a second one in the same state, for credit that tries several futures of
    one past."""

    async def fork(self) -> Environment:
        """An environment in the state of this one, between two replies; from here on neither can tell that the other
        exists.

        Called after `reset` and before the end, also on a fork. The caller scores and closes it like any other. Random
        choices to come are those this episode would make: the seed of `reset` covers them."""
        ...


class ScriptedPolicy(Protocol):
    """A policy written by hand: oracles, random baselines, demonstrators. Text only, no model."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The next assistant message of this conversation. May read `task.payload`; all randomness comes from `rng`."""
        ...


@runtime_checkable
class EnvironmentFamily(Protocol):
    """Where tasks and environments of one kind come from. Built once per run from the recipe's `environment.args`."""

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split: a pure function of the family's arguments. Raises IndexError past the end."""
        ...

    def build_environment(self) -> Environment:
        """A fresh, single-use environment."""
        ...

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle" and "random" always exist. Raises ConfigError naming the known ones."""
        ...

    def texts(self, count: int) -> Sequence[str]:
        """`count` sample texts of the training split (prompts, observations, replies) to train a tokenizer on."""
        ...


class Renderer(Protocol):
    """Messages to token ids and back. A token becomes text once; earlier tokens are never rendered again.

    Besides these four methods a renderer names its `stop_token_ids` (tokens that end a reply) and its `stop` strings.
    """

    stop_token_ids: tuple[int, ...]
    stop: tuple[str, ...]

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        """Token ids of the conversation's start, with the generation prompt at the end."""
        ...

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        """Only the token ids to append after `prompt_ids + completion_ids` so that the model may reply to
        `observations`.

        Raises RenderError when no appended ids can express it (the template would have to rewrite history).
        """
        ...

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray) -> Message:
        """The reply as a message. Total: any ids give a message, malformed calls become `tool_errors`."""
        ...

    def encode_reply(self, message: Message) -> IntArray:
        """Token ids of an assistant message as the model should have sampled it, stop token included
        (demonstrations)."""
        ...


class Engine(Protocol):
    """Samples completions. Token ids in, token ids out."""

    @property
    def version(self) -> int:
        """The weight version new tokens are sampled with."""
        ...

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: str) -> Completion:
        """Sample one completion of `prompt_ids` (the whole conversation so far).

        `session` names the conversation: an engine may keep its cache between calls with prompts that extend one
        another. Raises EngineError for this request alone.
        """
        ...

    async def release(self, session: str) -> None:
        """The conversation is over; its cache may go. Unknown sessions are ignored."""
        ...
