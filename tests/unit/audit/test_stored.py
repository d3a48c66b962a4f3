"""Checks of stored groups and turns alone: what they refuse, and what they leave alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from made_run import LONG, SHORT, double, make_config, make_group, make_materials, play

from turnwise.audit.breaches import Breach
from turnwise.audit.stored_groups import check_group
from turnwise.audit.stored_turns import check_endings, check_turns, has_order
from turnwise.core.paths import split_paths
from turnwise.core.types import (
    ConversationOpening,
    Discarded,
    DropReason,
    Ending,
    Scored,
    StopReason,
    Trajectory,
    TrajectoryGroup,
    to_floats,
    to_ids,
)
from turnwise.store.journal import DrawRecord
from turnwise.store.rows import task_to_json
from turnwise.store.trajectories import list_placed

RECORD = DrawRecord(draw=3, task_index=3, version=1, attempt=0, fate="taken", digest="d", step=2)
MATERIALS = make_materials(make_config())
GROUP = make_group(make_config(), 3, SHORT, LONG, ("no",), version=1, versions=[1])


def choose(*members: int, discarded: Sequence[int] = (), reason: DropReason = DropReason.OVERDRAWN) -> TrajectoryGroup:
    thrown = tuple(Discarded(trajectory=GROUP.trajectories[m], reason=reason) for m in discarded)
    return replace(GROUP, trajectories=tuple(GROUP.trajectories[m] for m in members), discarded=thrown)


def breaches(group: TrajectoryGroup, record: DrawRecord = RECORD, **changes: Any) -> list[Breach]:
    rows = [{"task": task_to_json(group.task)} for _ in list_placed(group)]
    return check_group(group, record, rows, replace(MATERIALS, **changes))


@pytest.mark.parametrize(
    ("group", "changes"),
    [
        (choose(0, 1), {"num_started": 2}),
        (choose(0, 2, discarded=[1]), {}),
        (choose(1, 2), {}),
        (choose(1), {"cuts_late": True}),
        (choose(1, discarded=[0], reason=DropReason.LATE), {"cuts_late": True, "num_started": 2}),
    ],
)
def test_these_members_are_complete(group: TrajectoryGroup, changes: dict[str, Any]) -> None:
    assert breaches(group, **changes) == []


@pytest.mark.parametrize(
    ("group", "changes"),
    [
        (choose(0, 2), {"num_started": 2}),
        (choose(1), {}),
        (choose(1, 0), {}),
        (choose(1, 1), {}),
        (choose(0, 1, 2), {"cuts_late": True}),
    ],
)
def test_these_members_are_not(group: TrajectoryGroup, changes: dict[str, Any]) -> None:
    assert any("it has members" in str(breach) for breach in breaches(group, **changes))


def test_a_dropped_group_may_be_incomplete() -> None:
    dropped = replace(RECORD, fate="dropped", reason=DropReason.LATE)
    assert breaches(choose(1), dropped) == []
    assert str(breaches(choose(1))[0]).startswith("[groups] step 2, draw 3: it has members [1], expected 2 of 0 to 2")


def test_the_journal_opened_the_stored_group() -> None:
    [breach] = breaches(choose(0, 1), replace(RECORD, attempt=1))
    assert "the store has draw, attempt and version (3, 0, 1), the journal (3, 1, 1)" in str(breach)
    other = replace(GROUP.trajectories[1], id=replace(GROUP.trajectories[1].id, role="judge"))
    [breach] = breaches(replace(GROUP, trajectories=(GROUP.trajectories[0], other)))
    assert "trajectory 3/1/judge: it is stored in the group of draw 3 and role 'agent'" in str(breach)


def make_tree() -> Trajectory:
    """Turns 0 1 2, and a branch 3 after turn 0: paths 0 1 2 and 0 3."""
    trajectory = play(double)
    branch = replace(trajectory.turns[2], parent=0, context_ids=trajectory.turns[1].context_ids)
    ending = Ending(turn=3, stop=StopReason.DONE, reward=Scored(total=0.0), kind="leaf")
    return replace(trajectory, turns=(*trajectory.turns, branch), endings=(ending,))


def problems(trajectory: Trajectory) -> list[str]:
    assert has_order(trajectory)
    problems = [*check_endings(None, trajectory)]
    problems += [breach for path in split_paths(trajectory) for breach in check_turns(None, path.trajectory)]
    return [breach.text for breach in problems]


def test_a_tree_is_checked_path_by_path() -> None:
    tree = make_tree()
    assert problems(tree) == []
    [ending] = tree.endings
    for wrong in ([replace(ending, turn=1)], [ending, ending], [ending, replace(ending, turn=2)]):
        assert any("all but one need one" in text for text in problems(replace(tree, endings=tuple(wrong))))


@pytest.mark.parametrize("role", ["agent", "buyer"])
def test_only_where_others_spoke_may_a_role_end_without_a_word_of_its_own(role: str) -> None:
    trajectory = GROUP.trajectories[0]
    named = replace(trajectory, id=replace(trajectory.id, role=role))
    for silent, text in (
        (replace(named, turns=()), "no turn is stored"),
        (replace(named, stop=StopReason.MAX_TURN_TOKENS), "the last reply was not cut off"),
    ):
        assert text in str(check_turns(None, silent))
        assert text not in str(check_turns(None, silent, has_others=True))


def test_a_conversation_may_end_with_an_observation_that_a_new_one_answers() -> None:
    """Compaction: the second conversation starts after the tool's answer."""
    trajectory = play(double)
    opening = ConversationOpening(name="main", messages=())
    root = replace(trajectory.turns[2], parent=None, conversation=1)
    episode = replace(trajectory, turns=(*trajectory.turns[:2], root), conversations=(opening, opening))
    assert problems(episode) == []
    assert problems(replace(episode, conversations=(opening,))) == [
        "turn 2 is of conversation 1, the store has 1 of them"
    ]
    moved = replace(root, parent=1)
    assert any(
        "its parent of another" in text for text in problems(replace(episode, turns=(*episode.turns[:2], moved)))
    )
    cut = replace(trajectory, turns=trajectory.turns[:2])
    assert any("is never answered" in text for text in problems(cut))
    assert problems(replace(cut, stop=StopReason.MAX_TURNS)) == []


def test_a_grammar_only_takes_tokens_away() -> None:
    trajectory = play(double, ("ab",))
    [turn] = trajectory.turns
    for full, wrong in ([-1.5, -3.0], False), ([-0.1, -3.0], True):
        completion = replace(turn.completion, logprobs=to_floats([-1, -2]), full_logprobs=to_floats(full))
        texts = problems(replace(trajectory, turns=(replace(turn, completion=completion),)))
        assert any("likelier without the grammar" in text for text in texts) == wrong


def test_versions_per_token_fit_the_first_and_the_last() -> None:
    trajectory = play(double, ("ab",), versions=[1, 2])
    [turn] = trajectory.turns
    assert problems(trajectory) == []
    completion = replace(turn.completion, versions=to_ids([1, 1]))
    [text] = problems(replace(trajectory, turns=(replace(turn, completion=completion),)))
    assert text == "turn 0 was sampled by weight versions 1..2, its tokens by 1..1"
