"""Runs in which several roles speak: what learns, what is dropped, what an audit finds; one role is as before."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from asking_worlds import WandererFamily
from pipeline_world import Pace, World, WorldRun, make_config, read_story

from turnwise.core.metrics import Metric
from turnwise.core.types import Trajectory, TrajectoryGroup
from turnwise.store.groups import GroupStore


@pytest.fixture(autouse=True)
def _forget_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here kills a process, so none waits for the disk."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


def test_one_role_and_one_conversation_give_the_tokens_and_the_ledger_of_before(tmp_path: Path) -> None:
    # The digest was made by the rollout loop that knew nothing but one conversation.
    config = make_config(rollout={"tasks_per_step": 6, "group_size": 3}, train={"steps": 1, "checkpoint_every": 1})
    world = World(path=tmp_path / "run", config=config)
    world.live()
    rows = [
        [line["draw"], line["role"], line["fate"], *(entry[:6] for entry in line["trajectories"])]
        for line in world.read_lines("ledger.jsonl")
    ]
    text = json.dumps(sorted(rows, key=lambda row: row[0]))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "d5789952fa688c34"


def make_world(path: Path, *, scripted: bool = False, pace: Pace | None = None) -> World:
    roles = {"second": "scripted:talker"} if scripted else {}
    config = make_config(rollout={"max_turns": 8}, train={"steps": 2})
    config = config.model_copy(update={"roles": roles})
    return World(path=path, config=config, family=WandererFamily(), pace=pace or Pace())


def test_several_roles_learn_from_one_batch_whatever_the_timing(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run")
    world.live()
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    assert report.tallies["rewards"].checked > 0
    lines = world.read_lines("ledger.jsonl")
    assert {(line["draw"], line["role"]) for line in lines} == {(d, r) for d in range(4) for r in ("first", "second")}
    assert all(line["fate"] == "trained" for line in lines)
    slow = make_world(tmp_path / "slow", pace=Pace(seed=5, token_s=0.001, environment_s=0.004))
    slow.live()
    assert read_story(slow) == read_story(world)


def test_tokens_of_a_role_that_does_not_learn_are_dropped_for_that_reason(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", scripted=True)
    world.live()
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    lines = {(line["draw"], line["role"]): line for line in world.read_lines("ledger.jsonl")}
    for draw in range(4):
        assert lines[draw, "first"]["fate"] == "trained"
        second = lines[draw, "second"]
        assert (second["fate"], second["trained"]) == ("not_learning", 0)
        assert second["dropped"] == ({"not_learning": second["sampled"]} if second["sampled"] else {})
    assert sum(line["sampled"] for (_, role), line in lines.items() if role == "second") > 0


def test_a_role_that_follows_speaks_with_the_present_weights_and_moves_none(tmp_path: Path) -> None:
    plain, world = make_world(tmp_path / "plain"), make_world(tmp_path / "run")
    world.config = world.config.model_copy(update={"roles": {"second": "follows"}})
    for each in (plain, world):
        each.live()
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    lines = world.read_lines("ledger.jsonl")
    seconds = [line for line in lines if line["role"] == "second"]
    assert all((line["fate"], line["trained"]) == ("not_learning", 0) for line in seconds)
    # The same weights say the same in the first step, and the role that learns is credited as before.
    entries = {
        each.path: [line["trajectories"] for line in each.read_lines("ledger.jsonl") if line["role"] == "first"]
        for each in (plain, world)
    }
    assert entries[plain.path][:2] == entries[world.path][:2]
    # Of every step the version is that of the weights.
    groups = [GroupStore(world.path).load(draw) for draw in range(4)]
    for group, version in zip(groups, [0, 0, 1, 1], strict=True):
        spoken = [t for t in group.trajectories if t.id.role == "second"]
        assert {turn.completion.version_last for t in spoken for turn in t.turns} <= {version}
        assert any(t.turns for t in spoken)


# ------------------------------------------------------------------------------------------------ planted faults


def plant(world: World, change: Callable[[TrajectoryGroup], TrajectoryGroup | None]) -> None:
    """Change the first stored group that can be changed, with a journal that fits."""
    store = GroupStore(world.path)
    for draw, record in world.journal.draws.items():
        group = store.load(draw, digest=record.digest)
        changed = change(group)
        if changed is not None:
            digest = store.save(changed, lambda tokens: "")
            journal = world.path / "journal.jsonl"
            journal.write_text(journal.read_text().replace(str(record.digest), digest))
            return
    raise AssertionError("no group can be changed like this")


def edit_member(group: TrajectoryGroup, old: Trajectory, new: Trajectory) -> TrajectoryGroup:
    return replace(group, trajectories=tuple(new if t is old else t for t in group.trajectories))


def swap_openings(group: TrajectoryGroup) -> TrajectoryGroup | None:
    """The messages of two conversations in each other's place."""
    for t in group.trajectories:
        if len(t.conversations) > 1 and t.conversations[0].messages != t.conversations[1].messages:
            first, second, *rest = t.conversations
            swapped = (replace(first, messages=second.messages), replace(second, messages=first.messages), *rest)
            return edit_member(group, t, replace(t, conversations=swapped))
    return None


def swap_conversations(group: TrajectoryGroup) -> TrajectoryGroup | None:
    """Two conversations under each other's name, tokens and all."""
    for t in group.trajectories:
        if len(t.conversations) > 1 and t.conversations[0].messages != t.conversations[1].messages:
            first, second, *rest = t.conversations
            named = (replace(first, name=second.name), replace(second, name=first.name), *rest)
            return edit_member(group, t, replace(t, conversations=named))
    return None


def move_to_another_role(group: TrajectoryGroup) -> TrajectoryGroup | None:
    """What one role said in one episode under the name of the other, and the reverse."""
    for t in group.trajectories:
        other = next(o for o in group.trajectories if o.id.member == t.id.member and o.id.role != t.id.role)
        if t.turns and other.turns:
            mine = replace(t, turns=other.turns, conversations=other.conversations)
            theirs = replace(other, turns=t.turns, conversations=t.conversations)
            return edit_member(edit_member(group, t, mine), other, theirs)
    return None


def move_under_another_turn(group: TrajectoryGroup) -> TrajectoryGroup | None:
    """A conversation that inherits, as if it had opened after an earlier reply of its caller."""
    for t in group.trajectories:
        for index, turn in enumerate(t.turns):
            parent = t.turns[turn.parent].parent if turn.parent is not None else None
            if parent is not None and turn.conversation != t.turns[turn.parent or 0].conversation:
                turns = (*t.turns[:index], replace(turn, parent=parent), *t.turns[index + 1 :])
                return edit_member(group, t, replace(t, turns=turns))
    return None


def start_from_nothing(group: TrajectoryGroup) -> TrajectoryGroup | None:
    """A conversation that inherits, recorded as one that does not."""
    for t in group.trajectories:
        for place, opening in enumerate(t.conversations):
            if opening.inherits:
                openings = (*t.conversations[:place], replace(opening, inherits=False), *t.conversations[place + 1 :])
                return edit_member(group, t, replace(t, conversations=openings))
    return None


def change_observation(group: TrajectoryGroup) -> TrajectoryGroup | None:
    """A conversation that goes on with something else than the environment said."""
    for t in group.trajectories:
        for index, turn in enumerate(t.turns):
            if turn.observations:
                message = replace(turn.observations[0], content=t.turns[0].message.content)
                turns = (*t.turns[:index], replace(turn, observations=(message,)), *t.turns[index + 1 :])
                return edit_member(group, t, replace(t, turns=turns))
    return None


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        (swap_openings, ["another opening than the environment gives", "does not extend what came before"]),
        (swap_conversations, ["another opening than the environment gives"]),
        (move_to_another_role, ["it is stored under role", "sampled tokens, the ledger"]),
        (move_under_another_turn, ["it does not follow the last reply of 'c0' before it opened"]),
        (start_from_nothing, ["it is stored as called by 'c0'", "its parent of another"]),
        (change_observation, ["is not what is on record", "does not extend what came before"]),
    ],
)
def test_an_audit_finds_what_was_planted(
    tmp_path: Path, change: Callable[[TrajectoryGroup], TrajectoryGroup | None], texts: list[str]
) -> None:
    world = make_world(tmp_path / "run")
    world.live()
    plant(world, change)
    found = " | ".join(str(breach) for breach in world.audit().breaches)
    for text in texts:
        assert text in found


def test_an_audit_finds_a_role_that_learned_against_the_recipe(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run")
    world.live()
    world.config = world.config.model_copy(update={"roles": {"second": "scripted:talker"}})
    found = " | ".join(str(breach) for breach in world.audit().breaches)
    assert "it is stored as learns=True, the recipe binds its role to 'scripted:talker'" in found


# ------------------------------------------------------------------------------------------------ the past


class StopsAfter(WorldRun):
    """A run that ends after a step, before it is recorded as a checkpoint."""

    last = 3

    async def _after_step(self, step: int) -> dict[str, Metric]:
        if step == self.last:
            raise KeyboardInterrupt
        return await super()._after_step(step)


def make_past(path: Path, choice: str) -> World:
    config = make_config(
        rollout={"max_turns": 8, "tasks_per_step": 3},
        train={"steps": 6, "checkpoint_every": 2, "keep_checkpoints": 1},
    )
    config = config.model_copy(update={"roles": {"second": f"past:{choice}"}})
    return World(path=path, config=config, family=WandererFamily(), pace=Pace(token_s=0, environment_s=0, step_s=0))


def list_speakers(world: World) -> dict[int, set[int]]:
    """The snapshots that spoke for the second role in every draw."""
    store = GroupStore(world.path)
    return {
        draw: {
            turn.completion.version_last
            for t in store.load(draw).trajectories
            if t.id.role == "second"
            for turn in t.turns
        }
        for draw in store.list_draws()
    }


@pytest.mark.parametrize("choice", ["latest", "uniform", "wins"])
def test_the_past_of_a_run_speaks_and_a_run_that_was_stopped_draws_the_same(tmp_path: Path, choice: str) -> None:
    world = make_past(tmp_path / "whole", choice)
    world.live()
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    assert report.tallies["logprobs"].checked > sum(
        line["sampled"] for line in world.read_lines("ledger.jsonl") if line["role"] == "first" and line["step"] == 1
    )
    speakers = list_speakers(world)
    assert all(len(spoken) <= 1 for spoken in speakers.values())
    spoken = [next(iter(each)) for _, each in sorted(speakers.items()) if each]
    if choice == "latest":
        assert spoken == sorted(spoken)
        assert set(spoken) == {0, 2, 4}
    else:
        assert spoken != sorted(spoken)
    assert all(line["trained"] == 0 for line in world.read_lines("ledger.jsonl") if line["role"] == "second")
    kept = sorted(path.name for path in (world.path / "checkpoints").iterdir())
    every = ["step_000000", "step_000002", "step_000004", "step_000006"]
    assert kept == (["step_000000", "step_000006"] if choice == "latest" else every)
    stopped = make_past(tmp_path / "stopped", choice)
    stopped.run_class = StopsAfter
    with pytest.raises(KeyboardInterrupt):
        stopped.live()
    stopped.run_class = WorldRun
    stopped.live()
    assert read_story(stopped) == read_story(world)
    assert list_speakers(stopped) == speakers


def test_an_audit_finds_a_snapshot_that_did_not_exist_yet(tmp_path: Path) -> None:
    world = make_past(tmp_path / "run", "uniform")
    world.live()

    def age(group: TrajectoryGroup) -> TrajectoryGroup | None:
        for t in group.trajectories:
            if t.id.role == "second" and t.turns:
                completion = replace(t.turns[0].completion, version_first=4, version_last=4)
                turns = (replace(t.turns[0], completion=completion), *t.turns[1:])
                return edit_member(group, t, replace(t, turns=turns))
        return None

    plant(world, age)
    found = " | ".join(str(breach) for breach in world.audit().breaches)
    assert "snapshot 4 speaks, and the group was opened when there were [0]" in found
