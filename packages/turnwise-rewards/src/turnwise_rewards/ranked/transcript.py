"""An attempt as a judge reads it: everything that was said after the task, one message under the other."""

from __future__ import annotations

from turnwise.core.types import Trajectory
from turnwise.questions.prompts import show_message


def write_transcript(trajectory: Trajectory) -> str:
    """Return the replies, calls and results of an attempt in their order, without what opened its first conversation.

    A conversation that opens later begins with its name. Replies that nobody received are left out.
    """
    lines = []
    seen = {0}
    for turn in trajectory.turns:
        if not turn.is_received:
            continue
        if turn.conversation not in seen:
            seen.add(turn.conversation)
            opening = trajectory.conversations[turn.conversation]
            lines.append(f"[{opening.name}]")
            lines += [f"{message.role}: {show_message(message)}" for message in opening.messages]
        for message in (turn.message, *turn.observations):
            lines.append(f"{message.role}: {show_message(message)}")
    return "\n".join(lines)
