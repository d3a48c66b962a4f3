"""Replay a stored episode of several conversations: who was asked what, in which order, and the rewards."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnwise.audit.recheck import Rechecked, check_rendering, close_or_fail, compare_rewards
from turnwise.core.episodes import Ask, Asked, AskingEnvironment, EpisodeEnd, LiveEnvironment
from turnwise.core.errors import EnvironmentFault, TurnwiseError, boundary
from turnwise.core.judging import list_stored_judges, seat_judges
from turnwise.core.protocols import Opening, Renderer
from turnwise.core.types import (
    FinishReason,
    Invalid,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
)


def list_episodes(group: TrajectoryGroup) -> list[list[Trajectory]]:
    """The trajectories of every episode of a group, including discarded ones."""
    episodes: dict[tuple[int, int], list[Trajectory]] = {}
    for trajectory in (*group.trajectories, *(each.trajectory for each in group.discarded)):
        episodes.setdefault((trajectory.id.member, trajectory.id.attempt), []).append(trajectory)
    return list(episodes.values())


async def recheck_episode(
    episode: Sequence[Trajectory],
    task: Task,
    *,
    environment: AskingEnvironment,
    renderer: Renderer,
    seed: int,
    run_tools: bool,
    timeout_s: float,
) -> dict[TrajectoryId, Rechecked]:
    """Compare the prompts with the stored texts; then let the environment ask again, answer with the stored replies in
    the order in which it asks, and compare roles, openings, observations and rewards.

    `episode` holds the trajectories of all roles. The replay takes an environment that `can_replay`, or `run_tools`.
    An exception from the environment is a reason for not checking, never an error of the audit.
    """
    outcomes = {trajectory.id: Rechecked() for trajectory in episode}
    for trajectory in episode:
        opening = Opening(messages=task.prompt, tools=())
        if trajectory.conversations:
            first = trajectory.conversations[0]
            opening = Opening(messages=first.messages, tools=first.tools)
        problems = check_rendering(trajectory, opening, renderer)
        outcomes[trajectory.id].breaches += [("prompts", text) for text in problems]
    reason = None
    if any(isinstance(trajectory.reward, Invalid) for trajectory in episode):
        reason = "rewards that are Invalid"
    elif isinstance(environment, LiveEnvironment):
        reason = f"rewards of {type(environment).__name__}, whose program cannot be replayed"
    elif not (run_tools or environment.spec.can_replay):
        reason = f"rewards of {type(environment).__name__}, which need --replay-tools"
    else:
        stored = [judgement for trajectory in episode for judgement in trajectory.judgements]
        seat_judges(environment, list_stored_judges(stored))
        try:
            async with asyncio.timeout(timeout_s):
                await _Replay(episode, task, environment, outcomes).run(seed)
        except (TurnwiseError, TimeoutError) as cause:
            detail = str(cause) or "timed out"
            reason = f"environments that failed when opened again ({type(cause).__name__}: {detail})"
    if reason is not None:
        for outcome in outcomes.values():
            outcome.not_checked.append(("rewards", reason))
    return outcomes


@dataclass(slots=True, kw_only=True)
class _Line:
    """The stored turns of one conversation, and how many of them the environment was told."""

    trajectory: Trajectory
    place: int
    turns: list[Turn] = field(default_factory=list)
    num_told: int = 0


class _Replay:
    """One episode that is replayed from the store."""

    def __init__(
        self,
        episode: Sequence[Trajectory],
        task: Task,
        environment: AskingEnvironment,
        outcomes: Mapping[TrajectoryId, Rechecked],
    ) -> None:
        self._episode, self._task, self._environment, self._outcomes = episode, task, environment, outcomes
        self._waiting: deque[Ask] = deque()
        self._lines: dict[str, _Line] = {}
        for trajectory in episode:
            # A silent role has no conversation; a single one that opens with the task's prompt is not recorded.
            names = [opening.name for opening in trajectory.conversations] or (["main"] if trajectory.turns else [])
            for place, name in enumerate(names):
                self._lines[name] = _Line(trajectory=trajectory, place=place)
                self._lines[name].turns = [turn for turn in trajectory.turns if turn.conversation == place]

    async def run(self, seed: int) -> None:
        """Play, compare, score and close."""
        environment = self._environment
        try:
            with boundary(EnvironmentFault, f"the episode of task {self._task.id}"):
                end = self._take(await environment.begin(self._task, seed)) or await self._tell_all()
                replies = {name: [turn.message for turn in line.turns] for name, line in self._lines.items()}
                rewards = await environment.score(replies, end)
            for trajectory in self._episode:
                outcome = self._outcomes[trajectory.id]
                outcome.reward_checked = True
                reward = rewards.get(trajectory.id.role)
                if reward is None:
                    outcome.breaches.append(("rewards", "the environment scores no such role"))
                else:
                    problems = compare_rewards(trajectory.reward, reward)
                    outcome.breaches += [("rewards", text) for text in problems]
        finally:
            await close_or_fail(environment, self._task)

    async def _tell_all(self) -> EpisodeEnd:
        """Tell the environment every stored reply that it asks for. Returns how the episode ended."""
        stop = self._episode[0].stop
        while self._waiting:
            ask = self._waiting.popleft()
            line = self._lines.get(ask.conversation)
            if line is None or line.num_told == len(line.turns):
                if stop is StopReason.DONE:
                    self._blame(ask, "the environment asks for a reply there that is not stored")
                return EpisodeEnd(stop=stop, conversation=ask.conversation)
            turn = line.turns[line.num_told]
            line.num_told += 1
            if turn.completion.finish_reason is FinishReason.LENGTH:
                return EpisodeEnd(stop=stop, conversation=ask.conversation)
            end = self._take(await self._environment.tell(ask.conversation, turn.message))
            if end is not None:
                return end
        for name, line in self._lines.items():
            if line.num_told < len(line.turns):
                text = f"conversation {name!r} has {len(line.turns)} replies, the environment asks for {line.num_told}"
                self._outcomes[line.trajectory.id].breaches.append(("prompts", text))
        return EpisodeEnd(stop=stop)

    def _take(self, asked: Asked) -> EpisodeEnd | None:
        """Compare what is asked with what is stored. Returns how the episode ended once its replies are used up."""
        most = self._environment.spec.max_replies
        for ask in asked.asks:
            if most is not None and sum(line.num_told for line in self._lines.values()) + len(self._waiting) >= most:
                return EpisodeEnd(stop=StopReason.MAX_TURNS, conversation=ask.conversation)
            self._waiting.append(ask)
            line = self._lines.get(ask.conversation)
            if line is None:
                continue
            stored = line.trajectory
            if stored.id.role != ask.role:
                self._blame(ask, f"it is stored under role {stored.id.role!r}, the environment asks {ask.role!r}")
            if line.num_told:
                if line.turns[line.num_told - 1].observations != ask.messages:
                    self._blame(ask, f"what it goes on with after {line.num_told} replies is not what is on record")
            elif stored.conversations:
                opening = stored.conversations[line.place]
                if (opening.messages, opening.tools) != (ask.messages, ask.tools):
                    self._blame(ask, "it is stored with another opening than the environment gives it")
                if (opening.caller, opening.inherits) != (ask.caller, ask.inherits):
                    self._blame(ask, f"it is stored as called by {opening.caller!r}, not {ask.caller!r}")
                if ask.inherits and not self._follows_caller(line, ask):
                    self._blame(ask, f"it does not follow the last reply of {ask.caller!r} before it opened")
        return None

    def _follows_caller(self, line: _Line, ask: Ask) -> bool:
        """Whether the first stored turn of a conversation that inherits has its caller's last told turn as parent."""
        caller = self._lines.get(ask.caller or "")
        if not line.turns or caller is None or caller.trajectory is not line.trajectory or not caller.num_told:
            return not line.turns
        parent = line.turns[0].parent
        return parent is not None and line.trajectory.turns[parent] is caller.turns[caller.num_told - 1]

    def _blame(self, ask: Ask, text: str) -> None:
        line = self._lines.get(ask.conversation)
        owner = self._episode[0] if line is None else line.trajectory
        self._outcomes[owner.id].breaches.append(("prompts", f"conversation {ask.conversation!r}: {text}"))
