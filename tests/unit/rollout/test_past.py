"""A few snapshots in memory at a time, and what a group says about how the policy fared against them."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from asking_worlds import RENDERER, KeepingEngine, Wanderer, make_task
from pipeline_world import WorldEngine
from waiting import until

from turnwise.algorithms.opponents import Standings
from turnwise.core.errors import EngineError
from turnwise.core.types import Draw, Scored, Session, TrajectoryGroup
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import run_episode
from turnwise.rollout.past import MAX_PAST, PastPolicy, SnapshotPool
from turnwise.rollout.policies import EnginePolicy, RolePolicy


class ClosingEngine(WorldEngine):
    """Says when it is closed."""

    is_closed = False

    async def close(self) -> None:
        """Remember it."""
        self.is_closed = True


def make_pool(run: Path, count: int) -> tuple[SnapshotPool, dict[str, list[ClosingEngine]]]:
    opened: dict[str, list[ClosingEngine]] = {}
    for step in range(count):
        (run / "checkpoints" / f"step_{step:06d}").mkdir(parents=True)

    def load_engine(path: Path) -> ClosingEngine:
        opened.setdefault(path.name, []).append(ClosingEngine(KeepingEngine(token_s=0.0)._pace))
        return opened[path.name][-1]

    return SnapshotPool(load_engine, run=run, roles=("second",)), opened


def test_what_was_used_longest_ago_leaves_for_another(tmp_path: Path) -> None:
    pool, opened = make_pool(tmp_path, MAX_PAST + 1)

    async def use() -> None:
        for step in [*range(MAX_PAST), 0, MAX_PAST, 0, 1]:
            async with pool.open(step) as engine:
                assert engine is opened[f"step_{step:06d}"][-1]
        await pool.release(2, Session("train/0", "0/0"))  # has left: nothing to free

    asyncio.run(use())
    times = {name: len(engines) for name, engines in opened.items()}
    assert times == {"step_000000": 1, "step_000001": 2, "step_000002": 1, "step_000003": 1, "step_000004": 1}
    still = [engine for engines in opened.values() for engine in engines if not engine.is_closed]
    assert len(still) == MAX_PAST
    asyncio.run(pool.close())
    assert all(engine.is_closed for engines in opened.values() for engine in engines)


def test_a_snapshot_in_use_stays_and_another_waits_for_it(tmp_path: Path) -> None:
    pool, opened = make_pool(tmp_path, MAX_PAST + 1)
    order: list[str] = []

    async def hold(step: int, until: asyncio.Event) -> None:
        async with pool.open(step) as engine:
            order.append(f"open {step}")
            await until.wait()
            assert isinstance(engine, ClosingEngine)
            assert not engine.is_closed

    async def be_open(count: int) -> None:
        await until(lambda: len(order) == count)

    async def use() -> None:
        events = [asyncio.Event() for _ in range(MAX_PAST + 1)]
        tasks = []
        for step in range(MAX_PAST + 1):
            tasks.append(asyncio.create_task(hold(step, events[step])))
            await be_open(min(step + 1, MAX_PAST))
        await asyncio.sleep(0.05)
        assert order == [f"open {step}" for step in range(MAX_PAST)]
        events[1].set()
        await until(lambda: order[-1] == f"open {MAX_PAST}")
        for event in events:
            event.set()
        await asyncio.gather(*tasks)

    asyncio.run(use())
    assert opened["step_000001"][0].is_closed
    assert not opened["step_000000"][0].is_closed


def test_a_checkpoint_that_is_missing_costs_the_episode(tmp_path: Path) -> None:
    pool, _ = make_pool(tmp_path, 1)
    policies: dict[str, RolePolicy] = {
        "first": EnginePolicy(engine=KeepingEngine(token_s=0.0), renderer=RENDERER),
        "second": PastPolicy(pool=pool, renderer=RENDERER, choice="latest", every=5, seed=1, role="second"),
    }
    attempt = Attempt(draw=Draw(index=1, task=make_task(1)), member=0, version=5)
    limits = Limits(max_turns=6, max_turn_tokens=8, max_tokens=200, timeout_s=60.0)
    played = {role: policy.of(attempt) for role, policy in policies.items()}
    episode = asyncio.run(run_episode(attempt, Wanderer(), played, limits, Sampling(temperature=1.0, seed=7)))
    assert "step_000005 for a role bound to the run's past; restore it" in str(episode.trajectories[0].error)

    async def open_none() -> None:
        async with SnapshotPool(lambda path: KeepingEngine()).open(0):
            raise AssertionError

    with pytest.raises(EngineError, match="there is no checkpoint"):
        asyncio.run(open_none())


def test_a_game_is_lost_where_the_snapshot_has_more_reward(tmp_path: Path) -> None:
    pool, _ = make_pool(tmp_path, 1)
    policies: dict[str, RolePolicy] = {
        "first": EnginePolicy(engine=KeepingEngine(token_s=0.0), renderer=RENDERER),
        "second": PastPolicy(pool=pool, renderer=RENDERER, choice="latest", every=5, seed=1, role="second", snapshot=0),
    }
    limits = Limits(max_turns=6, max_turn_tokens=8, max_tokens=200, timeout_s=60.0)
    draw, rewards, trajectories = Draw(index=1, task=make_task(1)), {"first": [0, 1, 1], "second": [1, 1, 0]}, []
    for member in range(3):
        attempt = Attempt(draw=draw, member=member)
        episode = asyncio.run(run_episode(attempt, Wanderer(), policies, limits, Sampling(temperature=1.0, seed=7)))
        trajectories += [replace(t, reward=Scored(total=rewards[t.id.role][member])) for t in episode.trajectories]
    assert all(t.turns for t in trajectories)
    pool.count([TrajectoryGroup(draw=draw, trajectories=tuple(trajectories), role="")])
    expected = Standings()
    for lost in (1.0, 0.5, 0.0):
        expected.count(0, lost)
    assert pool.standings.state_dict() == expected.state_dict()
