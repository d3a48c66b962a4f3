from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_groups import assert_equal, make_group

from turnwise.core.errors import StoreError
from turnwise.core.keys import Span
from turnwise.core.messages import ImagePart
from turnwise.core.types import (
    Completion,
    ConversationOpening,
    Discarded,
    Draw,
    DropReason,
    Ending,
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
    ToolSpec,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    TurnScores,
    to_experts,
    to_floats,
    to_ids,
)
from turnwise.store.trajectories import load_arrays, load_groups, load_rows, save_groups

# Any code point, halves of surrogate pairs included: tools return what they like.
texts = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
calls = st.builds(ToolCall, id=texts, name=texts, arguments=texts)
digests = st.sampled_from("abc").map(lambda letter: letter * 64)
pictures = st.builds(ImagePart, digest=digests, width=st.integers(1, 9), height=st.integers(1, 9), label=texts)
spans = st.builds(
    Span,
    start=st.integers(0, 9),
    length=st.integers(1, 9),
    digest=digests,
    offset=st.integers(0, 9),
    grid=st.none() | st.tuples(st.just(1), st.integers(1, 9), st.integers(1, 9)),
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.lists(st.builds(TextPart, text=texts) | pictures, max_size=2).map(tuple),
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
scores = st.builds(
    TurnScores,
    reward=st.none() | numbers,
    state_value=st.none() | numbers,
    process_score=st.none() | numbers,
    answer_prior=st.none() | numbers,
    answer_probability=st.none() | numbers,
    progress=st.none() | numbers,
    potential=st.none() | numbers,
)
endings = st.builds(
    Ending,
    turn=st.integers(0, 9),
    stop=st.sampled_from(StopReason),
    reward=rewards,
    kind=st.sampled_from(["leaf", "estimate"]),
)
openings = st.builds(
    ConversationOpening,
    name=texts,
    messages=st.lists(messages, max_size=2).map(tuple),
    tools=st.lists(
        st.builds(ToolSpec, name=texts, description=texts, parameters=st.dictionaries(texts, texts, max_size=1)),
        max_size=1,
    ).map(tuple),
)


Number = TypeVar("Number", int, float)


@st.composite
def turns(draw: st.DrawFn, index: int) -> Turn:
    ids = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4))

    def per_token(numbers: st.SearchStrategy[Number]) -> st.SearchStrategy[list[Number]]:
        return st.lists(numbers, min_size=len(ids), max_size=len(ids))

    versions = draw(st.none() | per_token(st.integers(0, 2)))
    full_logprobs = draw(st.none() | per_token(st.floats(width=32)))
    shape = draw(st.tuples(st.integers(len(ids), len(ids) + 4), st.integers(1, 2), st.integers(1, 2)))
    experts = draw(st.none() | st.binary(min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
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
            experts=None if experts is None else to_experts(np.frombuffer(experts, np.uint8).reshape(shape)),
        ),
        message=draw(messages),
        observations=tuple(draw(st.lists(messages, max_size=1))),
        images=tuple(draw(st.lists(spans, max_size=2))),
        tool_records=tuple(
            draw(
                st.lists(
                    st.builds(ToolRecord, call=calls, observation=texts, error=st.none() | texts, seconds=numbers),
                    max_size=1,
                )
            )
        ),
        scores=draw(scores),
        signals=tuple(draw(st.lists(st.builds(Signal, name=texts, value=numbers), max_size=1))),
        state=draw(st.none() | texts),
        conversation=draw(st.integers(0, 2)),
        engine_s=draw(numbers),
        environment_s=draw(numbers),
    )


@st.composite
def trajectories(draw: st.DrawFn, name: TrajectoryId) -> Trajectory:
    return Trajectory(
        id=name,
        task_id=draw(texts),
        turns=tuple(draw(turns(index)) for index in range(draw(st.integers(0, 3)))),
        stop=draw(st.sampled_from(StopReason)),
        reward=draw(rewards),
        error=draw(st.none() | texts),
        endings=tuple(draw(st.lists(endings, max_size=2))),
        conversations=tuple(draw(st.lists(openings, max_size=2))),
    )


@st.composite
def groups_of_trajectories(draw: st.DrawFn, index: int) -> TrajectoryGroup:
    task = Task(environment=draw(texts), prompt=tuple(draw(st.lists(messages, max_size=2))), payload={"k": draw(texts)})
    role = draw(st.sampled_from(["agent", "judge"]))
    names = [
        TrajectoryId(draw=index, member=member, attempt=draw(st.integers(0, 2)), role=role)
        for member in range(draw(st.integers(1, 4)))
    ]
    placed = [draw(trajectories(name)) for name in names]
    num_members = draw(st.integers(0, len(placed)))
    has_baseline = num_members < len(placed) and draw(st.booleans())
    discarded = placed[num_members + has_baseline :]
    return TrajectoryGroup(
        draw=Draw(index=index, task=task, attempt=draw(st.integers(0, 2))),
        trajectories=tuple(placed[:num_members]),
        version=draw(st.integers(0, 9)),
        role=role,
        baseline=placed[num_members] if has_baseline else None,
        discarded=tuple(Discarded(trajectory=t, reason=draw(st.sampled_from(DropReason))) for t in discarded),
    )


@st.composite
def batches(draw: st.DrawFn) -> list[TrajectoryGroup]:
    return [
        draw(groups_of_trajectories(index)) for index in draw(st.lists(st.integers(0, 99), max_size=2, unique=True))
    ]


@settings(max_examples=60, deadline=None)
@given(groups=batches())
def test_what_is_read_equals_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, groups: list[TrajectoryGroup]
) -> None:
    folder = tmp_path_factory.mktemp("batch")
    save_groups(folder, "heldout_000001", groups, decode=None)
    for a, b in zip(load_groups(folder, "heldout_000001"), groups, strict=True):
        assert_equal(a, b)


def test_a_picture_is_stored_by_digest_size_and_label_without_its_pixels(tmp_path: Path) -> None:
    part = ImagePart(digest="ab" * 32, width=2, height=1, label="a page", pixels=b"123456")
    span = Span(start=1, length=1, digest=part.digest, offset=4, grid=(1, 2, 3))
    group = make_group()
    [member] = group.trajectories
    turn = replace(member.turns[0], images=(span,), observations=(Message(role="tool", content=(part,)),))
    member = replace(member, turns=(turn, *member.turns[1:]))
    save_groups(tmp_path, "s", [replace(group, trajectories=(member,))], decode=None)
    [row] = load_rows(tmp_path, "s")
    assert row["turns"][0]["images"] == [[1, 1, "ab" * 32, 4, [1, 2, 3]]]
    assert "images" not in row["turns"][1], "a turn without pictures is stored as in runs that have none"
    [loaded] = load_groups(tmp_path, "s")
    first = loaded.trajectories[0].turns[0]
    assert first.images == (span,)
    [read] = first.observations[0].images
    assert (read, read.label, read.pixels) == (part, "a page", None)


def test_arrays_are_flat_and_logprobs_cover_the_sampled_tokens_only(tmp_path: Path) -> None:
    save_groups(tmp_path, "s", [make_group()], decode=None)
    arrays = load_arrays(tmp_path, "s")
    assert arrays["token_ids"].tolist() == [1, 2, 3, 4, 5, 6]
    assert arrays["loss_mask"].tolist() == [False, False, True, False, True, True]
    assert arrays["logprobs"].tolist() == [0, 0, -0.5, 0, -0.5, -0.5]
    assert arrays["versions"].tolist() == [-1, -1, 0, -1, 0, 0]
    assert arrays["turn_index"].tolist() == [0, 0, 0, 1, 1, 1]


def test_text_and_pieces_are_written_where_asked(tmp_path: Path) -> None:
    save_groups(tmp_path, "s", [make_group()], decode=lambda ids: "".join(chr(96 + i) for i in ids), with_pieces=True)
    (row,) = load_rows(tmp_path, "s")
    second = row["turns"][1]
    assert (second["context_text"], second["completion_text"], second["completion_pieces"]) == ("d", "ef", ["e", "f"])


def test_text_names_pictures_in_place_of_their_placeholders(tmp_path: Path) -> None:
    # Context a b | P P | c | P | d: the last place is a later piece of the same picture.
    part = ImagePart(digest="ab" * 32, width=2, height=1, label="page")
    spans = (Span(start=2, length=2, digest=part.digest), Span(start=5, length=1, digest=part.digest, offset=2))
    group = make_group()
    [member] = group.trajectories
    first = replace(member.turns[0], context_ids=to_ids([1, 2, 9, 9, 3, 9, 4]), images=spans)
    member = replace(member, turns=(first, *member.turns[1:]))
    task = Task(environment="e", prompt=(Message(role="user", content=(part,)),), payload={})
    group = replace(group, draw=replace(group.draw, task=task), trajectories=(member,))
    save_groups(tmp_path, "s", [group], decode=lambda ids: "".join(chr(96 + i) for i in ids))
    [row] = load_rows(tmp_path, "s")
    assert row["turns"][0]["context_text"] == "ab[picture 2x1 abababababab]cd"
    picture = {"image": part.digest, "width": 2, "height": 1, "label": "page"}
    assert row["turns"][0]["context_parts"] == [{"text": "ab"}, picture, {"text": "c"}, {"text": "d"}]
    assert (row["turns"][1]["context_text"], "context_parts" in row["turns"][1]) == ("d", False)


def test_every_line_says_where_its_trajectory_belongs(tmp_path: Path) -> None:
    [member] = make_group().trajectories
    baseline, late = (replace(member, id=replace(member.id, member=number)) for number in (1, 2))
    group = replace(
        make_group(), version=4, baseline=baseline, discarded=(Discarded(trajectory=late, reason=DropReason.LATE),)
    )
    save_groups(tmp_path, "s", [group], decode=None)
    rows = load_rows(tmp_path, "s")
    assert [(row["id"]["member"], row["place"], row["reason"]) for row in rows] == [
        (0, "member", None),
        (1, "baseline", None),
        (2, "discarded", "late"),
    ]
    assert rows[0]["group"] == {"index": 0, "draw": 3, "attempt": 0, "role": "agent", "version": 4}


def test_a_group_without_trajectories_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="draw 3 has no trajectories"):
        save_groups(tmp_path, "s", [replace(make_group(), trajectories=())], decode=None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".npz", ".jsonl"])
def test_damage_is_named(tmp_path: Path, suffix: str) -> None:
    save_groups(tmp_path, "s", [make_group()], decode=None)
    path = tmp_path / f"s{suffix}"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"{}\n" if suffix == ".jsonl" else b"PK"):
        path.write_bytes(damaged)
        if suffix == ".jsonl" and not damaged:
            continue  # a file without groups is a file
        with pytest.raises(StoreError, match=rf"cannot read .*s\{suffix}"):
            load_groups(tmp_path, "s")
    path.unlink()
    with pytest.raises(StoreError, match=rf"cannot read .*s\{suffix}"):
        load_groups(tmp_path, "s")
