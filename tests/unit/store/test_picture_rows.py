"""Pictures in stored rows: their digests, sizes and labels, and no pixels."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from turnwise.core.messages import Message, TextPart, without_pixels
from turnwise.core.types import Task, ToolCall, ToolRecord
from turnwise.pictures.pixels import to_part
from turnwise.store.rows import message_from_json, message_to_json
from turnwise.store.trajectories import load_groups, save_groups
from turnwise.testing.builders import make_group, make_trajectory, make_turn

PICTURE = to_part(np.zeros((2, 3, 3), np.uint8), label="a page")


def test_a_message_with_a_picture_comes_back_without_its_pixels() -> None:
    message = Message(role="user", content=(TextPart(text="a"), PICTURE, TextPart(text="b")))
    row = json.loads(json.dumps(message_to_json(message)))
    assert row["content"] == [
        {"text": "a"},
        {"image": PICTURE.digest, "width": 3, "height": 2, "label": "a page"},
        {"text": "b"},
    ]
    back = message_from_json(row)
    assert back == message
    assert back.images[0].pixels is None
    assert back.images[0].label == "a page"


def test_the_record_of_a_call_keeps_what_was_shown(tmp_path: Path) -> None:
    shown = without_pixels(Message(role="tool", content=(PICTURE, TextPart(text="seen")))).content
    record = ToolRecord(
        call=ToolCall(id="a", name="look", arguments="{}"), observation="seen", content=shown, error=None, seconds=0.0
    )
    plain = replace(record, content=())
    observed = Message(role="tool", content=shown, tool_call_id="a", name="look")
    turn = make_turn([1], [2], observations=(observed,), tool_records=(record, plain))
    task = Task(environment="made", prompt=(Message(role="user", content=(PICTURE,)),), payload={})
    save_groups(tmp_path, "step", [make_group(make_trajectory(turn, task_id=task.id), task=task)], decode=None)
    [group] = load_groups(tmp_path, "step")
    [back] = group.trajectories[0].turns
    assert back.tool_records == (record, plain)
    assert back.observations == (observed,)
    assert group.task == task
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if (PICTURE.pixels or b"?") in path.read_bytes()]


def test_tasks_differ_by_their_pictures() -> None:
    other = to_part(np.ones((2, 3, 3), np.uint8), label="a page")
    renamed = to_part(np.zeros((2, 3, 3), np.uint8), label="another name")
    ids = [
        Task(environment="made", prompt=(Message(role="user", content=(part,)),), payload={}).id
        for part in (PICTURE, other, renamed)
    ]
    assert ids[0] == ids[2] != ids[1]
