"""Rows as tables, and trajectories as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from turnwise.core.messages import to_plain_text
from turnwise.core.types import Discarded, Message, Scored, Task, Trajectory, TrajectoryGroup
from turnwise.evaluation.summary import had_error, is_success

Table = Any
"""A pandas.DataFrame where pandas is installed (extra `frames`), else a list of dictionaries with the same keys."""


def to_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows as a data frame if pandas is installed, else unchanged."""
    try:
        import pandas
    except ImportError:
        return list(rows)
    return pandas.DataFrame(list(rows))


def list_trajectory_rows(group: TrajectoryGroup, first: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row per trajectory of a group, including discarded ones; each begins with the columns `first`."""
    for trajectory in group.trajectories:
        yield {**first, **_to_row(trajectory, group.task), "discarded": None}
    for discarded in group.discarded:
        yield {**first, **_to_row(discarded.trajectory, group.task), "discarded": _reason(discarded)}


def _reason(discarded: Discarded) -> str:
    return discarded.reason.value


def _to_row(trajectory: Trajectory, task: Task) -> dict[str, Any]:
    reward = trajectory.reward
    scored = isinstance(reward, Scored)
    opening = trajectory.conversations[0].messages if trajectory.conversations else task.prompt
    return {
        "draw": trajectory.id.draw,
        "member": trajectory.id.member,
        "attempt": trajectory.id.attempt,
        "role": trajectory.id.role,
        "task_id": trajectory.task_id,
        "environment": task.environment,
        "kind": task.payload.get("kind"),
        "prompt": "\n\n".join(map(to_plain_text, opening)),
        "reply": trajectory.turns[-1].message.text if trajectory.turns else "",
        "reward": reward.total if isinstance(reward, Scored) else None,
        "success": is_success(trajectory) if scored else None,
        "parts": {part.name: part.value for part in reward.parts} if isinstance(reward, Scored) else {},
        "invalid": None if isinstance(reward, Scored) else reward.reason,
        "stop": trajectory.stop.value,
        "error": trajectory.error,
        "turns": len(trajectory.turns),
        "sampled_tokens": trajectory.num_sampled_tokens,
        "tool_calls": trajectory.num_tool_calls,
        "tool_failed": had_error(trajectory),
        "transcript": _write_transcript(opening, trajectory),
    }


def _write_transcript(opening: Sequence[Message], trajectory: Trajectory) -> str:
    """The whole conversation, one paragraph per message, in the order of the turns."""
    messages = list(opening)
    for turn in trajectory.turns:
        messages += [turn.message, *turn.observations]
    return "\n\n".join(_write_message(message) for message in messages)


def _write_message(message: Message) -> str:
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    problems = [f"[{error.message}]" for error in message.tool_errors]
    thoughts = [f"({message.reasoning})"] if message.reasoning else []
    return f"{message.role}: " + " ".join([*thoughts, *filter(None, [to_plain_text(message)]), *calls, *problems])
