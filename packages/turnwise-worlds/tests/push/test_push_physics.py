"""The table in MuJoCo: the same words as in cells, the same bits twice, forks, pictures, and what it refuses."""

import asyncio
import importlib.util
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from push_episodes import draw_chunks, play_policy, worth

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.environments.replies import answer_message
from turnwise_worlds.push.bins import write_chunk
from turnwise_worlds.push.family import Push
from turnwise_worlds.push.table import Table

TABLE = Table(side=6, hand=(0, 2), block=(2, 2), goal=(5, 5))
needs_mujoco = pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="needs mujoco")


@pytest.mark.skipif(importlib.util.find_spec("mujoco") is not None, reason="mujoco is installed")
def test_a_missing_mujoco_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"needs the package mujoco >= 3.2; .*pip install 'turnwise\[bodies\]'"):
        Push(body="mujoco")


@pytest.mark.system
@needs_mujoco
def test_a_pushed_block_comes_to_rest_where_it_does_in_cells() -> None:
    from turnwise_worlds.push.physics import MujocoBody

    body, table = MujocoBody.open(TABLE), TABLE
    for right, up in [(2, 0), (2, 0), (0, -1), (1, 0), (0, 4), (-3, 0)]:
        body, table = body.act((Fraction(right), Fraction(up))), table.move(right, up)
        assert body.table == table
    assert table.is_solved


@pytest.mark.system
@needs_mujoco
def test_the_same_actions_give_the_same_bits_also_from_a_fork() -> None:
    family = Push(side=6, body="mujoco", horizon=9)
    for index in range(3):
        task, chunks = family.task("train", index), [*map(write_chunk, draw_chunks(Random(index), 6))]

        async def run(task: object = task, chunks: list[str] = chunks) -> None:
            one, other = family.build_environment(task), family.build_environment(task)  # type: ignore[arg-type]
            await one.reset(task, 0)  # type: ignore[arg-type]
            await other.reset(task, 1)  # type: ignore[arg-type]
            for number, chunk in enumerate(chunks):
                seen = await one.step(answer_message(chunk))
                assert seen == await other.step(answer_message(chunk))
                assert one.state_hash() == other.state_hash()
                if seen.done:
                    return
                if number == 2:
                    before = one.state_hash()
                    twin = await one.fork()
                    await twin.step(answer_message("<x+1> <y-2>"))
                    assert one.state_hash() == before != twin.state_hash()

        asyncio.run(run())


@pytest.mark.system
@needs_mujoco
def test_the_oracle_of_the_cells_solves_most_tables_in_mujoco_and_random_play_few() -> None:
    assert worth("oracle", side=6, body="mujoco", count=40) >= 0.95
    assert worth("random", side=6, body="mujoco", count=40, kinds={"push": 1, "around": 1}) < 0.1


@pytest.mark.system
@needs_mujoco
def test_words_and_pictures_are_those_of_the_cells_before_any_move() -> None:
    for surface in ("words", "picture"):
        cells, physics = Push(side=6, surface=surface), Push(side=6, surface=surface, body="mujoco")
        for index in range(3):
            assert physics.task("train", index) == cells.task("train", index)
            task = cells.task("train", index)

            async def open_both(task: object = task) -> list[object]:
                families = (cells, physics)  # noqa: B023
                return [await family.build_environment(task).reset(task, 0) for family in families]  # type: ignore[arg-type]

            one, other = asyncio.run(open_both())
            assert one == other


@pytest.mark.system
@needs_mujoco
def test_egl_shows_block_wall_and_goal_where_they_are() -> None:
    from turnwise_worlds.push.photograph import photograph
    from turnwise_worlds.push.physics import MujocoBody
    from turnwise_worlds.push.show import COLOURS, PIXELS

    table = Table(side=8, hand=(0, 2), block=(2, 3), goal=(7, 7), wall=((4, 0), (4, 1), (4, 2)))
    try:
        picture = photograph(MujocoBody.open(table), hides_goal=False)
    except ConfigError as cause:
        pytest.skip(str(cause))  # no libegl here
    size = PIXELS // table.side
    assert table.block is not None
    for name, (x, y) in (("hand", table.hand), ("block", table.block), ("goal", table.goal), ("wall", table.wall[1])):
        seen = picture[(7 - y) * size + 1 : (7 - y) * size + 3, x * size + 1 : x * size + 3].astype(int)
        assert np.abs(seen - COLOURS[name]).max() <= 30, name
    hidden = photograph(MujocoBody.open(table), hides_goal=True)
    assert (hidden != picture).any()
    family = Push(side=8, body="mujoco", surface="picture", camera="egl", horizon=3)
    results, _ = play_policy(family, family.task("train", 0), "naive")
    assert all(message.images for result in results for message in result.observations)


@pytest.mark.system
@needs_mujoco
@pytest.mark.parametrize("cells", [float("nan"), float("inf")])
def test_a_move_that_is_no_number_is_a_fault(cells: float) -> None:
    from turnwise_worlds.push.physics import MujocoBody

    with pytest.raises(EnvironmentFault, match="is no move; give two finite numbers"):
        MujocoBody.open(TABLE).act((cells, Fraction(0)))  # type: ignore[arg-type]


@pytest.mark.system
@needs_mujoco
def test_physics_that_diverge_are_a_fault_and_never_a_place() -> None:
    from dataclasses import replace

    from turnwise_worlds.push.physics import MujocoBody

    body = MujocoBody.open(TABLE)
    for place, value in ((3, float("nan")), (3, 1e12), (5, float("nan"))):
        state = body.state.copy()
        state[place] = value
        with pytest.raises(EnvironmentFault, match="MuJoCo diverged"):
            replace(body, state=state).act((Fraction(1), Fraction(0)))
