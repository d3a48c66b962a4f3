"""A curriculum in a whole run: what it draws is journaled, continued after a crash, and drawn again by the audit."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from crash_points import Crash, crash_at
from pipeline_world import Pace, World, WorldFamily, make_config, read_story

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import Split
from turnwise.core.types import Task, text_message
from turnwise.curriculum.sampler import Choice, OfferedTasks, TaskResult
from turnwise.store.groups import GroupStore

SAMPLERS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "difficulty": {"new": 0.4, "easy": 0.2, "hard": 0.2},
    "value": {},
    "progress": {"fast": 0.5, "slow": 0.1},
    "plr": {"capacity": 4},
}


@pytest.fixture(autouse=True)
def _forget_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


@dataclass(slots=True, kw_only=True)
class KindFamily(WorldFamily):
    """Every fourth task is rare."""

    broken: frozenset[int] = frozenset()

    def task(self, split: Split, index: int) -> Task:
        """Task `index`."""
        if index >= self.num_tasks:
            raise IndexError(index)
        if index in self.broken:
            raise ValueError("its row is empty")
        kind = "rare" if index % 4 == 3 else "common"
        prompt = (text_message("user", f"task {index} {split}"),)
        return Task(environment="world", prompt=prompt, payload={"index": index, "kind": kind})


def make_world(path: Path, sampler: str, *, family: Any = None, by: str = "kind", **sections: dict[str, Any]) -> World:
    curriculum = {"sampler": sampler, "by": by, "options": SAMPLERS.get(sampler, {})}
    config = make_config(curriculum=curriculum, **{"train": {"steps": 6}, **sections})
    return World(path=path, config=config, family=family or KindFamily())


def list_opened(world: World) -> list[tuple[int, str]]:
    opened: dict[int, tuple[int, str]] = {}
    for row in world.read_lines("journal.jsonl"):
        if row["kind"] == "opened":
            opened.setdefault(row["draw"], (row["task"], row.get("pool", "")))
    return [opened[draw] for draw in sorted(opened)]


def check_audit(world: World) -> int:
    """The number of draws that the audit made again."""
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    return report.tallies["curriculum"].checked


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_killed_run_draws_the_same_tasks(tmp_path: Path, sampler: str) -> None:
    whole = make_world(tmp_path / "whole", sampler)
    with crash_at(None) as counter:
        whole.live()
    assert check_audit(whole) == len(list_opened(whole)) == 12
    story = read_story(whole)
    for number in range(9, counter.num_passed, 29 if sampler == "difficulty" else 71):
        world = make_world(tmp_path / f"run{number}", sampler)
        with pytest.raises(Crash), crash_at(number):
            world.live()
        world.live()
        assert list_opened(world) == list_opened(whole), number
        assert read_story(world) == story, number


@pytest.mark.parametrize("sampler", ["difficulty", "plr"])
def test_late_results_are_taken_in_the_order_of_the_journal(tmp_path: Path, sampler: str) -> None:
    sections: dict[str, Any] = {"schedule": {"max_staleness": 2}, "rollout": {"dynamic_sampling": {"metric": "reward"}}}
    world = make_world(tmp_path / "run", sampler, **sections)
    with crash_at(60), pytest.raises(Crash):
        world.live()
    world.pace = Pace(seed=9)
    world.live()
    assert check_audit(world) == len(list_opened(world))


def test_no_task_is_played_twice_at_once(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", "plr", schedule={"max_staleness": 2}, train={"steps": 12})
    world.live()
    playing: dict[int, int] = {}
    for row in world.read_lines("journal.jsonl"):
        if row["kind"] == "opened":
            assert row["task"] not in playing.values()
            playing[row["draw"]] = row["task"]
        for draw in row.get("draws", ()):
            del playing[draw]
    assert max(Counter(task for task, _ in list_opened(world)).values()) > 1


def test_rare_kinds_are_drawn_as_often_as_common_ones(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", "uniform", train={"steps": 20})
    world.live()
    rare = sum(pool == "rare" for _, pool in list_opened(world))
    assert 12 <= rare <= 28  # 20 of 40 expected, deviation 3.2; the share in the split gives 10
    last = world.read_lines("metrics.jsonl")[-1]
    shares = [last.get(f"curriculum/kind_share_{kind}", 0.0) for kind in ("common", "rare")]
    assert sum(shares) == 1
    assert last["curriculum/kinds"] == sum(share > 0 for share in shares)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_split_that_ends_is_drawn_again(tmp_path: Path, sampler: str) -> None:
    world = make_world(tmp_path / "run", sampler, family=KindFamily(num_tasks=5), train={"steps": 10})
    world.live()
    drawn = Counter(task for task, _ in list_opened(world))
    assert sorted(drawn) == [0, 1, 2, 3, 4]
    check_audit(world)


def test_a_split_smaller_than_a_batch_has_no_task_left(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", "uniform", family=KindFamily(num_tasks=1))
    with pytest.raises(DataError, match="fewer than the 2 tasks of this recipe"):
        world.live()
    bad = KindFamily(num_tasks=2, broken=frozenset({1}))  # nobody knows that before it is built
    world = make_world(tmp_path / "bad", "uniform", family=bad, environment={"max_left_out": 0.5})
    with pytest.raises(DataError, match=r"curriculum\.sampler='uniform' has no task left for draw 1: of 1 tasks"):
        world.live()


def test_a_file_that_begins_again_offers_no_row_as_new(tmp_path: Path) -> None:
    @dataclass(slots=True, kw_only=True)
    class Circle(KindFamily):
        def task(self, split: Split, index: int) -> Task:
            return KindFamily.task(self, split, index % 5)

    world = make_world(tmp_path / "run", "difficulty", family=Circle(), train={"steps": 12})
    world.live()
    assert {task for task, _ in list_opened(world)} == {0, 1, 2, 3, 4}
    check_audit(world)


def test_tasks_that_cannot_be_made_are_left_out_once(tmp_path: Path) -> None:
    family = KindFamily(broken=frozenset({1, 7}))
    sections: dict[str, Any] = {"environment": {"max_left_out": 0.05}}
    whole = make_world(tmp_path / "whole", "uniform", family=family, **sections)
    whole.live()
    assert set(whole.journal.left_out) == {1, 7}
    assert not {task for task, _ in list_opened(whole)} & {1, 7}
    check_audit(whole)


def choose_third(offered: OfferedTasks, results: Any, luck: Any) -> Choice | None:
    """The third task over and over."""
    return Choice(pool="third", again=2) if offered.is_free(2) else Choice(pool="new")


def choose_taken(offered: OfferedTasks, results: dict[int, TaskResult], luck: Any) -> Choice | None:
    """What nobody offers."""
    return Choice(pool="third", again=2)


def test_a_function_of_ones_own_chooses(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", f"{__name__}:choose_third")
    world.live()
    assert list_opened(world)[:6] == [(0, "new"), (1, "new"), (2, "new"), (3, "new"), (2, "third"), (4, "new")]
    check_audit(world)
    wrong = make_world(tmp_path / "wrong", f"{__name__}:choose_taken")
    with pytest.raises(ConfigError, match="chose task 2, which was never drawn"):
        wrong.live()


def plant(world: World, draw: int, **changes: Any) -> None:
    lines = world.read_lines("journal.jsonl")
    for row in lines:
        if row["kind"] == "opened" and row["draw"] == draw:
            row.update(changes)
    (world.path / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))


def test_the_audit_finds_a_draw_that_the_sampler_did_not_make(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", "difficulty")
    world.live()
    draw, (task, _) = next((d, o) for d, o in enumerate(list_opened(world)) if o[1] != "new")
    plant(world, draw, pool="new")
    in_journal, drawn = world.audit().breaches
    assert "the journal has it drawn for 'new', the ledger for" in in_journal.text
    assert (drawn.check, drawn.draw) == ("curriculum", draw)
    assert f"it was for task {task} (new)" in drawn.text


def test_the_audit_finds_a_state_that_a_crash_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path / "run", "plr", train={"steps": 14, "checkpoint_every": 1})
    with crash_at(230), pytest.raises(Crash):
        world.live()
    monkeypatch.setattr("turnwise.curriculum.curriculum.Curriculum.load_state_dict", lambda self, state: None)
    world.live()
    monkeypatch.undo()
    assert {breach.check for breach in world.audit().breaches} == {"curriculum"}


def test_refills_by_value_are_drawn_beside_a_curriculum(tmp_path: Path) -> None:
    dynamic = {"metric": "reward", "max_batches": 3, "refill": "value"}
    world = make_world(tmp_path / "run", "difficulty", rollout={"dynamic_sampling": dynamic}, train={"steps": 10})
    world.live()
    pools = Counter(pool for _, pool in list_opened(world))
    assert pools["refill"]
    assert check_audit(world) == pools.total() - pools["refill"]


def test_a_checkpoint_where_a_pass_ends_repeats_and_skips_nothing(tmp_path: Path) -> None:
    # Four tasks are two steps; the checkpoint is written between two passes.
    whole = make_world(tmp_path / "whole", "uniform", by="nothing", family=KindFamily(num_tasks=4))
    whole.live()
    world = make_world(tmp_path / "run", "uniform", by="nothing", family=KindFamily(num_tasks=4))
    save, done = GroupStore.pack, 0

    def stop(self: GroupStore, find_settled: Any) -> None:
        nonlocal done
        save(self, find_settled)
        done += 1
        if done == 2:  # the one of the start is the first
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupStore, "pack", stop)
        with pytest.raises(Crash):
            world.live()
    assert len(list_opened(world)) == 4
    world.live()
    assert list_opened(world) == list_opened(whole)
    for start in (0, 4, 8):
        assert sorted(task for task, _ in list_opened(world)[start : start + 4]) == [0, 1, 2, 3]


def test_tasks_that_nobody_solves_leave_a_run_that_ends(tmp_path: Path) -> None:
    dynamic = {"dynamic_sampling": {"metric": "reward", "max_batches": 2}}
    world = make_world(tmp_path / "run", "difficulty", family=KindFamily(success=0.0), rollout=dynamic)
    world.live()
    assert all(draws == () for draws in world.journal.taken.values())
    assert Counter(pool for _, pool in list_opened(world)).keys() == {"new", "hard"}
    check_audit(world)
