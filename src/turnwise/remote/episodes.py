"""Attempts and episodes as messages: plain data in the form of the group store."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.core.errors import EngineError, StoreError
from turnwise.core.messages import list_images
from turnwise.core.pictures import Pictures
from turnwise.core.types import Draw, Episode, StopReason, TrajectoryGroup
from turnwise.pictures.pixels import with_pixels
from turnwise.rollout.attempt import Attempt
from turnwise.store.rows import task_from_json, task_to_json
from turnwise.store.trajectories import ARRAY_TYPES, OPTIONAL_ARRAYS, build_groups, flatten_groups

SOURCE = Path("the answer of a rollout process")


def encode_attempt(attempt: Attempt, pictures: Pictures) -> dict[str, Any]:
    """Everything that an episode depends on besides the recipe; the pixels of its task's pictures go through the run's
    store. Raises StoreError as `Pictures.put` does."""
    draw = attempt.draw
    known = [part for part in list_images(draw.task.prompt) if part.pixels is not None]
    for part in known:
        pictures.put(part)
    return {
        "draw": {"index": draw.index, "attempt": draw.attempt, "task": task_to_json(draw.task)},
        "pictures": [part.digest for part in known],
        "member": attempt.member,
        "number": attempt.number,
        "version": attempt.version,
        "scope": attempt.scope,
    }


def decode_attempt(fields: Mapping[str, Any], pictures: Pictures) -> Attempt:
    """The attempt that `encode_attempt` was given. Raises StoreError as `Pictures.read` does."""
    draw, known = fields["draw"], set(fields["pictures"])
    task = task_from_json(draw["task"])
    prompt = (
        with_pixels(message, pictures) if known.issuperset(part.digest for part in message.images) else message
        for message in task.prompt
    )
    task = replace(task, prompt=tuple(prompt))
    return Attempt(
        draw=Draw(index=draw["index"], attempt=draw["attempt"], task=task),
        member=fields["member"],
        number=fields["number"],
        version=fields["version"],
        scope=fields["scope"],
    )


def encode_episode(episode: Episode) -> dict[str, Any]:
    """An episode as a message, without its attempt."""
    group = TrajectoryGroup(draw=episode.draw, trajectories=episode.trajectories)
    arrays, rows = flatten_groups([group], decode=None)
    encoded = {name: base64.b64encode(array.tobytes()).decode() for name, array in arrays.items()}
    return {"arrays": encoded, "rows": rows, "stop": episode.stop.value}


def decode_episode(fields: Mapping[str, Any], attempt: Attempt) -> Episode:
    """The episode of `attempt`. Raises EngineError if the answer is malformed."""
    try:
        arrays = {
            name: np.frombuffer(base64.b64decode(fields["arrays"][name]), kind).copy()
            for name, kind in ARRAY_TYPES.items()
            if name in fields["arrays"] or name not in OPTIONAL_ARRAYS
        }
        [group] = build_groups(fields["rows"], arrays, source=SOURCE)
    except (StoreError, ValueError, KeyError) as cause:
        raise EngineError(f"cannot read {SOURCE} for {attempt.id}: {cause}") from cause
    wrong = [str(t.id) for t in group.trajectories if (t.id.draw, t.id.member, t.id.attempt) != _key(attempt)]
    if wrong:
        raise EngineError(f"{SOURCE} for {attempt.id} holds {wrong[0]}")
    return Episode(
        draw=attempt.draw,
        member=attempt.member,
        trajectories=group.trajectories,
        stop=StopReason(fields["stop"]),
    )


def _key(attempt: Attempt) -> tuple[int, int, int]:
    return attempt.id.draw, attempt.id.member, attempt.id.attempt
