"""The protocols through which folders on one floor know each other. At most four methods each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol, runtime_checkable

from turnwise.core.batch import Assignment, Columns, Receipt, StepReport, TrainingBatch, Wanted
from turnwise.core.episodes import AskingEnvironment
from turnwise.core.events import Event
from turnwise.core.types import (
    NO_SCORES,
    Completion,
    IntArray,
    Message,
    Prompt,
    Reward,
    Sample,
    SamplingParams,
    Session,
    Signal,
    StopReason,
    Task,
    ToolRecord,
    ToolSpec,
    TrajectoryGroup,
    TurnScores,
)

Split = Literal["train", "heldout"]

Interrupt = Literal["finish", "continue", "restart"]
"""What happens to unfinished replies when weights change: they finish first; they continue under the new weights, with
their prefix recomputed; or they restart under the new weights, with the same seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What an environment shows first."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What an environment returns for one reply."""

    observations: tuple[Message, ...]
    """Messages returned to the model; empty when `done`."""
    done: bool
    tool_records: tuple[ToolRecord, ...] = ()
    scores: TurnScores = NO_SCORES
    """Measurements of the reply for credit."""
    signals: tuple[Signal, ...] = ()
    """Further numbers about the reply, stored and plotted."""


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
        """Process the model's parsed reply. May raise `ToolTimeout`."""
        ...

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Judge the episode from its state and the model's replies (never from the prompt)."""
        ...

    async def close(self) -> None:
        """Free what `reset` allocated. Called once, whatever happened."""
        ...


@runtime_checkable
class StatefulEnvironment(Protocol):
    """Optional for an environment: its state, for credit that compares turns from the same state."""

    def state_hash(self) -> str:
        """Return a hash that is equal exactly for equal states of one task. Read after `reset` and before every
        reply."""
        ...


@runtime_checkable
class ForkableEnvironment(Protocol):
    """Optional for an environment: a copy in the same state, for credit that samples several continuations from one
    point."""

    async def fork(self) -> Environment:
        """Return an environment in the same state, between two replies; from here on neither affects the other.

        Called after `reset` and before the end, also on a fork. The caller scores and closes it like any other. Its
        later random choices are those this episode would make: the seed of `reset` covers them."""
        ...


class ScriptedPolicy(Protocol):
    """A hand-written policy: oracles, random baselines, demonstrators. Text only, no model."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The next assistant message of this conversation. May read `task.payload`; all randomness comes from `rng`."""
        ...


@runtime_checkable
class EnvironmentFamily(Protocol):
    """A source of tasks and environments of one kind. Built once per run from the recipe's `environment.args`."""

    def task(self, split: Split, index: int) -> Task:
        """Return the index-th task of a split: a pure function of the family's arguments. Raises IndexError past the
        end."""
        ...

    def build_environment(self, task: Task) -> Environment | AskingEnvironment:
        """Build a fresh, single-use environment for one episode of `task`."""
        ...

    def policy(self, name: str) -> ScriptedPolicy:
        """Return a scripted policy: "random" always exists, "oracle" where the right replies are known. Raises
        ConfigError naming the known ones."""
        ...

    def texts(self, count: int) -> Sequence[str]:
        """Return `count` sample texts from the training split (prompts, observations, replies) to train a tokenizer
        on."""
        ...


@runtime_checkable
class GoldAnswers(Protocol):
    """Optional for an environment family: the right answer to every task."""

    def gold_answer(self, task: Task) -> str:
        """Return the right answer (one of them), as it should appear in a reply."""
        ...

    def answer_reply(self, task: Task, answer: str) -> Message:
        """Return the reply to the task that contains only this answer; "" leaves its place empty."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedCase:
    """What a grader said of one answer whose truth is known."""

    kind: str
    """In which way the answer is that of the gold answer or not, such as "a word missing"."""
    is_right: bool
    """Whether the answer means the same as the gold answer."""
    is_accepted: bool
    """Whether the grader gave the full reward."""


@runtime_checkable
class TriedGrader(Protocol):
    """Optional for an environment family: its grader tried on hand cases, for the recipe's card."""

    def grade_hand_cases(self) -> Sequence[GradedCase]:
        """Grade answers whose truth is known by construction, as `Environment.score` would; the same cases each
        time. Empty if none fits how the tasks are graded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """A second opinion on a reward."""

    by: str
    """Who says it, as a breach names it."""
    problem: str | None
    """What is wrong with the reward; None if it was earned."""


@runtime_checkable
class SecondOpinion(Protocol):
    """Optional for an environment family: an audit asks it about every trajectory with a reward above 0."""

    async def give_opinion(self, task: Task, replies: Sequence[Message]) -> Opinion | None:
        """Check by other means than `Environment.score` that these replies earned the reward; None if there is no
        second opinion. Raises a TurnwiseError if there is no answer, which counts as not checked."""
        ...


class Renderer(Protocol):
    """Messages to token ids and back. A token becomes text once; earlier tokens are never rendered again.

    Besides these four methods, a renderer has `stop_token_ids` (tokens that end a reply) and its `stop` strings.
    """

    stop_token_ids: tuple[int, ...]
    stop: tuple[str, ...]

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        """Return token ids for the start of a conversation, with the generation prompt at the end."""
        ...

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        """Return only the token ids to append after `prompt_ids + completion_ids` so that the model may reply to
        `observations`.

        Raises RenderError when no appended ids can express it (the template would have to rewrite history).
        """
        ...

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray, tools: Sequence[ToolSpec] = ()) -> Message:
        """Return the reply as a message. Total: any ids give a message, malformed calls become `tool_errors`.

        `tools` are those on offer: if a format writes values without quotes, their schemas determine which are text.
        """
        ...

    def encode_reply(self, message: Message) -> IntArray:
        """Return the token ids of an assistant message as the model should have sampled it, including the stop token
        (demonstrations)."""
        ...


@runtime_checkable
class SeeingRenderer(Renderer, Protocol):
    """A renderer whose messages may have pictures. Its `open` and `extend` return the ids of these prompts."""

    def open_prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Prompt:
        """See `Renderer.open`. Keeps the pixels of every picture in the run's store. Raises StoreError too."""
        ...

    def extend_prompt(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> Prompt:
        """See `Renderer.extend`; spans count from the first appended token."""
        ...


class Engine(Protocol):
    """Samples completions. Token ids in, token ids out."""

    @property
    def version(self) -> int:
        """Weight version that new tokens are sampled with."""
        ...

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """Sample one completion of `prompt_ids` (the whole conversation so far).

        `session` names the conversation: an engine may keep its cache between calls with prompts that extend one
        another, and keeps the conversations of one group together. Raises EngineError for this request alone.
        """
        ...

    async def release(self, session: Session) -> None:
        """End a conversation; its cache may be freed. Unknown sessions are ignored."""
        ...

    async def close(self) -> None:
        """Fail what is still being sampled and free the engine's resources. A second call does nothing."""
        ...


@runtime_checkable
class SeeingEngine(Engine, Protocol):
    """An engine that can be given pictures. One with text only is given none: `core.asking.ask_engine` refuses."""

    async def generate_seeing(self, prompt: Prompt, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`. Raises EngineError too if a picture cannot be read from the run's store."""
        ...


Receive = Callable[[Sequence[int]], None]
"""Gets the ids of new tokens."""


@runtime_checkable
class StreamingEngine(Engine, Protocol):
    """An engine that tells tokens while it samples."""

    async def stream(
        self, prompt_ids: IntArray, params: SamplingParams, *, session: Session, receive: Receive
    ) -> Completion:
        """Sample as `generate` does; `receive` gets the ids of new tokens in their order, on the caller's event loop.

        What follows the completion's end may have been received, and the last tokens may not. Also raises EngineError
        if tokens that were received are thrown away (`Interrupt` "restart").
        """
        ...


@runtime_checkable
class WeightTarget(Protocol):
    """The part of an engine that a `WeightSync` needs: it samples, and its weights can change while it does."""

    @property
    def version(self) -> int:
        """See `Engine.version`."""
        ...

    async def pause(self, interrupt: Interrupt) -> int:
        """Compute nothing until `resume`; requests that arrive meanwhile queue.

        Unfinished replies end before this returns ("finish"), stop at a token boundary and continue at `resume`
        ("continue"), or do so without what they have sampled ("restart"). Returns the number of sampled tokens thrown
        away. Raises EngineError when the engine does not stop.
        """
        ...

    async def adopt(self, version: int) -> Mapping[str, int]:
        """The weights have changed: later tokens carry `version`, and nothing computed from older ones is read again.

        Returns one checksum per parameter tensor that the engine samples with. Raises EngineError while requests are
        open, unless the engine is paused.
        """
        ...

    async def resume(self) -> None:
        """Continue after `pause`; does nothing otherwise."""
        ...


@runtime_checkable
class PausableEngine(Engine, WeightTarget, Protocol):
    """An engine whose weights can change while replies are unfinished."""


@runtime_checkable
class CheckedEngine(Engine, Protocol):
    """An engine that may be unable to sample its model and can report that before the first request."""

    async def check(self) -> None:
        """Start the sampling processes, and verify that they compute what the model does. Raises EngineError in one
        line."""
        ...


class WeightSync(Protocol):
    """Moves the trainer's weights to every engine of a run."""

    async def publish(self, version: int) -> Receipt:
        """Make every engine sample with the trainer's current weights, as weight version `version`.

        Returns when every engine has acknowledged the version and computed checksums of its weights. Raises EngineError
        when an engine cannot adopt them; the caller compares the receipt with the trainer's own sums.
        """
        ...


class Trainer(Protocol):
    """The models that learn. It owns the policy, the critic, the reference, the teacher and the implicit reward model.

    Calls are made one at a time. No argument or result is a tensor.
    """

    def score(
        self, samples: Sequence[Sample], wanted: frozenset[Wanted], *, outcomes: Sequence[float] | None = None
    ) -> Columns:
        """Compute what the models assign to trained tokens before the step. `outcomes` is one reward per sample.

        An implicit reward model learns from the batch before it scores it (PRIME's order), which the next `step` makes
        permanent and a failure of that step undoes.
        """
        ...

    def step(self, batch: TrainingBatch) -> StepReport:
        """Train on one batch. Changes every model or, when it raises TrainingError, none."""
        ...

    def save(self, folder: Path, counters: Mapping[str, Any]) -> None:
        """Write weights, optimizer state and `counters` (JSON values) into an existing folder."""
        ...

    def load(self, folder: Path) -> Mapping[str, Any]:
        """Restore what `save` wrote, bit for bit; returns the counters. Raises CheckpointError."""
        ...


@runtime_checkable
class RememberingTrainer(Trainer, Protocol):
    """A trainer whose step can be undone, so that a step of several trainers changes all of them or none."""

    def remember(self) -> Callable[[], None]:
        """Return a function that restores the present weights, moments and counts; call it at most once."""
        ...


@runtime_checkable
class ClosableTrainer(Trainer, Protocol):
    """A trainer that runs its own processes."""

    def close(self) -> None:
        """End the trainer's processes. A second call does nothing."""
        ...


class Learner(Protocol):
    """One way to learn from groups of trajectories: decides what is trained and how much. Numpy only."""

    wanted: frozenset[Wanted]
    """What the trainer must score before `assign`."""

    def assign(self, groups: Sequence[TrajectoryGroup], columns: Columns, step: int) -> Assignment:
        """Return the batch for RL step `step`. `columns` belong to the samples of
        `batching.samples.list_samples(groups)`."""
        ...

    def follow(self, report: StepReport) -> None:
        """Adapt to what the step measured (coefficients that follow a target)."""
        ...

    def state_dict(self) -> dict[str, object]:
        """Return what is remembered between steps, as JSON values; empty for most learners."""
        ...

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what `state_dict` returned. Raises TrainingError if it belongs to another learner."""
        ...


class Annotator(Protocol):
    """Adds inputs of credit methods to a finished group: a judge's score, a greedy baseline, the gold answer's
    probability."""

    async def annotate(self, group: TrajectoryGroup) -> TrajectoryGroup:
        """Return the same group with more in it; its draw, members and tokens stay. May raise: the group is then
        invalid."""
        ...


class Recorder(Protocol):
    """Receives the events of a run: the run folder, the terminal, a tracker, a live view."""

    def record(self, event: Event) -> None:
        """Record one event. Raises StoreError if it must be kept but cannot be."""
        ...
