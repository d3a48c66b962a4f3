from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import StoreError
from turnwise.core.types import (
    Completion,
    FinishReason,
    Invalid,
    Message,
    RewardPart,
    Scored,
    Signal,
    StopReason,
    Task,
    TextPart,
    ToolCall,
    ToolCallError,
    ToolRecord,
    Trajectory,
    TrajectoryGroup,
    Turn,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.store.sampled import digest_tokens, spell_versions, token_versions
from turnwise.store.trajectories import load_arrays, load_groups, load_rows, save_group_batch

# Any code point, halves of surrogate pairs included: tools return what they like.
texts = st.text(st.characters(), max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
calls = st.builds(ToolCall, id=texts, name=texts, arguments=texts)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.lists(st.builds(TextPart, text=texts), max_size=2).map(tuple),
    reasoning=st.none() | texts,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_errors=st.lists(st.builds(ToolCallError, kind=st.just("bad_json"), raw=texts, message=texts), max_size=1).map(
        tuple
    ),
    tool_call_id=st.none() | texts,
    name=st.none() | texts,
)
rewards = st.builds(Invalid, reason=texts, retryable=st.booleans()) | st.builds(
    Scored, total=numbers, parts=st.lists(st.builds(RewardPart, name=texts, value=numbers), max_size=2).map(tuple)
)


@st.composite
def turns(draw: st.DrawFn, index: int) -> Turn:
    ids = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4))

    def per_token(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[list[float]]:
        return st.lists(numbers, min_size=len(ids), max_size=len(ids))

    versions = draw(st.none() | per_token(st.integers(0, 2)))
    full_logprobs = draw(st.none() | per_token(st.floats(width=32)))
    return Turn(
        parent=draw(st.none() | st.integers(0, index - 1)) if index else None,
        context_ids=to_ids(draw(st.lists(st.integers(0, 2**31 - 1), max_size=4))),
        completion=Completion(
            token_ids=to_ids(ids),
            logprobs=to_floats(draw(st.lists(st.floats(width=32), min_size=len(ids), max_size=len(ids)))),
            finish_reason=draw(st.sampled_from(FinishReason)),
            version_first=draw(st.integers(0, 9)) if versions is None else versions[0],
            version_last=draw(st.integers(0, 9)) if versions is None else versions[-1],
            versions=None if versions is None else to_ids(versions),
            full_logprobs=None if full_logprobs is None else to_floats(full_logprobs),
        ),
        message=draw(messages),
        observations=tuple(draw(st.lists(messages, max_size=1))),
        tool_records=tuple(
            draw(
                st.lists(
                    st.builds(ToolRecord, call=calls, observation=texts, error=st.none() | texts, seconds=numbers),
                    max_size=1,
                )
            )
        ),
        signals=tuple(draw(st.lists(st.builds(Signal, name=texts, value=numbers), max_size=1))),
        state=draw(st.none() | texts),
        engine_s=draw(numbers),
        environment_s=draw(numbers),
    )


@st.composite
def batches(draw: st.DrawFn) -> list[TrajectoryGroup]:
    groups = []
    for g in range(draw(st.integers(0, 2))):
        task = Task(
            environment=draw(texts),
            prompt=tuple(draw(st.lists(messages, max_size=2))),
            payload={"k": draw(texts)},
            id=f"t{g}",
        )
        trajectories = tuple(
            Trajectory(
                task_id=task.id,
                group_id=f"g{g}",
                member=member,
                turns=tuple(draw(turns(index)) for index in range(draw(st.integers(0, 3)))),
                stop=draw(st.sampled_from(StopReason)),
                reward=draw(rewards),
                error=draw(st.none() | texts),
                attempt=draw(st.integers(0, 2)),
            )
            for member in range(draw(st.integers(1, 2)))
        )
        groups.append(TrajectoryGroup(task=task, group_id=f"g{g}", trajectories=trajectories))
    return groups


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def assert_equal(found: list[TrajectoryGroup], expected: list[TrajectoryGroup]) -> None:
    plain = ("parent", "message", "observations", "tool_records", "signals", "state", "engine_s", "environment_s")
    for a, b in zip(found, expected, strict=True):
        assert (a.task, a.group_id) == (b.task, b.group_id)
        for x, y in zip(a.trajectories, b.trajectories, strict=True):
            for name in ("task_id", "group_id", "member", "stop", "reward", "error", "attempt"):
                assert getattr(x, name) == getattr(y, name), name
            for s, t in zip(x.turns, y.turns, strict=True):
                for name in plain:
                    assert getattr(s, name) == getattr(t, name), name
                c, d = s.completion, t.completion
                assert (c.finish_reason, c.version_first, c.version_last) == (
                    d.finish_reason,
                    d.version_first,
                    d.version_last,
                )
                assert same_bits(s.context_ids, t.context_ids)
                assert same_bits(c.token_ids, d.token_ids)
                assert same_bits(c.logprobs, d.logprobs)
                spelled = [None if v is None else v.tolist() for v in (c.versions, spell_versions(d))]
                assert spelled[0] == spelled[1], "versions that are all the first's are not spelled out"
                assert (c.full_logprobs is None) == (d.full_logprobs is None)
                assert c.full_logprobs is None or d.full_logprobs is None or same_bits(c.full_logprobs, d.full_logprobs)
                assert digest_tokens(x) == digest_tokens(y)


@settings(max_examples=50, deadline=None)
@given(groups=batches(), data=st.data())
def test_what_is_read_equals_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, groups: list[TrajectoryGroup], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("batch")
    advantages = {}
    for trajectory in itertools.chain.from_iterable(group.trajectories for group in groups):
        if data.draw(st.booleans()):
            advantages[trajectory.group_id, trajectory.member] = [
                to_floats(np.arange(len(turn.completion.token_ids)) - 0.1) if data.draw(st.booleans()) else None
                for turn in trajectory.turns
            ]
    save_group_batch(folder, "step_000001", groups, advantages=advantages, decode=None)
    found, credit = load_groups(folder, "step_000001")
    assert_equal(found, groups)
    assert credit.keys() == advantages.keys()
    for key, arrays in advantages.items():
        for a, b in zip(credit[key], arrays, strict=True):
            assert (a is None and b is None) or (a is not None and b is not None and same_bits(a, b))


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
        task_id=task.id,
        group_id="g",
        member=0,
        turns=(turn(None, [1, 2], [3]), turn(0, [4], [5, 6])),
        stop=StopReason.DONE,
        reward=Scored(total=1.0),
    )
    return TrajectoryGroup(task=task, group_id="g", trajectories=(trajectory,))


def test_arrays_are_flat_and_one_number_covers_the_sampled_tokens_only(tmp_path: Path) -> None:
    save_group_batch(tmp_path, "s", [make_group()], advantages={("g", 0): 2.0}, decode=None)
    arrays = load_arrays(tmp_path, "s")
    assert arrays["token_ids"].tolist() == [1, 2, 3, 4, 5, 6]
    assert arrays["loss_mask"].tolist() == [False, False, True, False, True, True]
    assert arrays["logprobs"].tolist() == [0, 0, -0.5, 0, -0.5, -0.5]
    assert arrays["advantages"].tolist() == [0, 0, 2, 0, 2, 2]
    assert arrays["turn_index"].tolist() == [0, 0, 0, 1, 1, 1]


def test_text_and_pieces_are_written_where_asked(tmp_path: Path) -> None:
    save_group_batch(
        tmp_path,
        "s",
        [make_group()],
        advantages=None,
        decode=lambda ids: "".join(chr(96 + i) for i in ids),
        with_pieces=True,
    )
    (row,) = load_rows(tmp_path, "s")
    second = row["turns"][1]
    assert (second["context_text"], second["completion_text"], second["completion_pieces"]) == ("d", "ef", ["e", "f"])
    assert row["has_credit"] is None


def test_advantages_that_do_not_fit_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\[1, 1\] values per turn, the trajectory sampled \[1, 2\]"):
        save_group_batch(
            tmp_path, "s", [make_group()], advantages={("g", 0): [to_floats([1]), to_floats([1])]}, decode=None
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".npz", ".jsonl"])
def test_damage_is_named(tmp_path: Path, suffix: str) -> None:
    save_group_batch(tmp_path, "s", [make_group()], advantages=None, decode=None)
    path = tmp_path / f"s{suffix}"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"{}\n" if suffix == ".jsonl" else b"PK"):
        path.write_bytes(damaged)
        if suffix == ".jsonl" and not damaged:
            continue  # an empty batch is a batch
        with pytest.raises(StoreError, match=rf"s\{suffix} cannot be read"):
            load_groups(tmp_path, "s")
    path.unlink()
    with pytest.raises(StoreError, match=rf"s\{suffix} cannot be read"):
        load_groups(tmp_path, "s")


def group_of(completion: Completion) -> TrajectoryGroup:
    turn = Turn(parent=None, context_ids=to_ids([1]), completion=completion, message=text_message("assistant", ""))
    task = Task(environment="none", prompt=(), payload={}, id="t")
    trajectory = Trajectory(
        task_id="t", group_id="g", member=0, turns=(turn,), stop=StopReason.DONE, reward=Scored(total=1.0)
    )
    return TrajectoryGroup(task=task, group_id="g", trajectories=(trajectory,))


@pytest.mark.parametrize(("last", "expected"), [(3, [3, 3]), (4, None)])
def test_a_batch_from_before_versions_per_token_is_read(tmp_path: Path, last: int, expected: list[int] | None) -> None:
    """One version for all tokens is known; of several nobody said which token is whose."""
    completion = Completion(
        token_ids=to_ids([5, 6]),
        logprobs=to_floats([-1, -2]),
        finish_reason=FinishReason.STOP,
        version_first=3,
        version_last=last,
    )
    group = group_of(completion)
    save_group_batch(tmp_path, "step_000001", [group], advantages=None, decode=None)
    with np.load(tmp_path / "step_000001.npz") as data:
        old = {name: data[name] for name in ("token_ids", "loss_mask", "logprobs", "advantages", "turn_index")}
    np.savez(tmp_path / "step_000001.npz", **old)
    rows = (tmp_path / "step_000001.jsonl").read_text()
    (tmp_path / "step_000001.jsonl").write_text(rows.replace(', "guided": false', ""))
    assert "guided" not in (tmp_path / "step_000001.jsonl").read_text()
    assert load_arrays(tmp_path, "step_000001").keys() == old.keys()
    [found], _ = load_groups(tmp_path, "step_000001")
    versions = token_versions(found.trajectories[0].turns[0].completion)
    assert (versions if versions is None else versions.tolist()) == expected
    assert digest_tokens(found.trajectories[0]) == digest_tokens(group.trajectories[0])
