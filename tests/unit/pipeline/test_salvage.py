"""A run folder that two processes wrote at once goes on from what can be proven of it."""

import shutil
from pathlib import Path

import pytest
from pipeline_world import Pace, World, WorldTrainer, make_config, sum_weights

from turnwise.core.errors import StoreError
from turnwise.runs.repair import mend_run
from turnwise.store.checkpoint_folder import latest_checkpoint
from turnwise.store.journal import read_journal
from turnwise.store.run_folder import RunFolder, to_line
from turnwise.store.salvage import find_problem

ASYNC = {"schedule": {"max_staleness": 2}}
LONG = {"train": {"steps": 8, "checkpoint_every": 2, "keep_checkpoints": 3}}


def sum_checkpoint(path: Path) -> dict[str, int]:
    trainer = WorldTrainer(Pace())
    trainer.load(path)
    return sum_weights(trainer.weights)


def live_until(world: World, step: int) -> None:
    """A run that ends when it has taken a step."""
    whole = world.config
    world.config = whole.model_copy(update={"train": whole.train.model_copy(update={"steps": step})})
    world.live()
    world.config = whole


def write_twice(tmp_path: Path, *, shared: int = 3) -> World:
    """A run that two processes wrote from step `shared` on: lines of both in one file, groups and checkpoints of
    whoever came last."""
    world = World(path=tmp_path / "run", config=make_config(**LONG, **ASYNC))
    live_until(world, shared)
    other = tmp_path / "other"
    shutil.copytree(world.path, other)
    twin = World(path=other, config=world.config, pace=Pace(seed=9, token_s=0.003))
    world.live()
    twin.live()
    for name in ("journal.jsonl", "ledger.jsonl", "metrics.jsonl", "events.jsonl"):
        ours, theirs = ((path / name).read_bytes().splitlines(keepends=True) for path in (world.path, other))
        both = [line for pair in zip(ours, theirs, strict=False) for line in dict.fromkeys(pair)]
        lines = both + (ours[len(theirs) :] or theirs[len(ours) :])
        (world.path / name).write_bytes(b"".join(lines))
    for folder in ("groups", "steps"):
        shutil.copytree(other / folder, world.path / folder, dirs_exist_ok=True)
    return world


def mend(world: World, *, is_asked: bool = False) -> list[str]:
    told: list[str] = []
    mend_run(RunFolder.open(world.path), is_asked=is_asked, tell=told.append, sum_weights=sum_checkpoint)
    return told


def check_whole(world: World) -> None:
    """It ends with every step trained and nothing for the audit to find."""
    world.live()
    assert max(read_journal(world.path).trained) == 8
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]


def test_a_run_that_two_processes_wrote_goes_on_and_audits_clean(tmp_path: Path) -> None:
    world = write_twice(tmp_path)
    assert find_problem(world.path) is not None
    with pytest.raises(StoreError, match=r"verify the checkpoint of step \d, but not that of step 8: .* --repair"):
        mend(world)
    [text] = mend(world, is_asked=True)
    assert text.startswith("repaired: ")
    assert find_problem(world.path) is None
    check_whole(world)
    assert list((world.path / "damaged").glob("*/journal.jsonl"))


def test_a_journal_with_a_doubled_tail_loses_nothing_and_needs_no_leave(tmp_path: Path) -> None:
    world = World(path=tmp_path / "run", config=make_config(**LONG))
    live_until(world, 5)
    before, checkpoint = read_journal(world.path), latest_checkpoint(world.path)
    for name in ("journal.jsonl", "ledger.jsonl", "metrics.jsonl"):
        lines = (world.path / name).read_bytes().splitlines(keepends=True)
        (world.path / name).write_bytes(b"".join([*lines, *lines[-4:], b'{"kind": "fini', b"shed}\n"]))
    mend(world)
    assert latest_checkpoint(world.path) == checkpoint
    assert read_journal(world.path) == before
    check_whole(world)


def test_of_two_rows_of_metrics_the_one_is_kept_whose_tokens_are_those_of_the_ledger(tmp_path: Path) -> None:
    """Two processes may have dropped different groups before the same step."""
    world = World(path=tmp_path / "run", config=make_config(**LONG))
    live_until(world, 6)
    right = next(row for row in world.read_lines("metrics.jsonl") if (row["phase"], row["step"]) == ("train", 4))
    other = right | {"rollout/sampled_tokens": right["rollout/sampled_tokens"] + 6}
    path = world.path / "metrics.jsonl"
    path.write_bytes(to_line(other) + path.read_bytes())
    journal = world.path / "journal.jsonl"
    journal.write_bytes(journal.read_bytes() + b"#" * 20 + b"\n" + journal.read_bytes().splitlines(keepends=True)[-1])
    mend(world)
    assert [row for row in world.read_lines("metrics.jsonl") if (row["phase"], row["step"]) == ("train", 4)] == [right]
    check_whole(world)


def test_a_sound_run_is_left_alone(tmp_path: Path) -> None:
    world = World(path=tmp_path / "run", config=make_config(**LONG))
    live_until(world, 3)
    files = {path: path.read_bytes() for path in world.path.rglob("*") if path.is_file()}
    assert mend(world) == []
    assert {path: path.read_bytes() for path in world.path.rglob("*") if path.is_file()} == files


def test_a_damaged_line_in_the_middle_goes_back_only_where_that_is_asked_for(tmp_path: Path) -> None:
    world = World(path=tmp_path / "run", config=make_config(**LONG))
    live_until(world, 6)
    path = world.path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    taken = next(i for i, line in enumerate(lines) if b'"taken", "step": 3' in line)
    lines[taken] = b"#" * 20 + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(StoreError, match=r"line \d+ is not JSON .* the checkpoint of step 2, but not that of step 6"):
        mend(world)
    assert path.read_bytes() == b"".join(lines), "a refusal changes nothing"
    mend(world, is_asked=True)
    check_whole(world)
    assert [p.name for p in (world.path / "damaged").glob("*/step_*")] != []


def test_a_run_of_which_nothing_is_proven_says_what_can_still_be_done(tmp_path: Path) -> None:
    world = write_twice(tmp_path)
    for path in (world.path / "checkpoints").glob("step_*/state.json"):
        path.write_text("{}")
    with pytest.raises(StoreError, match=r"verify no checkpoint of .* restore the files from a copy"):
        mend(world, is_asked=True)
