"""Plays one episode: requested replies are sampled at once and passed to the environment in the order in which it
asked.

An episode's tokens never depend on timing. Replies requested at the same time are sampled concurrently, each with a
seed derived from its conversation and its place there, and wait for earlier ones.
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
    """Start in the middle: at `conversation`, in an `Environment` already in that state."""

    number: int
    """Number of the branch in its trajectory, from 1: determines its seeds and its engine session."""
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
    """Task that samples the requested reply; None if none is requested."""
    sampled: tuple[Completion, float] | None = None
    """The sampled reply and the seconds it took, from delivery by the engine until it is recorded."""
    room: int = 0
    """Most tokens of that reply."""
    state: str | None = None
    """Hash of the environment's state when the reply was requested."""
    holds_session: bool = True


@dataclass(slots=True, kw_only=True, eq=False)
class Play:
    """Runs one episode from its beginning to its rewards; `to_trajectories` returns its turns, whatever happened."""

    attempt: Attempt
    environment: OneConversation | SeveralConversations
    policies: Mapping[str, RolePolicy]
    """Policies by role."""
    limits: Limits
    sampling: Sampling
    release: Callable[[_Voice], Awaitable[str | None]]
    """Frees the session of a conversation that will not be asked for a while; returns what went wrong, None if
    nothing."""
    fork: Fork | None = None
    visit: Visit | None = None
    stopped: bool = False
    """Whether the episode was cancelled: no further reply is sampled, even if the environment ignores cancellation."""
    voices: dict[str, _Voice] = field(default_factory=dict)
    """Voices by conversation, in the order in which they opened."""
    waiting: deque[_Voice] = field(default_factory=deque)
    """Voices with a requested reply, in the order of the requests."""
    said: list[_Voice] = field(default_factory=list)
    """The voice of each turn."""
    problems: list[str] = field(default_factory=list)
    """Problems that did not affect the episode itself."""
    wanted: Wanted = field(init=False)
    """Open requests, checked by the rules that every environment keeps."""

    def __post_init__(self) -> None:
        self.wanted = Wanted(spec=self.environment.spec, where=self._where)

    async def run(self) -> tuple[EpisodeEnd, Mapping[str, Reward]]:
        """Ask and tell until nothing is requested or a limit is reached, then score."""
        end = await self._begin()
        while end is None and self.waiting:
            end = await self._next()
        while self.waiting:  # sampled, but never told to the environment
            await self._take()
        if not self.said and end is not None and end.stop.is_truncated and not self._has_replies:
            return end, self.reward_all(self._too_long(end))
        end = end or EpisodeEnd(stop=StopReason.DONE)
        replies = {name: voice.conversation.replies for name, voice in self.voices.items()}
        with boundary(EnvironmentFault, f"score of {self._where}"):
            return end, await self.environment.score(replies, end)

    def list_replies(self) -> list[asyncio.Task[None]]:
        """Return the tasks that sample requested replies."""
        return [voice.reply for voice in self.waiting if voice.reply is not None]

    def list_sessions(self) -> list[tuple[RolePolicy, Session]]:
        """Return the engine sessions that are held, with their policies."""
        return [(voice.policy, voice.session) for voice in self.voices.values() if voice.holds_session]

    def collect(self) -> None:
        """Record replies that were sampled but not taken when the episode was interrupted: no token is lost."""
        for voice in list(self.waiting):
            self._append(voice)
        self.waiting.clear()

    def to_trajectories(
        self, stop: StopReason, rewards: Mapping[str, Reward], error: str | None
    ) -> tuple[Trajectory, ...]:
        """Return the trajectory of every role, in the order of the environment's roles."""
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
        """Give every role the same reward."""
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
        """Take the reply that was requested first and tell the environment. Returns why the episode is over, None if it
        is not."""
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
        """Check a request and begin to sample it. Returns why the episode is over if a limit forbids it.

        Raises EnvironmentFault if the environment breaks its own declarations about episodes.
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
        """Begin to sample the next reply of a conversation. Returns why the episode is over if a limit leaves no
        room."""
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
            # The environment may be told much later. The engine slot kept meanwhile could be the one that another reply
            # of this episode needs.
            await self._free(voice)

    async def _free(self, voice: _Voice) -> None:
        if voice.holds_session:
            voice.holds_session = False
            problem = await self.release(voice)
            self.problems += [] if problem is None else [problem]

    async def _take(self) -> _Voice:
        """Wait for the reply that was requested first, and record it."""
        voice = self.waiting[0]
        assert voice.reply is not None
        await voice.reply
        self.waiting.popleft()
        self.wanted.tell(voice.name)
        self._append(voice)
        return voice

    def _append(self, voice: _Voice) -> None:
        """Record a reply, if it was sampled."""
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
        """Return the hash of the state in which a reply is about to be sampled; None if the environment has none."""
        of = self.environment.environment
        if not isinstance(of, StatefulEnvironment):
            return None
        where = f"state_hash of {self._where}"
        with boundary(EnvironmentFault, where), holding(where):
            state = of.state_hash()
        if not isinstance(state, str):
            raise EnvironmentFault(f"{where} is {show(state)}; return text, the same for equal states")
        return state
