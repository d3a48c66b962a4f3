"""Plays one episode in which every role has a speaker of its own: an attack speaks for one role, an honest policy for
the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from turnwise.config.credit import ShapingSection
from turnwise.core.episodes import Ask, Asked
from turnwise.core.errors import ToolFailure, TurnwiseError
from turnwise.core.judging import Judge, seat_judges
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Invalid, Message, Reward, Task, ToolSpec, text_message
from turnwise.core.verdicts import Judgement
from turnwise.credit.terms import TermAnnotator
from turnwise.serving.episode import OutsideEpisode


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What a speaker is asked to reply to."""

    task: Task
    role: str
    conversation: str
    messages: tuple[Message, ...]
    """The conversation so far."""
    tools: tuple[ToolSpec, ...]
    turn: int
    """Number of replies that the conversation has."""
    rng: Random


Speaker = Callable[[Seat], Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """What is attacked, and within which limits."""

    family: EnvironmentFamily
    judges: Mapping[str, Judge] = field(default_factory=dict)
    rewards: Sequence[TermAnnotator] = ()
    """The recipe's `[rewards]`; empty if it has none."""
    shaping: ShapingSection | None = None
    """The recipe's `credit.shaping`."""
    group_size: int = 1
    """Attempts at one task that rewards and shaping see together; 1 without them."""
    max_turns: int = 16
    """Replies of a conversation after which the episode is stopped."""
    timeout_s: float = 60.0
    """Seconds that an episode may take; past them its rewards are Invalid, as in a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """One reply, and what the environment answered."""

    conversation: str
    message: Message
    asked: Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Bout:
    """One episode that was played."""

    task: Task
    replies: Mapping[str, tuple[Replied, ...]]
    """The replies of every role, in order."""
    rewards: Mapping[str, Reward]
    """The reward of every role that was asked to speak."""
    tools: Mapping[str, tuple[ToolSpec, ...]]
    """The tools on offer, by role."""
    judgements: tuple[Judgement, ...]

    def last(self, role: str) -> Message:
        """Return a role's last reply; an empty one if it was not asked."""
        replied = self.replies.get(role)
        return replied[-1].message if replied else text_message("assistant", "")


async def play_bout(arena: Arena, task: Task, speakers: Mapping[str, Speaker], default: Speaker, *, seed: int) -> Bout:
    """Play a task; `speakers` reply for the roles that they are named by, `default` for all others.

    Whatever the environment, a judge or a tool raises, and an episode that takes too long, makes the rewards Invalid,
    as in a run. Raises what a speaker raises.
    """
    environment = arena.family.build_environment(task)
    seated = seat_judges(environment, arena.judges)
    episode = OutsideEpisode(environment, task, seed=seed, max_turns=arena.max_turns)
    played = _Played(episode, task, Random(seed))
    problem = ""
    try:
        async with asyncio.timeout(arena.timeout_s):
            rewards = await played.run(speakers, default)
    except (TurnwiseError, ToolFailure) as error:
        problem = str(error)
    except TimeoutError:
        problem = f"the episode took longer than {arena.timeout_s:g} s"
    finally:
        await episode.close()
    if problem:
        rewards = {role: Invalid(reason=problem, retryable=True) for role in played.replies}
    return Bout(
        task=task,
        replies={role: tuple(replies) for role, replies in played.replies.items()},
        rewards=rewards,
        tools=played.tools,
        judgements=tuple(seated.judgements),
    )


class _Played:
    """The messages of a running episode."""

    def __init__(self, episode: OutsideEpisode, task: Task, rng: Random) -> None:
        self._episode, self._task, self._rng = episode, task, rng
        self._messages: dict[str, list[Message]] = {}
        self.replies: dict[str, list[Replied]] = {}
        self.tools: dict[str, tuple[ToolSpec, ...]] = {}

    async def run(self, speakers: Mapping[str, Speaker], default: Speaker) -> Mapping[str, Reward]:
        """Reply until the episode is over, and return its rewards by role."""
        episode = self._episode
        await episode.begin()
        self._note(episode.wanted)
        while not episode.is_over:
            ask = episode.wanted[0]
            said = self._messages[ask.conversation]
            seat = Seat(
                task=self._task,
                role=ask.role,
                conversation=ask.conversation,
                messages=tuple(said),
                tools=episode.tools[ask.conversation],
                turn=len(episode.replies.get(ask.conversation, ())),
                rng=self._rng,
            )
            self.replies.setdefault(ask.role, [])
            reply = speakers.get(ask.role, default)(seat)
            said.append(reply)
            for answer in await episode.reply(reply, ask.conversation):
                replied = Replied(conversation=answer.ask.conversation, message=answer.reply, asked=answer.asked)
                self.replies.setdefault(answer.ask.role, []).append(replied)
                self._note(answer.asked.asks)
        return await episode.score()

    def _note(self, asks: tuple[Ask, ...]) -> None:
        for ask in asks:
            self._messages.setdefault(ask.conversation, []).extend(ask.messages)
            self.tools[ask.role] = self.tools.get(ask.role) or ask.tools
