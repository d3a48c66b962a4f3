"""Episodes of pushing: what is shown, what a chunk does, what policies and controls get, how layouts are split."""

import asyncio

import numpy as np
import pytest
from push_episodes import play, play_policy, worth

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Scored, StopReason, Task
from turnwise.environments.replies import answer_message
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise_worlds.push.bins import Bins, write_word
from turnwise_worlds.push.family import Push, is_held_out
from turnwise_worlds.push.show import COLOURS, PIXELS, describe, draw, draw_blank
from turnwise_worlds.push.table import Table, read_payload, write_payload

TABLE = Table(side=6, hand=(0, 2), block=(2, 2), goal=(5, 2), wall=((3, 4), (4, 4), (5, 4)))


def task_of(family: Push, table: Table) -> Task:
    """A task with this table."""
    return Task(environment="push", prompt=family.task("train", 0).prompt, payload=write_payload("push", table))


def see(picture: np.ndarray, side: int) -> dict[str, set[tuple[int, int]]]:
    """Read what lies in the middle of each cell, by colour."""
    size = PIXELS // side
    names = {colour: name for name, colour in COLOURS.items()}
    seen: dict[str, set[tuple[int, int]]] = {}
    for x in range(side):
        for y in range(side):
            colour = tuple(map(int, picture[(side - 1 - y) * size + size // 2, x * size + size // 2]))
            if colour in names:
                seen.setdefault(names[colour], set()).add((x, y))
    return seen


@pytest.mark.parametrize("side", range(5, 17))
def test_a_picture_shows_every_cell_and_words_say_the_same(side: int) -> None:
    family = Push(side=side)
    for index in range(3):
        table = read_payload(family.task("train", index).payload)
        expected = {"hand": {table.hand}, "goal": {table.goal}, "wall": set(table.wall)}
        expected |= {} if table.block is None else {"block": {table.block}}
        assert see(draw(table, hides_goal=False), side) == {name: cells for name, cells in expected.items() if cells}
        hidden = see(draw(table, hides_goal=True), side)
        assert hidden == {name: cells for name, cells in expected.items() if cells and name != "goal"}
    assert len(np.unique(draw_blank())) == 1


def test_a_table_in_words() -> None:
    terse = describe(TABLE, "terse", hides_goal=False)
    assert terse == " wall x3 y4 x4 y4 x5 y4 goal x5 y2 block x2 y2 hand x0 y2"
    assert "x5 y2" not in describe(TABLE, "terse", hides_goal=True)
    full = describe(TABLE, "full", hides_goal=False)
    assert full == (
        "The hand is at (0, 2), the block at (2, 2). The goal is at (5, 2). A wall fills (3, 4), (4, 4), (5, 4)."
    )
    assert "(5, 2)" not in describe(TABLE, "full", hides_goal=True)


def test_a_chunk_is_done_until_the_goal_is_reached() -> None:
    family = Push(side=6)
    results, reward = play(family, task_of(family, TABLE), ["<x+1> <y+0> <x-1> <y+0>", "<x+4> <y+0> <x-4> <y-2>"])
    assert results[0].observations[0].text.endswith(" block x2 y2 hand x0 y2")
    assert results[1].done
    assert not results[1].observations
    assert reward == Scored.of(1.0, {"success": 1.0, "malformed": 0.0})
    assert [signal.value for signal in results[1].signals] == [0.0, 3.0]  # the block came 3 cells nearer


def test_a_malformed_chunk_does_nothing_and_is_named_in_the_full_style() -> None:
    for style, said in (("terse", " error"), ("full", "error: 3 actions; a reply has at most 2")):
        family = Push(side=6, style=style)
        results, reward = play(family, task_of(family, TABLE), ["<x+1> <y+1> " * 3, "<x+0> <y+0>"])
        assert results[0].observations[0].text == said
        assert results[0].signals[0].value == 1.0
        assert describe(TABLE, style, hides_goal=False) in results[1].observations[0].text  # type: ignore[arg-type]
        assert isinstance(reward, Scored)
        assert (reward.total, reward.part("malformed")) == (0.0, 1.0)


def test_an_episode_ends_at_its_horizon_whatever_is_said() -> None:
    family = Push(side=6, horizon=3)
    results, reward = play(family, task_of(family, TABLE), ["<x+0> <y+0>", "nonsense", "", "<x+4> <y+0>"])
    assert [result.done for result in results] == [False, False, True]
    assert not results[-1].observations
    assert isinstance(reward, Scored)
    assert reward.total == 0.0


def test_plain_text_is_read_where_a_reply_has_no_answer_tag() -> None:
    family = Push(side=6)

    async def run() -> float:
        from turnwise.core.types import text_message

        environment = family.build_environment(task_of(family, TABLE))
        await environment.reset(task_of(family, TABLE), 0)
        reply = text_message("assistant", "<x+4> <y+0>")
        await environment.step(reply)
        reward = await environment.score([reply], StopReason.DONE)
        assert isinstance(reward, Scored)
        return reward.total

    assert asyncio.run(run()) == 1.0


def test_layouts_of_the_splits_differ_whatever_the_seed() -> None:
    train = [read_payload(Push(side=5, kinds={"reach": 1}).task("train", index).payload) for index in range(60)]
    other = Push(side=5, kinds={"reach": 1}, seed=1)
    heldout = [read_payload(other.task("heldout", index).payload) for index in range(60)]
    assert not set(train) & set(heldout)
    assert all(map(is_held_out, heldout))
    assert not any(map(is_held_out, train))


def test_states_are_equal_however_they_were_reached_and_forks_go_their_own_way() -> None:
    family = Push(side=6)
    task = task_of(family, TABLE)

    async def run() -> None:
        one, other = family.build_environment(task), family.build_environment(task)
        await one.reset(task, 0)
        await other.reset(task, 0)
        assert one.state_hash() == other.state_hash()
        await one.step(answer_message("<x+1> <y+1>"))
        await other.step(answer_message("<x+0> <y+1> <x+1> <y+0>"))
        assert one.state_hash() == other.state_hash()
        twin = await one.fork()
        assert twin.state_hash() == one.state_hash()
        await twin.step(answer_message("<x+1> <y+0>"))
        await other.step(answer_message("<x+1> <y+0>"))
        assert one.state_hash() != twin.state_hash() == other.state_hash()
        with pytest.raises(EnvironmentFault, match="reset twice"):
            await one.reset(task, 0)
        with pytest.raises(EnvironmentFault, match="before reset"):
            await family.build_environment(task).step(answer_message("<x+0> <y+0>"))

    asyncio.run(run())


def test_what_the_policies_and_the_controls_are_worth() -> None:
    pushes = {"push": 1, "around": 1}
    assert worth("oracle", side=6) == 1.0
    assert worth("random", side=6, kinds=pushes) < 0.1
    assert worth("random", side=8, kinds={"reach": 1}) < 0.4  # twelve places of 64
    assert 0.1 < worth("naive", side=6, kinds=pushes, naive_skill=0.2, horizon=4) < 0.8
    assert worth("oracle", side=6, goal="hidden") < 0.25
    assert worth("oracle", side=6, surface="picture", picture="blank") < 0.25


def test_a_naive_hand_pushes_away_what_is_before_it() -> None:
    # The hand is between block and goal: the straight way to the block's far side pushes it to the left.
    table = Table(side=6, hand=(3, 2), block=(2, 2), goal=(5, 2))
    family = Push(side=6, naive_skill=0.0, chunk=1, horizon=1)
    moved = {
        results[0].signals[1].value
        for seed in range(20)
        for results, _ in [play_policy(family, task_of(family, table), "naive", seed)]
    }
    assert min(moved) < 0
    assert play_policy(Push(side=6), task_of(family, table), "oracle")[1].total == 1.0


def test_switches_that_have_no_effect_are_refused() -> None:
    with pytest.raises(ConfigError, match="camera='egl' has no effect here"):
        Push(camera="egl")
    with pytest.raises(ConfigError, match="picture='blank' has no effect with surface='words'"):
        Push(picture="blank")
    with pytest.raises(ConfigError, match=r"kinds.jump=1: unknown kind; use reach, push, around"):
        Push(kinds={"jump": 1})
    with pytest.raises(ConfigError, match="bins=8"):
        Push(bins=8)


@pytest.mark.parametrize(("bins", "vocab_size"), [(9, 420), (256, 2000)])
def test_every_bin_is_one_token_that_reads_back(bins: int, vocab_size: int) -> None:
    family = Push(side=5, bins=bins, kinds={"reach": 1})
    texts = family.texts(5 * 256)
    tokenizer = train_tokenizer(texts, vocab_size=vocab_size, special_tokens=TAG_SPECIAL_TOKENS, split="words")
    for index in Bins(count=bins, reach=4).indices:
        for axis in "xy":
            (token,) = tokenizer.encode(f" {write_word(axis, index)}")
            assert tokenizer.decode([token]) == f" {write_word(axis, index)}"
