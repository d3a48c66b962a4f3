"""One episode while it is played: what is asked is sampled at once, and the environment is told in the order it asked.

Which tokens an episode has never depends on timing. Replies that are wanted at the same time are sampled at the same
time, each with a seed that its conversation and its place there give it, and wait for those that were asked before.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from turnwise.core.checked import OneConversation, SeveralConversations
from turnwise.core.episodes import MAIN, Ask, EpisodeEnd
from turnwise.core.errors import EnvironmentFault, boundary
from turnwise.core.holding import holding
from turnwise.core.protocols import Environment, StatefulEnvironment
from turnwise.core.returned import show
from turnwise.core.types import (
    Completion,
    FinishReason,
    Invalid,
    Reward,
    SamplingParams,
    Session,
    StopReason,
    Trajectory,
)
from turnwise.core.wanted import Wanted
from turnwise.rollout.attempt import Attempt, Sampling, environment_seed
from turnwise.rollout.conversation import Conversation, leave_out_prompt, merge_turns
from turnwise.rollout.limits import Limits
from turnwise.rollout.policies import RolePolicy

Visit = Callable[[Conversation, Environment], Awaitable[None]]
"""Called with every position of an `Environment` before its reply is sampled."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fork:
    """Start in the middle: at `conversation`, in an `Environment` that is in that state already."""

    number: int
    """Of the branch in its trajectory, from 1: names its random numbers and its cache."""
    conversation: Conversation


@dataclass(slots=True, kw_only=True, eq=False)
class _Voice:
    """One role in one conversation."""

    name: str
    role: str
    conversation: Conversation
    policy: RolePolicy
    session: Session
    reply: asyncio.Task[None] | None = None
    """Samples the reply that is wanted; None where none is."""
    sampled: tuple[Completion, float] | None = None
    """That reply with the seconds it took, from when the engine delivered it until it is taken."""
    room: int = 0
    """Most tokens of that reply."""
    state: str | None = None
    """Hash of the environment's state when it was asked for."""
    holds_session: bool = True


@dataclass(slots=True, kw_only=True, eq=False)
class Play:
    """Runs one episode from its beginning to its rewards; `to_trajectories` is what was said, whatever happened."""

    attempt: Attempt
    environment: OneConversation | SeveralConversations
    policies: Mapping[str, RolePolicy]
    """By role."""
    limits: Limits
    sampling: Sampling
    release: Callable[[_Voice], Awaitable[str | None]]
    """Frees the session of a conversation that is not asked for a while; what went wrong, None if nothing."""
    fork: Fork | None = None
    visit: Visit | None = None
    stopped: bool = False
    """It was cancelled: no further reply is sampled, also where the environment ignores cancellation."""
    voices: dict[str, _Voice] = field(default_factory=dict)
    """By conversation, in the order in which they opened."""
    waiting: deque[_Voice] = field(default_factory=deque)
    """Those with a wanted reply, in the order in which they were asked."""
    said: list[_Voice] = field(default_factory=list)
    """Whose turn it was, turn by turn."""
    problems: list[str] = field(default_factory=list)
    """What went wrong beside the episode."""
    wanted: Wanted = field(init=False)
    """What was asked, by the rules that every environment keeps."""

    def __post_init__(self) -> None:
        self.wanted = Wanted(spec=self.environment.spec, where=self._where)

    async def run(self) -> tuple[EpisodeEnd, Mapping[str, Reward]]:
        """Ask and tell until nothing is wanted or a limit is reached, then score."""
        end = await self._begin()
        while end is None and self.waiting:
            end = await self._next()
        while self.waiting:  # sampled, and never told
            await self._take()
        if not self.said and end is not None and end.stop.is_truncated and not self._has_replies:
            return end, self.reward_all(self._too_long(end))
        end = end or EpisodeEnd(stop=StopReason.DONE)
        replies = {name: voice.conversation.replies for name, voice in self.voices.items()}
        with boundary(EnvironmentFault, f"score of {self._where}"):
            return end, await self.environment.score(replies, end)

    def list_replies(self) -> list[asyncio.Task[None]]:
        """What samples the replies that are wanted."""
        return [voice.reply for voice in self.waiting if voice.reply is not None]

    def collect(self) -> None:
        """Take what was sampled and not taken when the episode was broken off: no token is lost."""
        for voice in list(self.waiting):
            self._append(voice)
        self.waiting.clear()

    def to_trajectories(
        self, stop: StopReason, rewards: Mapping[str, Reward], error: str | None
    ) -> tuple[Trajectory, ...]:
        """What every role said, in the order of the environment's roles."""
        return tuple(self._to_trajectory(role, stop, rewards[role], error) for role in self._roles)

    def _to_trajectory(self, role: str, stop: StopReason, reward: Reward, error: str | None) -> Trajectory:
        spoken = {voice.name: voice.conversation for voice in self.voices.values() if voice.role == role}
        spec, policy = self.environment.spec.role(role), self.policies.get(role)
        openings = [opening for conversation in spoken.values() for opening in conversation.openings]
        return Trajectory(
            id=replace(self.attempt.id, role=role),
            task_id=self.attempt.task.id,
            turns=merge_turns([voice.name for voice in self.said if voice.role == role], spoken),
            stop=stop,
            reward=reward,
            error=error,
            conversations=leave_out_prompt(openings, self.attempt.task.prompt),
            compare=spec.compare if spec else "task",
            learns=policy.learns if policy else True,
        )

    def reward_all(self, reward: Reward) -> dict[str, Reward]:
        """The same reward for every role."""
        return dict.fromkeys(self._roles, reward)

    @property
    def _roles(self) -> list[str]:
        return [role.name for role in self.environment.spec.roles]

    @property
    def _has_replies(self) -> bool:
        return any(voice.conversation.replies for voice in self.voices.values())

    @property
    def _where(self) -> str:
        return f"environment {self.attempt.task.environment!r} for task {self.attempt.task.id}"

    def _too_long(self, end: EpisodeEnd) -> Invalid:
        voice = self.voices[end.conversation or MAIN]
        reason = (
            f"the opening of task {self.attempt.task.id} has {len(voice.conversation.prompt_ids)} tokens and leaves no "
            f"room for a reply in rollout.max_tokens={self.limits.max_tokens}; shorten the task, or raise "
            "rollout.max_tokens and engine.max_context"
        )
        return Invalid(reason=reason, retryable=False)

    async def _begin(self) -> EpisodeEnd | None:
        attempt = self.attempt
        if self.fork is not None:
            ask = Ask(messages=())
            self.wanted.ask(ask)
            return await self._want(self._open_voice(ask, self.fork.conversation.fork()))
        with boundary(EnvironmentFault, f"reset of {self._where}"):
            asked = await self.environment.begin(attempt.task, environment_seed(self.sampling.seed, attempt.draw))
        return await self._ask_all(asked.asks)

    async def _next(self) -> EpisodeEnd | None:
        """Take the reply that was asked first and tell the environment; why the episode is over, None if it is not."""
        voice = await self._take()
        conversation = voice.conversation
        if conversation.turns[-1].completion.finish_reason is FinishReason.LENGTH:
            is_turn = voice.room == self.limits.max_turn_tokens
            stop = StopReason.MAX_TURN_TOKENS if is_turn else StopReason.MAX_TOKENS
            return EpisodeEnd(stop=stop, conversation=voice.name)
        started = time.perf_counter()
        with boundary(EnvironmentFault, f"step of {self._where}"):
            asked = await self.environment.tell(voice.name, conversation.replies[-1])
        conversation.observe(asked, environment_s=time.perf_counter() - started)
        end = await self._ask_all(asked.asks)
        if self.waiting and voice not in self.waiting:
            await self._free(voice)
        return end

    async def _ask_all(self, asks: tuple[Ask, ...]) -> EpisodeEnd | None:
        for ask in asks:
            end = await self._ask(ask)
            if end is not None:
                return end
        return None

    async def _ask(self, ask: Ask) -> EpisodeEnd | None:
        """Check what is asked, and begin to sample it; why the episode is over if a limit forbids it.

        Raises EnvironmentFault where the environment breaks what it said about its episodes.
        """
        voice, end = self.voices.get(ask.conversation), self.wanted.ask(ask)
        if end is not None:
            return end
        if ask.role not in self.policies:
            raise self.wanted.fault(
                ask, f"is of role {ask.role!r}, which has no policy; bind it in the recipe's [roles]"
            )
        if voice is None and ask.inherits and ask.caller is not None:
            caller = self.voices[ask.caller]
            called = caller.conversation.call(ask.messages, name=ask.conversation, caller=caller.name)
            voice = self._open_voice(ask, called)
        elif voice is None:
            conversation = Conversation(renderer=self.policies[ask.role].renderer)
            voice = self._open_voice(ask, conversation)
            conversation.open(ask.messages, ask.tools, name=ask.conversation, caller=ask.caller)
        else:
            voice.conversation.go_on(ask.messages)
        return await self._want(voice)

    def _open_voice(self, ask: Ask, conversation: Conversation) -> _Voice:
        branch = self.fork.number if self.fork else 0
        voice = self.voices[ask.conversation] = _Voice(
            name=ask.conversation,
            role=ask.role,
            conversation=conversation,
            policy=self.policies[ask.role],
            session=self.attempt.session(branch, ask.conversation),
        )
        return voice

    async def _want(self, voice: _Voice) -> EpisodeEnd | None:
        """Begin to sample the next reply of a conversation; why the episode is over if a limit leaves no room."""
        conversation = voice.conversation
        room = self.limits.before_reply(num_turns=len(conversation.replies), num_tokens=len(conversation.prompt_ids))
        if isinstance(room, StopReason):
            return EpisodeEnd(stop=room, conversation=voice.name)
        if self.visit is not None and isinstance(self.environment, OneConversation):
            await self.visit(conversation, self.environment.environment)
        if self.stopped:
            raise asyncio.CancelledError
        voice.room, voice.state = room, self._read_state()
        voice.holds_session = True
        voice.reply = asyncio.ensure_future(self._sample(voice))
        self.waiting.append(voice)
        return None

    async def _sample(self, voice: _Voice) -> None:
        started = time.perf_counter()
        params = self._params(voice)
        completion = await voice.policy.reply(self.attempt.task, voice.conversation, params, voice.session)
        voice.sampled = completion, time.perf_counter() - started
        if len(self.waiting) > 1:
            # It may wait long to be told. An engine's slot that it kept meanwhile could be the one that another
            # reply of this episode needs to come.
            await self._free(voice)

    async def _free(self, voice: _Voice) -> None:
        if voice.holds_session:
            voice.holds_session = False
            problem = await self.release(voice)
            self.problems += [] if problem is None else [problem]

    async def _take(self) -> _Voice:
        """Wait for the reply that was asked first, and write it down."""
        voice = self.waiting[0]
        assert voice.reply is not None
        await voice.reply
        self.waiting.popleft()
        self.wanted.tell(voice.name)
        self._append(voice)
        return voice

    def _append(self, voice: _Voice) -> None:
        """Write a reply down, if it was sampled."""
        if voice.sampled is not None:
            completion, seconds = voice.sampled
            voice.conversation.reply(completion, state=voice.state, engine_s=seconds)
            self.said.append(voice)
        voice.reply = voice.sampled = None

    def _params(self, voice: _Voice) -> SamplingParams:
        conversation, sampling = voice.conversation, self.sampling
        branch = ("branch", self.fork.number) if self.fork is not None else ()
        name = ("conversation", voice.name) if voice.name != MAIN else ()
        grammar = sampling.build_grammar(conversation.tools) if sampling.build_grammar and conversation.tools else None
        return SamplingParams(
            max_tokens=voice.room,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            grammar=grammar,
            stop=conversation.renderer.stop,
            stop_token_ids=conversation.renderer.stop_token_ids,
            seed=self.attempt.seed(sampling.seed, *branch, *name, "turn", len(conversation.replies)),
        )

    def _read_state(self) -> str | None:
        """The hash of the state a reply is about to be sampled in; None where the environment gives none."""
        of = self.environment.environment
        if not isinstance(of, StatefulEnvironment):
            return None
        where = f"state_hash of {self._where}"
        with boundary(EnvironmentFault, where), holding(where):
            state = of.state_hash()
        if not isinstance(state, str):
            raise EnvironmentFault(f"{where} is {show(state)}; return text, the same for equal states")
        return state
