"""The nouns of Turnwise: tasks, draws, completions, turns, trajectories, groups, samples; messages are in
`core.messages`.

All are frozen data without behaviour beyond derived views. Token data are read-only 1-D numpy arrays. Absent is None,
never 0.0. Nothing here depends on text formats, models or disks.

A worked example, the tokens of one linear trajectory with two turns (P prompt, C completion, O observation):

    turns[0].context_ids   P P P          context: never trains
    turns[0].completion    C C            sampled: trains
    turns[1].context_ids   O O O          the tool's answer and the next generation prompt
    turns[1].completion    C              sampled: trains
    token_ids              P P P C C O O O C
    loss mask              0 0 0 1 1 0 0 0 1
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from turnwise.core.errors import DataError
from turnwise.core.keys import Span
from turnwise.core.messages import ImagePart as ImagePart
from turnwise.core.messages import Message as Message
from turnwise.core.messages import Part as Part
from turnwise.core.messages import Role as Role
from turnwise.core.messages import TextPart as TextPart
from turnwise.core.messages import ToolCall as ToolCall
from turnwise.core.messages import ToolCallError as ToolCallError
from turnwise.core.messages import ToolSpec as ToolSpec
from turnwise.core.messages import describe_part, identify
from turnwise.core.messages import reply_message as reply_message
from turnwise.core.messages import text_message as text_message
from turnwise.core.verdicts import Judgement

IntArray = NDArray[np.int32]
ByteArray = NDArray[np.uint8]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

Compare = Literal["task", "episode", "nobody"]
"""Which trajectories credit compares a trajectory with: those of its role on the same task; those of the roles in its
episode that say "episode" too (several solvers of one proposal); none."""


def to_ids(values: Sequence[int] | NDArray[Any]) -> IntArray:
    """A read-only int32 copy of token ids, shape `[N]`."""
    array = np.array(values, dtype=np.int32).reshape(-1)
    array.flags.writeable = False
    return array


def to_floats(values: Sequence[float] | NDArray[Any]) -> FloatArray:
    """A read-only float32 copy, shape `[N]`."""
    array = np.array(values, dtype=np.float32).reshape(-1)
    array.flags.writeable = False
    return array


def to_mask(values: Sequence[bool] | NDArray[Any]) -> BoolArray:
    """A read-only bool copy, shape `[N]`."""
    array = np.array(values, dtype=np.bool_).reshape(-1)
    array.flags.writeable = False
    return array


UNRECORDED = 255
"""Marks an expert that was not recorded."""


def to_experts(values: NDArray[Any]) -> ByteArray:
    """A read-only uint8 copy of experts, shape `[N, layers, k]`; see `UNRECORDED`."""
    array = np.array(values, dtype=np.uint8)
    array.flags.writeable = False
    return array


# ------------------------------------------------------------------------------------------------ tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem: data without behaviour. Its identity is the hash of its content."""

    environment: str
    """Name of the environment family that can open it."""
    prompt: tuple[Message, ...]
    payload: Mapping[str, Any]
    """What the environment needs (gold answers, a world's seed). JSON-serialisable; never shown to the model."""
    id: str = ""
    """Filled with the content hash when left empty. Raises DataError then for content that cannot be written to a file:
    half a surrogate pair, NaN, objects that are not JSON."""

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", hashlib.sha256(_to_bytes(self)).hexdigest()[:16])


def _to_bytes(task: Task) -> bytes:
    """Return the content that determines a task's identity."""
    content = [task.environment, [[m.role, identify(m.content)] for m in task.prompt], dict(task.payload)]
    try:
        return json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as cause:
        near, half = cause.object[max(0, cause.start - 20) : cause.start], cause.object[cause.start]
        problem = f"half a surrogate pair ({half!a} after {near!a})"
    except (TypeError, ValueError, RecursionError) as cause:
        problem = f"what is no JSON ({cause})"
    raise DataError(
        f"a task of environment {task.environment!r} contains {problem}; prompt and payload must be valid Unicode text "
        "and JSON values"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One draw of a task. Everything random in its group derives from it and never from the step that trains on
    it."""

    index: int
    """Counts the draws of a run, an evaluation or a gate from 0; unique there."""
    task: Task
    attempt: int = 0
    """The first attempt number of its members: above 0 if a process that had opened the draw ended."""


# ------------------------------------------------------------------------------------------------ sampling


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prompt:
    """Token ids, and which of them stand for pictures."""

    token_ids: IntArray
    images: tuple[Span, ...] = ()
    """In order; they do not overlap."""


class FinishReason(StrEnum):
    """Why the engine stopped sampling one completion."""

    STOP = "stop"
    """A stop token or a stop string was sampled; it is the last part of the completion."""
    LENGTH = "length"
    """`max_tokens` was reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """A constraint on the text of a completion."""

    kind: Literal["json_schema", "regex", "lark"]
    text: str
    """The schema as JSON, a regular expression for the whole completion, or a grammar in llguidance's dialect of
    Lark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one completion is sampled."""

    max_tokens: int
    temperature: float = 1.0
    """0 is greedy."""
    top_k: int = 0
    """Keep this many most likely tokens; 0 keeps all."""
    min_p: float = 0.0
    """Keep tokens at least this likely relative to the likeliest (arXiv 2407.01082, equation 2); 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens whose mass reaches it; 1 keeps all."""
    grammar: Grammar | None = None
    """Tokens that the grammar does not allow next have probability 0; None allows everything."""
    stop: tuple[str, ...] = ()
    """Stop strings; the completion ends with the token that completes one."""
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0
    """Fully determines the random numbers of this completion, whatever else is in the batch."""


@dataclass(frozen=True, slots=True)
class Session:
    """The conversation that an engine request belongs to: requests of one session may share a cache, a worker and
    drafts."""

    group: str
    """Conversations of one group begin with the same prompt; an engine keeps them together."""
    name: str
    """Unique among the group's open conversations; an engine may keep its cache between requests of one session."""

    def __str__(self) -> str:
        return f"{self.group}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Completion:
    """What the engine sampled, verbatim."""

    token_ids: IntArray
    """`[N]`, N >= 1; ends with the stop token where there was one."""
    logprobs: FloatArray
    """`[N]`, natural log-probability of each token under the distribution it was drawn from: after temperature,
    truncations and grammar.

    A greedy completion has those at temperature 1: a point mass is uninformative, and greedy completions never train.
    """
    finish_reason: FinishReason
    version_first: int
    """Weight version that sampled the first token."""
    version_last: int
    versions: IntArray | None = None
    """`[N]` weight version of each token; None if all equal the first token's."""
    full_logprobs: FloatArray | None = None
    """`[N]` log-probabilities under the model's whole distribution at the same temperature, as a trainer without the
    grammar computes them; None without a grammar."""
    experts: ByteArray | None = None
    """`[R, layers, k]` experts of a mixture-of-experts model for the last R tokens before the last one, which the model
    never computed. As an engine returns them: for all tokens of prompt and completion but the last; in a turn: for
    those that its parent does not have. Only layers with a router count. None for a dense model, and where nothing was
    recorded."""

    def __post_init__(self) -> None:
        if self.experts is not None and (self.experts.ndim != 3 or len(self.experts) < len(self.token_ids)):
            raise ValueError(
                f"completion has {len(self.token_ids)} token ids and experts of shape {self.experts.shape}; expected "
                "shape [tokens, layers, k], with at least one token of the prompt"
            )
        for name in ("logprobs", "versions", "full_logprobs"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.token_ids):
                raise ValueError(f"completion has {len(self.token_ids)} token ids but {len(values)} {name}")


# ------------------------------------------------------------------------------------------------ rewards


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPart:
    """One named component of a reward, before weighting."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The trajectory was scored."""

    total: float
    parts: tuple[RewardPart, ...] = ()

    @classmethod
    def of(cls, total: float, parts: Mapping[str, float]) -> Scored:
        """Build the reward with its parts by name."""
        return cls(total=total, parts=tuple(RewardPart(name=name, value=float(part)) for name, part in parts.items()))

    def part(self, name: str) -> float | None:
        """Return the value of one part, or None if there is no such part."""
        return next((p.value for p in self.parts if p.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """The trajectory could not be scored (a crashed tool, a hung reward). Never trained on, never counted as 0."""

    reason: str
    retryable: bool


Reward = Scored | Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardTerm:
    """What one entry of a recipe's `[rewards]` gave a trajectory."""

    name: str
    value: float
    contribution: float
    """The weighted value, within the entry's cap."""


# ------------------------------------------------------------------------------------------------ trajectories


class StopReason(StrEnum):
    """Why a trajectory ended."""

    DONE = "done"
    """The environment ended the episode (an answer was given)."""
    MAX_TURNS = "max_turns"
    MAX_TURN_TOKENS = "max_turn_tokens"
    """One reply reached its token limit before a stop token."""
    MAX_TOKENS = "max_tokens"
    """The conversation's token budget has no room for another turn."""
    MAX_DEPTH = "max_depth"
    """A conversation called another one deeper than the environment allows."""
    CUT = "cut"
    """The attempt was no longer needed: enough members had finished, or the batch stopped waiting. The reward is
    Invalid."""
    TOOL_TIMEOUT = "tool_timeout"
    """A tool call ran past its seconds. The reward is Invalid."""
    ERROR = "error"
    """A tool, the environment, the engine or the reward raised. The reward is Invalid."""

    @property
    def is_truncated(self) -> bool:
        """Whether a limit, not the environment, ended the trajectory."""
        return self in _LIMITS

    @property
    def is_error(self) -> bool:
        """Whether something failed that was not caused by the model."""
        return self in (StopReason.TOOL_TIMEOUT, StopReason.ERROR)


_LIMITS = (StopReason.MAX_TURNS, StopReason.MAX_TURN_TOKENS, StopReason.MAX_TOKENS, StopReason.MAX_DEPTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRecord:
    """What happened to one tool call."""

    call: ToolCall
    observation: str
    """The text that went back to the model (after clipping)."""
    content: tuple[Part, ...] = ()
    """What went back, part by part, if pictures are among it; empty if `observation` is all of it."""
    error: str | None
    """What the model was told went wrong; None when the tool answered."""
    seconds: float
    clipped_chars: int = 0
    """How many characters of the tool's output were cut."""
    exception: str | None = None
    """`Type: message` of the exception that the tool's own code raised, if the model was told and the episode
    continued; None otherwise."""

    @property
    def shown(self) -> str:
        """What went back as one text, which names its pictures (`messages.describe_part`)."""
        return "".join(map(describe_part, self.content)) if self.content else self.observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A named number that an environment attaches to a turn. It is stored and plotted; nothing depends on it."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnScores:
    """Measurements of one turn, for credit. None where nothing was measured."""

    reward: float | None = None
    """Reward given at the end of this turn, besides the trajectory's outcome."""
    state_value: float | None = None
    """Estimated value of the state before the turn."""
    process_score: float | None = None
    """A process reward model's score of the turn."""
    answer_prior: float | None = None
    """Probability of the gold answer before the turn; read on the first turn only."""
    answer_probability: float | None = None
    """Probability of the gold answer after the turn's observations, in [0, 1]."""
    progress: float | None = None
    """Predicted contribution of the turn to the outcome."""
    potential: float | None = None
    """Potential of the state before the turn."""


NO_SCORES = TurnScores()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """One reply and what led to it; holds only the tokens added since its parent."""

    parent: int | None
    """Index of the parent turn in the trajectory; None for a root, which starts a conversation from nothing."""
    context_ids: IntArray
    """`[M]` tokens appended before this reply (prompt or observations, with the generation prompt). Never trained."""
    completion: Completion
    message: Message
    """The reply, parsed. For display, environments and rewards; training reads `completion` only."""
    observations: tuple[Message, ...] = ()
    """What the environment answered to this reply."""
    images: tuple[Span, ...] = ()
    """Places in `context_ids` that stand for pictures."""
    tool_records: tuple[ToolRecord, ...] = ()
    scores: TurnScores = NO_SCORES
    signals: tuple[Signal, ...] = ()
    state: str | None = None
    """Hash of the environment's state before this reply; None if the environment supplies none."""
    conversation: int = 0
    """Index into `Trajectory.conversations`."""
    is_received: bool = True
    """Whether the program that asked for the reply received it. If not, no turn follows it and it never trains."""
    engine_s: float = 0.0
    environment_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOpening:
    """How one conversation of a trajectory was opened, so that an audit can render it again."""

    name: str
    """Name, unique in the episode, such as "main" or "chunk3"."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    caller: str | None = None
    """The conversation that called this one; None if none did."""
    inherits: bool = False
    """Whether it opened on top of its caller's history: its first turn then follows one of its caller's turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a path in a branched trajectory ended; every path but the first has one."""

    turn: int
    """The path's last turn."""
    stop: StopReason
    reward: Reward
    kind: Literal["leaf", "estimate"]
    """A leaf trains; an estimate was sampled only to see how the attempt would end from some state."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TrajectoryId:
    """The name of one trajectory, unique in its run, evaluation or gate."""

    draw: int
    """`Draw.index` of its group."""
    member: int
    """Index in the group, from 0."""
    attempt: int = 0
    """Counts attempts at this member: those before it failed, or belonged to a process that ended."""
    role: str = "agent"
    """The role that wrote the replies."""

    def __str__(self) -> str:
        suffix = f".{self.attempt}" if self.attempt else ""
        return f"{self.draw}/{self.member}{suffix}" + (f"/{self.role}" if self.role != "agent" else "")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trajectory:
    """Everything one role said in one episode: a forest of turns with one reward. Each root starts a conversation."""

    id: TrajectoryId
    task_id: str
    turns: tuple[Turn, ...] = field(repr=False)
    """All turns. Left out of `repr`, which would print every token."""
    stop: StopReason
    """Why the first path ended."""
    reward: Reward
    """Reward of the first path."""
    error: str | None = None
    """`Type: message` of the failure; None unless `stop.is_error` or the reward is Invalid."""
    endings: tuple[Ending, ...] = ()
    """Endings of every path but the first, in the order of `branches()`; empty in a trajectory without branches."""
    conversations: tuple[ConversationOpening, ...] = ()
    """How each conversation opened; empty if there is only one, which the environment opened with the task's prompt."""
    compare: Compare = "task"
    """Which trajectories credit compares this one with."""
    learns: bool = True
    """Whether its role is played by the learning policy; no token of any other policy trains."""
    judgements: tuple[Judgement, ...] = ()
    """What judges were asked about the episode and answered, with the trajectory of its first role."""
    terms: tuple[RewardTerm, ...] = ()
    """What the recipe's `[rewards]` gave; empty if it has none, so that the environment's reward alone trains."""

    def branches(self) -> list[tuple[int, ...]]:
        """Return the turn indices of every root-to-leaf path, in the order of the leaves."""
        parents = {turn.parent for turn in self.turns if turn.parent is not None}
        paths = []
        for leaf in range(len(self.turns)):
            if leaf in parents:
                continue
            path: list[int] = []
            at: int | None = leaf
            while at is not None:
                path.append(at)
                at = self.turns[at].parent
            paths.append(tuple(reversed(path)))
        return paths

    @property
    def credited(self) -> float | None:
        """The reward that trains: the sum of the terms, or the environment's total if there are none; None if
        Invalid."""
        if not isinstance(self.reward, Scored):
            return None
        return math.fsum(term.contribution for term in self.terms) if self.terms else self.reward.total

    @property
    def num_sampled_tokens(self) -> int:
        """Sampled tokens over all turns."""
        return sum(len(turn.completion.token_ids) for turn in self.turns)

    @property
    def num_tool_calls(self) -> int:
        """Tool calls made over all turns."""
        return sum(len(turn.tool_records) for turn in self.turns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episode:
    """One run of a task: everything each role said, in the order in which the environment declares its roles."""

    draw: Draw
    member: int
    trajectories: tuple[Trajectory, ...]
    stop: StopReason

    @property
    def reward(self) -> Reward:
        """The reward of the first role; an Invalid one if any role has one, as a failure concerns all of them."""
        rewards = [trajectory.reward for trajectory in self.trajectories]
        return next((reward for reward in rewards if isinstance(reward, Invalid)), rewards[0])

    @property
    def num_sampled_tokens(self) -> int:
        """Sampled tokens by all roles."""
        return sum(trajectory.num_sampled_tokens for trajectory in self.trajectories)


class DropReason(StrEnum):
    """Why sampled tokens do not train."""

    INVALID = "invalid"
    """The reward is Invalid. Derived from the trajectory, so it is never stated."""
    RETRIED = "retried"
    """The attempt failed and was repeated."""
    FILTERED_GROUP = "filtered_group"
    """The group has nothing to teach and was replaced or left out."""
    NO_BASELINE = "no_baseline"
    """Credit compares with a greedy attempt, and the one for this group could not be scored."""
    NO_CREDIT = "no_credit"
    """The credit method assigned no credit to the trajectory, or to these turns of it."""
    TOO_STALE = "too_stale"
    """Sampled by weights older than `schedule.max_staleness` allows."""
    LATE = "late"
    """The batch no longer waited for this member or this group (`schedule.late`)."""
    OVERDRAWN = "overdrawn"
    """More members were started than a group keeps, and this one finished after the others."""
    LOST_VERSION = "lost_version"
    """Sampled by weights that were lost in a crash and could not be recomputed."""
    FAILED_STEP = "failed_step"
    """The training step on it failed, and failed again when the run was continued."""
    UNUSED = "unused"
    """The run ended before the group was due to train."""
    TRUNCATED = "truncated"
    """A limit ended the trajectory, and the recipe leaves such trajectories out."""
    EXTRA_MEMBER = "extra_member"
    """Others of its group are compared with it, and the recipe trains the first members only
    (`rollout.train_members`)."""
    NOT_SELECTED = "not_selected"
    """Rejection sampling or pair mining did not choose it."""
    DUPLICATE = "duplicate"
    """Rejection sampling kept a trajectory of the same task with the same replies."""
    NOT_LEARNING = "not_learning"
    """Its role is played by a policy that does not learn: a frozen or a scripted one."""
    TOO_LONG = "too_long"
    """The task's opening leaves no room for a reply: nothing was sampled, and another task replaced it."""
    LOST_TASK = "lost_task"
    """The run was continued, and the group's task could not be recreated."""
    VALUE_ESTIMATE = "value_estimate"
    """A continuation that was sampled only to estimate the value of a state."""
    UNDELIVERED = "undelivered"
    """The program that asked for the reply never received it, so it decided nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Discarded:
    """A trajectory that was sampled for a group but is not a member of it."""

    trajectory: Trajectory
    reason: DropReason


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrajectoryGroup:
    """The trajectories for one draw, which credit compares. Failed members stay visible."""

    draw: Draw
    trajectories: tuple[Trajectory, ...]
    version: int = 0
    """The weight version that engines served when the group was opened; none of its tokens is older."""
    role: str = "agent"
    """The role whose trajectories these are; "" if there are several (`core.roles.split_roles`)."""
    baseline: Trajectory | None = None
    """A greedy attempt at the same task; None unless credit asks for one. It is not a member and never trains."""
    discarded: tuple[Discarded, ...] = ()
    """Discarded trajectories, ordered by member and attempt."""

    @property
    def task(self) -> Task:
        """The task of the draw."""
        return self.draw.task

    def rewards(self) -> list[float | None]:
        """Total reward per member, None for an Invalid one."""
        return [t.reward.total if isinstance(t.reward, Scored) else None for t in self.trajectories]

    def credited_rewards(self) -> list[float | None]:
        """The reward that trains per member (`Trajectory.credited`), None for an Invalid one."""
        return [t.credited for t in self.trajectories]


# ------------------------------------------------------------------------------------------------ training data


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a sample came from."""

    trajectory: TrajectoryId
    task_id: str
    branch: int = 0
    """Index into `Trajectory.branches()`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """One branch flattened for training. All arrays `[N]`, unshifted: position i describes token i."""

    token_ids: IntArray
    loss_mask: BoolArray
    """True where the token trains. `loss_mask[0]` is False: nothing predicts the first token."""
    behavior_logprobs: FloatArray
    """Log-probability at sampling; 0.0 where `loss_mask` is False and never read there."""
    advantages: FloatArray
    """0.0 where `loss_mask` is False."""
    version_first: int
    version_last: int
    origin: Origin
    context_mask: BoolArray = field(default_factory=lambda: to_mask([]))
    """True on observation tokens (not prompt, not sampled, no place of a picture). Only the unmasked-observation
    ablation reads it."""
    versions: IntArray | None = None
    """Weight version that sampled each trained token, read where `loss_mask` is True; None if all equal
    `version_first`."""
    experts: ByteArray | None = None
    """`[N - 1, layers, k]` experts that computed each token but the last at sampling; None for a dense model, and if
    not every turn recorded them."""
    images: tuple[Span, ...] = ()
    """Places in `token_ids` that stand for pictures."""

    def __post_init__(self) -> None:
        lengths = {len(self.token_ids), len(self.loss_mask), len(self.behavior_logprobs), len(self.advantages)}
        if len(lengths) != 1:
            raise ValueError(f"sample of {self.origin} has arrays of different lengths {sorted(lengths)}")
        if len(self.loss_mask) and self.loss_mask[0]:
            raise ValueError(f"sample of {self.origin} trains its first token, which has no prediction")
        if self.experts is not None and len(self.experts) != len(self.token_ids) - 1:
            raise ValueError(
                f"sample of {self.origin} has {len(self.token_ids)} tokens and {len(self.experts)} rows of experts; "
                "expected one row per token except the last"
            )
