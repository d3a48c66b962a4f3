"""Demonstrations: a scripted policy plays real episodes, and its replies become completions for imitation."""

from __future__ import annotations

from random import Random

from turnwise.core.checked import to_asking
from turnwise.core.closing import close_environment
from turnwise.core.episodes import Asked, AskingEnvironment, EpisodeEnd
from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Environment, Renderer, ScriptedPolicy
from turnwise.core.types import Draw, Episode, Reward, StopReason, Trajectory, TrajectoryId
from turnwise.core.wanted import Wanted
from turnwise.rollout.conversation import Conversation, leave_out_prompt, merge_turns
from turnwise.rollout.policies import encode_scripted


async def play_demonstration(
    draw: Draw,
    policy: ScriptedPolicy,
    environment: Environment | AskingEnvironment,
    renderer: Renderer,
    *,
    seed: int,
    max_turns: int,
) -> Episode:
    """Play one episode in which `policy` speaks for every role, with its replies encoded by the renderer.

    Log-probabilities are NaN: they are unknown. Raises EnvironmentFault if the policy has not finished after
    `max_turns` replies in one conversation, or after as many replies as the environment allows.
    """
    asking = to_asking(environment)
    demonstration = _Demonstration(draw, policy, asking, renderer, seed, max_turns)
    try:
        rewards = await demonstration.play()
    finally:
        problem = await close_environment(asking)
    return demonstration.to_episode(rewards, problem)


class _Demonstration:
    """A running episode. Replies are given one at a time, in the order in which they are requested."""

    def __init__(
        self,
        draw: Draw,
        policy: ScriptedPolicy,
        environment: AskingEnvironment,
        renderer: Renderer,
        seed: int,
        max_turns: int,
    ) -> None:
        self._draw, self._policy, self._environment, self._renderer = draw, policy, environment, renderer
        self._seed, self._max_turns = seed, max_turns
        self._wanted = Wanted(
            spec=environment.spec, where=f"environment {draw.task.environment!r} for task {draw.task.id}"
        )
        self._conversations: dict[str, Conversation] = {}
        self._said: list[str] = []
        """The conversation of each reply."""

    async def play(self) -> dict[str, Reward]:
        """Reply until nothing more is requested. Returns the rewards by role."""
        rng, task = Random(self._seed), self._draw.task
        self._take(await self._environment.begin(task, self._seed))
        while self._wanted.asks:
            name = next(iter(self._wanted.asks))
            conversation = self._conversations[name]
            if len(conversation.replies) >= self._max_turns:
                raise self._fault(name)
            self._wanted.tell(name)
            reply = self._policy.reply(task, conversation.messages, rng)
            conversation.append(encode_scripted(reply, self._renderer), reply)
            self._said.append(name)
            asked = await self._environment.tell(name, reply)
            conversation.observe(asked)
            self._take(asked)
        replies = {name: conversation.replies for name, conversation in self._conversations.items()}
        return dict(await self._environment.score(replies, EpisodeEnd(stop=StopReason.DONE)))

    def _take(self, asked: Asked) -> None:
        for ask in asked.asks:
            known = self._conversations.get(ask.conversation)
            if self._wanted.ask(ask) is not None:
                raise self._fault(ask.conversation)
            if known is not None:
                known.go_on(ask.messages)
            elif ask.inherits and ask.caller is not None:
                caller = self._conversations[ask.caller]
                called = caller.call(ask.messages, name=ask.conversation, caller=ask.caller)
                self._conversations[ask.conversation] = called
            else:
                conversation = self._conversations[ask.conversation] = Conversation(renderer=self._renderer)
                conversation.open(ask.messages, ask.tools, name=ask.conversation, caller=ask.caller)

    def _fault(self, name: str) -> EnvironmentFault:
        num_turns = len(self._conversations[name].replies) if name in self._conversations else 0
        return EnvironmentFault(
            f"policy {type(self._policy).__name__} did not finish task {self._draw.task.id} within {num_turns} turns; "
            "raise rollout.max_turns"
        )

    def to_episode(self, rewards: dict[str, Reward], problem: str | None) -> Episode:
        """Return the episode with the turns of every role."""
        trajectories = []
        for spec in self._environment.spec.roles:
            roles = {name: opened.role for name, opened in self._wanted.opened.items()}
            spoken = {name: self._conversations[name] for name, role in roles.items() if role == spec.name}
            openings = [opening for conversation in spoken.values() for opening in conversation.openings]
            trajectories.append(
                Trajectory(
                    id=TrajectoryId(draw=self._draw.index, member=0, role=spec.name),
                    task_id=self._draw.task.id,
                    turns=merge_turns([name for name in self._said if name in spoken], spoken),
                    stop=StopReason.DONE,
                    reward=rewards[spec.name],
                    error=problem,
                    conversations=leave_out_prompt(openings, self._draw.task.prompt),
                    compare=spec.compare,
                )
            )
        return Episode(draw=self._draw, member=0, trajectories=tuple(trajectories), stop=StopReason.DONE)
