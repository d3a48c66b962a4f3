"""Stored trajectories as conversations: every path that trains, from its opening to its last reply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.core.paths import trained_paths
from turnwise.core.protocols import Opening
from turnwise.core.roles import take_measured
from turnwise.core.types import Invalid, Message, ToolSpec, Trajectory, TrajectoryGroup, Turn


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conversation:
    """One conversation of one attempt."""

    group: TrajectoryGroup
    trajectory: Trajectory
    """The trajectory of this path alone, with its stop reason and its reward."""
    index: int
    """Number of the conversation in the stored trajectory, counted from 0."""
    opening: Opening
    turns: tuple[Turn, ...]

    @property
    def messages(self) -> list[Message]:
        """The opening messages, then every reply with the environment's answers."""
        messages = list(self.opening.messages)
        for turn in self.turns:
            messages += [turn.message, *turn.observations]
        return messages


def list_conversations(groups: Sequence[TrajectoryGroup], openings: Mapping[str, Opening]) -> Iterator[Conversation]:
    """The conversations of all members that learn, in order, or of all members if none does. `openings` holds the
    environments' openings by task id; a task without one opens with its prompt and without tools."""
    for group in groups:
        default = openings.get(group.task.id) or Opening(messages=group.task.prompt, tools=())
        for member in take_measured(group):
            index = 0
            for path in trained_paths(member):
                for branch in path.trajectory.branches():
                    turns = tuple(path.trajectory.turns[at] for at in branch)
                    yield Conversation(
                        group=group,
                        trajectory=path.trajectory,
                        index=index,
                        opening=_find_opening(member, turns, default),
                        turns=turns,
                    )
                    index += 1


def _find_opening(trajectory: Trajectory, turns: Sequence[Turn], default: Opening) -> Opening:
    if not trajectory.conversations or not turns:
        return default
    opening = trajectory.conversations[turns[0].conversation]
    return Opening(messages=opening.messages, tools=opening.tools)


def find_total(trajectory: Trajectory) -> float | None:
    """The total reward; None if it is Invalid."""
    return None if isinstance(trajectory.reward, Invalid) else trajectory.reward.total


def tool_to_json(tool: ToolSpec) -> dict[str, Any]:
    """The tool as chat templates expect it."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def text_of(message: Message) -> str:
    """The model's text besides its calls, malformed calls included."""
    lost = [error.raw for error in message.tool_errors if error.raw and error.raw not in message.text]
    return message.text + "".join(lost)
