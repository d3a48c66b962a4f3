"""A small group made by hand, the same for any draw, and what equal groups are."""

from dataclasses import replace

import numpy as np

from turnwise.core.sampled import digest_tokens, spell_versions
from turnwise.core.types import (
    Completion,
    Draw,
    FinishReason,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.store.trajectories import list_placed


def make_group() -> TrajectoryGroup:
    """P P | C, O | C C: two turns, ids 1 2 | 3, 4 | 5 6."""

    def turn(parent: int | None, context: list[int], ids: list[int]) -> Turn:
        completion = Completion(
            token_ids=to_ids(ids),
            logprobs=to_floats([-0.5] * len(ids)),
            finish_reason=FinishReason.STOP,
            version_first=0,
            version_last=0,
        )
        return Turn(
            parent=parent, context_ids=to_ids(context), completion=completion, message=text_message("assistant", "x")
        )

    task = Task(environment="e", prompt=(text_message("user", "q"),), payload={})
    trajectory = Trajectory(
        id=TrajectoryId(draw=3, member=0),
        task_id=task.id,
        turns=(turn(None, [1, 2], [3]), turn(0, [4], [5, 6])),
        stop=StopReason.DONE,
        reward=Scored(total=1.0),
    )
    return TrajectoryGroup(draw=Draw(index=3, task=task), trajectories=(trajectory,))


def group_of_draw(index: int) -> TrajectoryGroup:
    """`make_group` under the name of another draw."""
    group = make_group()
    trajectories = tuple(replace(t, id=replace(t.id, draw=index)) for t in group.trajectories)
    return replace(group, draw=Draw(index=index, task=group.task), trajectories=trajectories)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def assert_equal(a: TrajectoryGroup, b: TrajectoryGroup) -> None:
    for name in ("draw", "version", "role"):
        assert getattr(a, name) == getattr(b, name), name
    for (x, *place), (y, *other_place) in zip(list_placed(a), list_placed(b), strict=True):
        assert place == other_place
        for name in ("id", "task_id", "stop", "reward", "error", "endings", "conversations"):
            assert getattr(x, name) == getattr(y, name), name
        for s, t in zip(x.turns, y.turns, strict=True):
            assert_equal_turns(s, t)
        assert digest_tokens(x) == digest_tokens(y)


def assert_equal_turns(s: Turn, t: Turn) -> None:
    plain = ("parent", "message", "observations", "images", "tool_records", "scores", "signals", "state")
    for name in (*plain, "conversation", "engine_s", "environment_s"):
        assert getattr(s, name) == getattr(t, name), name
    c, d = s.completion, t.completion
    for name in ("finish_reason", "version_first", "version_last"):
        assert getattr(c, name) == getattr(d, name), name
    assert same_bits(s.context_ids, t.context_ids)
    assert same_bits(c.token_ids, d.token_ids)
    assert same_bits(c.logprobs, d.logprobs)
    spelled = [None if v is None else v.tolist() for v in (c.versions, spell_versions(d))]
    assert spelled[0] == spelled[1], "versions that are all the first's are not spelled out"
    assert (c.full_logprobs is None) == (d.full_logprobs is None)
    assert c.full_logprobs is None or d.full_logprobs is None or same_bits(c.full_logprobs, d.full_logprobs)
    assert (c.experts is None) == (d.experts is None)
    if c.experts is not None and d.experts is not None:
        assert c.experts.shape == d.experts.shape
        assert same_bits(c.experts, d.experts)
