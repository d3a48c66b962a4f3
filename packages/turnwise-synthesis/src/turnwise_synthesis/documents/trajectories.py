"""Trajectories that higher-order actions start from: of scripted policies, or stored by a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Message, Reward, Scored, Task, ToolSpec
from turnwise.environments.told import play_policies
from turnwise.evaluation.summary import is_right
from turnwise.exchange.conversations import Conversation
from turnwise_synthesis.documents.ledger import Ledger

KIND = "trajectory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One reply, and what the environment answered."""

    reply: Message
    observations: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One conversation of one attempt, with its outcome."""

    id: str
    opening: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    steps: tuple[Step, ...]
    succeeded: bool | None
    """None: it could not be scored."""
    task: Task | None = None

    def before(self, step: int) -> list[Message]:
        """The messages before a reply."""
        messages = list(self.opening)
        for each in self.steps[:step]:
            messages += [each.reply, *each.observations]
        return messages


def find_outcome(reward: Reward) -> bool | None:
    """Return whether an attempt succeeded; None for one that could not be scored."""
    return is_right(reward) if isinstance(reward, Scored) else None


async def play_trajectories(
    family: EnvironmentFamily,
    policies: Sequence[str],
    *,
    count: int,
    first: int,
    seed: int,
    max_turns: int,
    ledger: Ledger,
) -> list[Told]:
    """Return an episode of each policy on each of the training tasks `first .. first + count - 1`; what cannot be
    played is counted."""
    told = []
    episodes = await play_policies(
        family, policies, count=count, first=first, seed=seed, name=KIND, max_turns=max_turns
    )
    for place, played in episodes:
        if isinstance(played, str):
            ledger.drop(KIND, place, "failed", played)
            continue
        steps = zip(played.replies, played.results, strict=True)
        told.append(
            Told(
                id=place,
                opening=tuple(played.opening.messages),
                tools=tuple(played.opening.tools),
                steps=tuple(Step(reply=reply, observations=result.observations) for reply, result in steps),
                succeeded=find_outcome(played.reward),
                task=played.task,
            )
        )
    return told


def read_stored(conversations: Sequence[Conversation]) -> list[Told]:
    """Return stored conversations of a run. Raises ConfigError where there is none."""
    told = [
        Told(
            id=f"{each.trajectory.id}#{each.index}",
            opening=tuple(each.opening.messages),
            tools=tuple(each.opening.tools),
            steps=tuple(Step(reply=turn.message, observations=turn.observations) for turn in each.turns),
            succeeded=find_outcome(each.trajectory.reward),
            task=each.group.task,
        )
        for each in conversations
        if each.turns
    ]
    if not told:
        raise ConfigError("the run has stored no trajectory; name one that has trained or evaluated")
    return told
