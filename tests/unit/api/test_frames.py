"""Rows of trajectories for notebooks name pictures."""

from turnwise.api.frames import list_trajectory_rows
from turnwise.core.messages import ImagePart
from turnwise.core.types import Message, Task, TextPart, text_message
from turnwise.testing import make_group, make_trajectory, make_turn

PART = ImagePart(digest="ab" * 32, width=4, height=2)


def test_prompt_and_transcript_name_pictures() -> None:
    task = Task(environment="e", prompt=(Message(role="user", content=(TextPart(text="read "), PART)),), payload={})
    seen = Message(role="tool", content=(PART,))
    turn = make_turn([1], [2], message=text_message("assistant", "look"), observations=(seen,))
    [row] = list_trajectory_rows(make_group(make_trajectory(turn, task_id=task.id), task=task), {})
    name = "[picture 4x2 abababababab]"
    assert row["prompt"] == f"read {name}"
    assert row["transcript"] == f"user: read {name}\n\nassistant: look\n\ntool: {name}"
