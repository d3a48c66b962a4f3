"""Plays an episode of a program outside: it asks for replies whenever it wants to, at an endpoint of this machine.

The session of the gateway samples with the policy's renderer and engine, and stores every reply. What a reply is
depends on its messages and the seeds of the attempt alone, so an episode's tokens do not depend on timing unless the
program's requests do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from turnwise.core.checked import SeveralConversations
from turnwise.core.episodes import AGENT, ASIDE, Asked, Endpoint, EpisodeEnd, LiveEnvironment, RequestRule
from turnwise.core.errors import EnvironmentFault, boundary
from turnwise.core.types import (
    ConversationOpening,
    Episode,
    FinishReason,
    Message,
    Reward,
    Session,
    StopReason,
    Task,
    Trajectory,
)
from turnwise.gateway import sampling as gateway
from turnwise.gateway.forest import Node
from turnwise.gateway.gateway import Gateway
from turnwise.gateway.server import GatewayServer
from turnwise.gateway.session import Policy
from turnwise.gateway.session import Session as GatewaySession
from turnwise.gateway.turns import Told, list_roots, to_opening, to_turns
from turnwise.rollout.attempt import Attempt, Sampling, environment_seed
from turnwise.rollout.conversation import leave_out_prompt
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import Cut, run_play
from turnwise.rollout.policies import EnginePolicy, RolePolicy

MAX_SESSIONS = 100_000


class Endpoints:
    """The server of a run's live episodes. It starts with the first of them."""

    def __init__(self, decode: Callable[[Any], str], *, longest_token: int | None = None) -> None:
        """`decode` returns the text of token ids, for programs that ask for log-probabilities. `longest_token` is the
        policy's (`gateway.session.Policy`)."""
        self._decode, self._longest_token = decode, longest_token
        self._server: GatewayServer | None = None
        self._starting: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(
        self,
        policy: EnginePolicy,
        others: Mapping[str, EnginePolicy],
        limits: gateway.Limits,
        rule: gateway.SamplingRule,
        requests: RequestRule,
        attempt: Attempt,
    ) -> tuple[GatewaySession, Endpoint]:
        """Open the session of an attempt, in which `others` answer for their roles and `policy` for the rest. Raises
        EnvironmentFault or ConfigError if it cannot be served."""
        server = await self._start(policy)
        engines = {role: each.engine for role, each in others.items()}
        answers = replace(self._build_policy(policy), model=requests.model, engines=engines)
        name = f"{attempt.scope}-{attempt.draw.index}-{attempt.member}-{attempt.number}"
        while name in server.gateway.names:  # the same draw again, in an evaluation
            name += "-again"
        seed = (attempt.draw.index, attempt.task.id, attempt.member, attempt.number)
        group = attempt.session().group  # the members of a draw begin alike, and an engine keeps them together
        access = server.gateway.open(
            name=name, policy=answers, limits=limits, rule=rule, requests=requests, seed=seed, group=group
        )
        session = server.gateway.sessions[access.name]
        endpoint = Endpoint(
            url=server.url + access.path,
            api_key=access.key,
            model=requests.model,
            read_posted=lambda: session.reward,
            refuse_rewards=session.refuse_rewards,
        )
        return session, endpoint

    async def end(self, session: GatewaySession) -> None:
        """End a session: later calls are refused, open ones end."""
        if self._server is not None:
            await self._server.gateway.end(session.name)

    async def close(self) -> None:
        """Stop serving. A second call does nothing."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def _build_policy(self, policy: EnginePolicy) -> Policy:
        return Policy(
            engine=policy.engine,
            renderer=policy.renderer,
            encode=None,
            decode=self._decode,
            longest_token=self._longest_token,
        )

    async def _start(self, policy: EnginePolicy) -> GatewayServer:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # an earlier loop took its server along
            self._loop, self._server, self._starting = loop, None, asyncio.Lock()
        assert self._starting is not None
        async with self._starting:
            if self._server is None:
                default = self._build_policy(policy)
                none = gateway.Limits(max_context=1, max_reply_tokens=1)  # every session has its own
                rule = gateway.SamplingRule()
                sessions = Gateway(default, none, rule, max_sessions=MAX_SESSIONS, max_waiting=MAX_SESSIONS)
                server = GatewayServer(sessions)
                await server.start()
                self._server = server
            return self._server


async def run_live_episode(
    attempt: Attempt,
    environment: LiveEnvironment,
    policies: Mapping[str, RolePolicy],
    limits: Limits,
    sampling: Sampling,
    endpoints: Endpoints,
    *,
    cut: Cut | None = None,
) -> Episode:
    """Run one attempt as `run_episode` does, with a program that asks for replies by itself.

    The policy of the role "agent" answers every request. That role has the conversations that train; `ASIDE` has the
    others, if the environment declares it. An environment without that role has the conversations of each role that the
    program names, which its policy answers; `ASIDE` has the others. Raises EnvironmentFault if a policy is no engine.
    """
    engines: dict[str, EnginePolicy] = {}
    for role, policy in policies.items():
        if not isinstance(policy, EnginePolicy):
            raise EnvironmentFault(
                f"{type(environment).__name__} is played by a program, which needs an engine for the role {role!r}, "
                f"not {type(policy).__name__}; let it learn or follow, or give it a checkpoint"
            )
        engines[role] = policy
    play = LivePlay(
        attempt=attempt,
        live=environment,
        environment=_Closing(environment, endpoints),
        policies=engines,
        limits=limits,
        sampling=sampling,
        endpoints=endpoints,
    )
    return await run_play(play, attempt, cut)


class _Closing:
    """Implements `AskingEnvironment`: the environment, which ends its session before it closes."""

    def __init__(self, environment: LiveEnvironment, endpoints: Endpoints) -> None:
        self.spec = environment.spec
        self.session: GatewaySession | None = None
        self._environment, self._endpoints = environment, endpoints

    async def begin(self, task: Task, seed: int) -> Asked:
        return await self._environment.begin(task, seed)

    async def tell(self, conversation: str, reply: Message) -> Asked:
        return await self._environment.tell(conversation, reply)

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        return await self._environment.score(replies, end)

    async def close(self) -> None:
        if self.session is not None:
            await self._endpoints.end(self.session)
        await self._environment.close()


@dataclass(slots=True, kw_only=True, eq=False)
class LivePlay:
    """Implements `loop.Playable`."""

    attempt: Attempt
    live: LiveEnvironment
    environment: _Closing
    policies: Mapping[str, EnginePolicy]
    """What answers, by role."""
    limits: Limits
    sampling: Sampling
    endpoints: Endpoints
    problems: list[str] = field(default_factory=list)
    session: GatewaySession | None = None
    is_stopped: bool = False
    roots: dict[str, set[int]] | None = None
    """By role, the replies that began its conversations; None before the program has ended."""

    @property
    def stopped(self) -> bool:
        """Whether the episode was cancelled: the session takes no more calls."""
        return self.is_stopped

    @stopped.setter
    def stopped(self, value: bool) -> None:
        self.is_stopped = value
        if self.session is not None:
            self.session.is_over = True

    async def run(self) -> tuple[EpisodeEnd, Mapping[str, Reward]]:
        """Run the program, end its session, and score."""
        attempt, sampling, limits = self.attempt, self.sampling, self.limits
        where = f"environment {attempt.task.environment!r} for task {attempt.task.id}"
        rule = gateway.SamplingRule(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            seed=sampling.seed,
            follows_client=False,
            build_reply_grammar=sampling.build_grammar,
        )
        allowed = gateway.Limits(
            max_context=limits.max_tokens,
            max_reply_tokens=limits.max_turn_tokens,
            max_turns=limits.max_turns,
            ends_when_cut=True,
        )
        requests = self.live.spec.requests
        others = {} if AGENT in self.policies else self.policies
        policy = self.policies.get(AGENT) or self.policies[ASIDE]
        self.session, endpoint = await self.endpoints.open(policy, others, allowed, rule, requests, attempt)
        self.environment.session = self.session
        with boundary(EnvironmentFault, f"the program of {where}"):
            await self.live.play(attempt.task, environment_seed(sampling.seed, attempt.draw), endpoint)
        await self.endpoints.end(self.session)
        if self.session.refused is not None:  # also of a program that went on without the answer
            raise EnvironmentFault(f"the program of {where} rewrote its conversation: {self.session.refused}")
        self.roots = self._share_roots()  # the environment's rule is asked once; what it raises makes this invalid
        told = to_turns(self._replies)
        end = EpisodeEnd(stop=_find_stop(told))
        replies: dict[str, Sequence[Message]] = {}
        for turn in told.turns:
            if not turn.is_received:
                continue  # what nobody received decided nothing
            name = told.openings[turn.conversation].name
            replies[name] = (*replies.get(name, ()), turn.message)
        with boundary(EnvironmentFault, f"score of {where}"):
            rewards = await SeveralConversations(self.environment).score(replies, end)
        return end, rewards

    def list_replies(self) -> list[asyncio.Task[None]]:
        """Return the tasks that sample replies."""
        return [] if self.session is None else [*self.session.tasks]  # type: ignore[list-item]

    def list_sessions(self) -> list[tuple[RolePolicy, Session]]:
        """Return nothing: the gateway's session frees those of the engine."""
        return []

    def collect(self) -> None:
        """Do nothing: every reply is stored when it was sampled."""

    def reward_all(self, reward: Reward) -> dict[str, Reward]:
        """Give every role the same reward."""
        return dict.fromkeys((role.name for role in self.live.spec.roles), reward)

    def to_trajectories(
        self, stop: StopReason, rewards: Mapping[str, Reward], error: str | None
    ) -> tuple[Trajectory, ...]:
        """Return the trajectory of every role."""
        trajectories = []
        try:
            roots = self._share_roots() if self.roots is None else self.roots
        except EnvironmentFault:  # the episode has failed by it, and its tokens are kept
            first, *others = (role.name for role in self.live.spec.roles)
            roots = {first: set(list_roots(self._replies).values()), **{name: set() for name in others}}
        posted = {} if self.session is None else self.session.rewards
        for role in self.live.spec.roles:
            told = to_turns(self._replies, roots[role.name], posted)
            trajectories.append(
                Trajectory(
                    id=replace(self.attempt.id, role=role.name),
                    task_id=self.attempt.task.id,
                    turns=tuple(told.turns),
                    stop=stop if stop.is_error or stop is StopReason.CUT else _find_stop(told),
                    reward=rewards[role.name],
                    error=error,
                    conversations=leave_out_prompt(told.openings, self.attempt.task.prompt),
                    compare=role.compare,
                    learns=self.policies[role.name].learns,
                )
            )
        return tuple(trajectories)

    @property
    def _replies(self) -> list[Node]:
        return [] if self.session is None else self.session.forest.replies

    def _share_roots(self) -> dict[str, set[int]]:
        """Return, by role, the replies that began its conversations."""
        names = [role.name for role in self.live.spec.roles]
        all_roots = set(list_roots(self._replies).values())
        if AGENT in names:
            kept = self._list_kept()
            return {AGENT: kept, ASIDE: all_roots - kept}
        shared: dict[str, set[int]] = {name: set() for name in names}
        for node in self._replies:
            if node.index in all_roots:
                shared[node.record.role if node.record.role in names else ASIDE].add(node.index)
        return shared

    def _list_kept(self) -> set[int]:
        """Return the replies that began the conversations that train, and those that nobody received, which are dropped
        for that reason."""
        replies = self._replies
        first = set(list_roots(replies).values())
        roots = [node for node in replies if node.index in first]
        if len(self.live.spec.roles) == 1:
            return {node.index for node in roots}
        received = {list_roots(replies)[node.index] for node in replies if node.is_delivered}
        lost = {node.index for node in roots if node.index not in received}
        roots = [node for node in roots if node.index in received]  # what nobody received decided nothing
        openings: list[ConversationOpening] = []
        for node in roots:
            openings.append(to_opening(node, [each.name for each in openings]))
        with boundary(EnvironmentFault, "the rule of the conversations that train"):
            chosen = self.live.choose_roots(openings)
        return lost | {node.index for node, is_chosen in zip(roots, chosen, strict=True) if is_chosen}


def _find_stop(told: Told) -> StopReason:
    """Return whether a limit of tokens cut a reply off."""
    received = (turn for turn in told.turns if turn.is_received)
    is_cut = any(turn.completion.finish_reason is FinishReason.LENGTH for turn in received)
    return StopReason.MAX_TURN_TOKENS if is_cut else StopReason.DONE
