"""Running baselines of self-play in whole runs: one per role and environment, the same bits in any timing and after a
restart."""

import json
from pathlib import Path
from typing import Any

import pytest
from asking_worlds import WandererFamily
from pipeline_world import Pace, World, make_config, read_story

from turnwise.environments.mixture import Member, MixedFamily


@pytest.fixture(autouse=True)
def _forget_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here kills a process, so none waits for the disk."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


class TwoGames(MixedFamily):
    """Two families whose roles have the same names."""

    def __init__(self) -> None:
        members = {name: Member(family=WandererFamily(), weight=1.0) for name in ("left", "right")}
        super().__init__(members)


def make_world(path: Path, *, steps: int = 4, family: Any = None, pace: Pace | None = None) -> World:
    config = make_config(rollout={"max_turns": 8}, train={"steps": steps}, credit={"method": "rae"})
    return World(path=path, config=config, family=family or WandererFamily(), pace=pace or Pace())


def read_baselines(world: World, step: int) -> dict[str, float]:
    state = json.loads((world.path / "checkpoints" / f"step_{step:06d}" / "state.json").read_text())
    baselines: dict[str, float] = state["counters"]["credit"]["baselines"]
    return baselines


def test_the_same_role_of_two_environments_has_two_baselines(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", family=TwoGames())
    world.live()
    baselines = read_baselines(world, 4)
    assert set(baselines) == {"left/first", "left/second", "right/first", "right/second"}
    assert len(set(baselines.values())) == 4


def test_baselines_do_not_depend_on_who_was_done_first(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run")
    world.live()
    slow = make_world(tmp_path / "slow", pace=Pace(seed=5, token_s=0.001, environment_s=0.004))
    slow.live()
    assert read_story(slow) == read_story(world)
    assert read_baselines(slow, 4) == read_baselines(world, 4)


def test_a_run_that_goes_on_has_the_bits_of_one_that_never_stopped(tmp_path: Path) -> None:
    whole = make_world(tmp_path / "whole")
    whole.live()
    make_world(tmp_path / "cut", steps=2).live()
    resumed = make_world(tmp_path / "cut")
    resumed.live()
    assert resumed.sums() == whole.sums()
    assert read_baselines(resumed, 4) == read_baselines(whole, 4)


def test_without_its_baselines_it_would_not(tmp_path: Path) -> None:
    whole = make_world(tmp_path / "whole")
    whole.live()
    stopped = make_world(tmp_path / "cut", steps=2)
    stopped.live()
    folder = stopped.path / "checkpoints" / "step_000002"
    state = json.loads((folder / "state.json").read_text())
    state["counters"]["credit"]["baselines"] = {}
    (folder / "state.json").write_text(json.dumps(state))
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["state.json"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    resumed = make_world(tmp_path / "cut")
    resumed.live()
    assert resumed.sums() != whole.sums()
