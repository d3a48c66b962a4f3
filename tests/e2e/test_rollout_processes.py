"""Rollouts in processes of their own: the same run in every bit, whatever happens to the processes."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_rows import read_rows

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, EngineError
from turnwise.core.types import Draw, DropReason, StopReason, TrajectoryGroup
from turnwise.models.checksums import compute_checksums
from turnwise.models.staging import Staging
from turnwise.remote.pool import RolloutPool
from turnwise.rollout.workers import GroupStream
from turnwise.runs.audit import audit_run
from turnwise.runs.build import System, build_system
from turnwise.runs.train import run_train

RECIPES = Path(__file__).parents[2] / "recipes"
BENCHMARKS = RECIPES.parent / "benchmarks"
SMALL = [
    "tokenizer.num_texts=200",
    "sft.steps=3",
    "sft.num_demonstrations=32",
    "train.steps=2",
    "evaluate.tasks=4",
    "evaluate.controls={}",
    "rollout.tasks_per_step=2",
    "rollout.group_size=3",
    "engine.max_concurrency=8",
]


def recipe(tmp_path: Path, *overrides: str) -> RunConfig:
    return load_config([RECIPES / "search_r1" / "tiny.toml"], [*SMALL, f"run.output={tmp_path}", *overrides])


@pytest.mark.slow
def test_rollout_processes_write_the_run_that_one_process_writes(tmp_path: Path) -> None:
    one = run_train(recipe(tmp_path / "one"), resume=None, display=False)
    other = run_train(recipe(tmp_path / "two", "rollout.num_workers=2"), resume=None, display=False)
    assert read_rows(one) == read_rows(other)
    assert (one / "ledger.jsonl").read_text() == (other / "ledger.jsonl").read_text()
    assert audit_run(other).to_json()["ok"]


@asynccontextmanager
async def open_pool(tmp_path: Path, *overrides: str) -> AsyncIterator[tuple[System, RolloutPool]]:
    system = build_system(recipe(tmp_path, "rollout.num_workers=1", *overrides), training=True)
    assert system.rollouts is not None
    try:
        yield system, system.rollouts
    finally:
        await system.close()


async def play(system: System, *, here: bool, index: int = 0) -> TrajectoryGroup:
    """A group of three, in this process or in another."""
    worker = system.worker("train")
    worker = replace(worker, elsewhere=None) if here else worker
    [group] = await worker.run_groups([Draw(index=index, task=system.family.task("train", index))], group_size=3)
    return group


def tokens(group: TrajectoryGroup) -> list[tuple[str, list[int], list[float]]]:
    return [
        (str(t.id), turn.completion.token_ids.tolist(), turn.completion.logprobs.tolist())
        for t in group.trajectories
        for turn in t.turns
    ]


def test_a_process_plays_what_is_published_and_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        async with open_pool(tmp_path) as (system, pool):
            first = await play(system, here=False)
            assert tokens(first) == tokens(await play(system, here=True))
            with torch.no_grad():
                for parameter in system.model.parameters():
                    parameter.mul_(1.25)
            await pool.pause()
            assert await pool.adopt(1) == compute_checksums(system.model)
            await pool.resume()
            await system.engine.engine.adopt(1)  # type: ignore[attr-defined]
            second = await play(system, here=False)
            assert tokens(second) == tokens(await play(system, here=True)) != tokens(first)
            assert {turn.completion.version_first for t in second.trajectories for turn in t.turns} == {1}

            # A file that is damaged on the way is named, and nobody samples with it.
            write = Staging.write

            def write_damaged(staging: Staging, model: Any) -> Any:
                staged = write(staging, model)
                file = staged.folder / "model.safetensors"
                data = bytearray(file.read_bytes())
                data[-3] ^= 64
                file.write_bytes(data)
                return staged

            monkeypatch.setattr(Staging, "write", write_damaged)
            with pytest.raises(EngineError, match=r"rollout process 0 .*that it read for version 2 differs"):
                await pool.adopt(2)
            monkeypatch.undo()
            assert (pool.version, tokens(await play(system, here=False))) == (1, tokens(second))

            # Killed while it plays: the attempts are made again elsewhere, and what was lost stays on record.
            playing = asyncio.create_task(play(system, here=False, index=7))
            while not pool.open_sessions:
                await asyncio.sleep(0.001)
            [pid] = pool.pids()
            os.kill(pid, signal.SIGKILL)
            group = await playing
            assert {t.id.attempt for t in group.trajectories} == {1}
            assert [each.reason for each in group.discarded] == [DropReason.RETRIED] * 3
            assert all("killed by signal 9" in (each.trajectory.error or "") for each in group.discarded)
            assert {turn.completion.version_first for t in group.trajectories for turn in t.turns} == {1}
            assert pool.pids() != [pid]

    asyncio.run(check())


def test_what_is_cut_comes_back_as_far_as_it_went(tmp_path: Path) -> None:
    """Of five members two are wanted: the others are on record with what they sampled."""

    async def check() -> None:
        async with open_pool(tmp_path, "rollout.max_turn_tokens=60") as (system, _):
            stream = GroupStream(system.worker("train"), group_size=2, overdraw=3)
            stream.start(Draw(index=0, task=system.family.task("train", 0)), version=0)
            group = await stream.next()
            await stream.close()
            assert len(group.trajectories) == 2
            assert len(group.discarded) == 3
            late = [each.trajectory for each in group.discarded if each.reason is DropReason.OVERDRAWN]
            assert len(late) == 3
            cut = [each for each in late if each.stop is StopReason.CUT]
            assert cut
            assert all("no longer needed" in each.reward.reason for each in cut)  # type: ignore[union-attr]
            # Without the message that cuts them, all would play to their own ends.
            assert system.rollouts is not None
            assert not system.rollouts.open_sessions

    asyncio.run(check())


def test_roles_whose_weights_do_not_travel_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    config = load_config([BENCHMARKS / "roles.toml"], ["rollout.num_workers=1", "roles={teller='learns:other'}"])
    with pytest.raises(ConfigError, match=r"rollout.num_workers=1 with 'other' in roles: .*use rollout.num_workers=0"):
        build_system(config, training=True)


@pytest.mark.slow
def test_an_environment_beside_the_script_is_found_by_rollout_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside.py").write_text("from turnwise.testing.notes import NotesFamily as Family\n")
    monkeypatch.syspath_prepend(tmp_path)

    async def check() -> None:
        own = ("environment.name=beside:Family", "environment.args={}", "sft.steps=0")
        async with open_pool(tmp_path, *own) as (system, _):
            group = await play(system, here=False)
        assert [trajectory.error for trajectory in group.trajectories] == [None] * 3

    asyncio.run(check())
