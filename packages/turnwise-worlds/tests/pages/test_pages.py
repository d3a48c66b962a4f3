"""Pages: what pictures show and hide, what zooming does, what answers are worth, what policies and controls get."""

import asyncio
import json
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import StepResult
from turnwise.core.types import Message, Scored, StopReason, Task
from turnwise.environments.replies import answer_message
from turnwise.pictures.read import read_picture
from turnwise_worlds.pages.arguments import PagesArguments
from turnwise_worlds.pages.environment import PagesEnvironment
from turnwise_worlds.pages.family import Pages
from turnwise_worlds.pages.page import CELL, GREY, SIDE, Area, Kind, Page, draw, grey, make_page, read_digit
from turnwise_worlds.pages.policies import find_places, zoom_message
from turnwise_worlds.pages.view import View

KINDS: tuple[Kind, ...] = ("read", "compare", "nested", "plain")
SEEDS = st.integers(0, 2**40)


def tile(page: Page) -> np.ndarray:
    """The page at full size, from its cells."""
    cells = [
        [draw(page, Area(row=row, column=column, side=1)) for column in range(page.side)] for row in range(page.side)
    ]
    return np.concatenate([np.concatenate(row, 1) for row in cells], 0)


@given(kind=st.sampled_from(("read", "compare", "nested")), seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_an_overview_is_the_average_of_its_cells_and_says_nothing_of_their_digits(kind: Kind, seed: int) -> None:
    page = make_page(kind, seed)
    overview = draw(page, Area(side=page.side))
    boxes = tile(page).reshape(CELL, page.side, CELL, page.side, 3).mean((1, 3))
    assert np.array_equal(boxes, overview)
    page.digits[:] = (page.digits + 3) % 10
    assert np.array_equal(draw(page, Area(side=page.side)), overview)


@given(kind=st.sampled_from(KINDS), seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_a_crop_shows_its_digit(kind: Kind, seed: int) -> None:
    page = make_page(kind, seed)
    for row in range(min(page.side, 5)):
        assert read_digit(draw(page, Area(row=row, column=0, side=1))) == page.digits[row, 0]
    assert read_digit(grey()) is None


def test_a_digit_on_a_page_by_hand() -> None:
    # The middle of a 1 is a column of seven points, each of 2 x 2 pixels: 28 and 228 on the box's 128.
    page = make_page("plain", 5)
    page.digits[0, 0], page.offsets[0, 0] = 1, (0, 0)
    picture = draw(page, Area(side=1))
    assert picture[8:22, 12:14, 0].tolist() == [[28, 228], [228, 28]] * 7
    assert (picture[8:16, 8:10] == GREY).all()
    assert picture.shape == (CELL, CELL, 3)


def test_the_red_cells_are_where_the_page_says() -> None:
    for kind in ("read", "compare", "nested"):
        page = make_page(kind, 11)
        whole = Area(side=page.side)
        red, others = find_places(draw(page, whole))
        assert set(red) == {whole.find(cell) for cell in page.marked}
        assert len(others) == len(
            {whole.find(cell) for cell in page.decoys} - (set(red) if kind == "nested" else set())
        )
    assert find_places(draw(make_page("plain", 11), Area(side=1))) == ([], [])


def test_the_answer_is_the_digit_of_the_red_cell_or_the_larger_of_two() -> None:
    page = make_page("compare", 3)
    first, second = (int(page.digits[cell]) for cell in page.marked)
    assert first != second
    assert page.answer == max(first, second)
    page = make_page("nested", 3)
    assert page.digits.shape == (SIDE * SIDE, SIDE * SIDE)
    assert page.answer == page.digits[page.marked[0]]


def test_a_zoom_divides_the_last_picture_and_starts_again_after_a_cell() -> None:
    view = View.open({"kind": "nested", "seed": 1}, PagesArguments())
    areas = [view.area]
    for row, column in ((3, 0), (1, 2), (0, 0)):
        view = view.zoom(row, column)
        areas.append(view.area)
    assert areas == [
        Area(side=16),
        Area(row=12, column=0, side=4),
        Area(row=13, column=2, side=1),
        Area(side=4),  # the last picture was a cell, so the page is divided again
    ]
    assert view.shown == ((13, 2),)


# ------------------------------------------------------------------------------------------------ episodes


def play(family: Pages, task: Task, replies: Sequence[Message]) -> tuple[list[StepResult], Scored]:
    async def run() -> tuple[list[StepResult], Scored]:
        environment = family.build_environment(task)
        await environment.reset(task, 0)
        results = [await environment.step(reply) for reply in replies]
        reward = await environment.score(replies, StopReason.DONE if results[-1].done else StopReason.MAX_TURNS)
        await environment.close()
        assert isinstance(reward, Scored)
        return results, reward

    return asyncio.run(run())


def task_of(family: Pages, kind: Kind) -> tuple[Task, Page]:
    tasks = (family.task("heldout", index) for index in range(100))
    task = next(task for task in tasks if task.payload["kind"] == kind)
    return task, make_page(kind, task.payload["seed"])


def test_each_zoom_costs_a_share_of_a_right_answer_and_nothing_of_a_wrong_one() -> None:
    family = Pages(call_cost=0.1)
    task, page = task_of(family, "read")
    right, wrong = answer_message(str(page.answer)), answer_message(str((page.answer + 1) % 10))
    zooms = [zoom_message(place, number) for number, place in enumerate([(0, 0), page.marked[0]])]
    _, reward = play(family, task, [*zooms, right])
    assert reward.total == pytest.approx(0.8)  # 1 - 2 * 0.1
    assert play(family, task, [right])[1].total == 1.0
    assert play(family, task, [*zooms, wrong])[1].total == 0.0
    assert play(family, task, zooms)[1].total == 0.0
    family = Pages(call_cost=0.6)
    assert play(family, task, [*zooms, right])[1].total == 0.0
    assert play(family, task, [*zooms, right])[1].part("success") == 1.0


def test_signals_say_whether_a_zoom_looks_at_a_mark_and_an_answer_reads_the_crop() -> None:
    family = Pages()
    task, page = task_of(family, "compare")
    other = next((0, column) for column in range(4) if (0, column) not in page.marked)
    shown = [page.marked[0], page.marked[0], other]
    zooms = [zoom_message(place, number) for number, place in enumerate(shown)]
    digit = max(int(page.digits[place]) for place in shown)
    results, reward = play(family, task, [*zooms, answer_message(str(digit))])
    signals = [{signal.name: signal.value for signal in result.signals} for result in results]
    assert signals == [{"looks_at_mark": 1.0}, {"looks_at_mark": 0.0}, {"looks_at_mark": 0.0}, {"reads_crop": 1.0}]
    assert reward.part("reads") == 1.0
    results, reward = play(family, task, [zooms[0], answer_message(str((int(page.digits[shown[0]]) + 1) % 10))])
    assert results[-1].signals[0].value == reward.part("reads") == 0.0
    assert play(family, task, [answer_message("3")])[1].part("reads") is None


def test_what_is_no_part_of_the_picture_is_refused_in_a_few_words() -> None:
    family = Pages()
    task, _ = task_of(family, "read")
    results, _ = play(family, task, [zoom_message((4, 0), 0), zoom_message((0, -1), 1)])
    assert [result.observations[0].text for result in results] == ["error: no row 5", "error: no column 0"]
    task, _ = task_of(family, "plain")
    results, reward = play(family, task, [zoom_message((0, 0), 0), answer_message("x")])
    assert results[0].observations[0].text == "error: no parts"
    assert reward.total == 0.0


def test_two_zooms_in_one_reply_get_a_picture_each_and_a_refused_one_gets_none() -> None:
    family = Pages()
    task, page = task_of(family, "compare")
    calls = [call for place in page.marked for call in zoom_message(place, sum(place)).tool_calls]
    calls.append(zoom_message((8, 0), 99).tool_calls[0])
    results, reward = play(
        family, task, [Message(role="assistant", content=(), tool_calls=tuple(calls)), answer_message(str(page.answer))]
    )
    shown = [message.images for message in results[0].observations]
    assert [len(images) for images in shown] == [1, 1, 0]
    assert [images[0].digest for images in shown[:2]] == [
        read_picture(draw(page, Area(row=row, column=column, side=1))).digest for row, column in page.marked
    ]
    assert (reward.part("success"), reward.part("reads")) == (1.0, 1.0)
    assert reward.total == pytest.approx(0.85)  # 1 - 3 * 0.05: the refused call counts too


def test_an_answer_is_one_digit_and_nothing_else() -> None:
    family = Pages()
    task, page = task_of(family, "plain")
    assert play(family, task, [answer_message(str(page.answer))])[1].total == 1.0
    for said in ("0 1 2 3 4 5 6 7 8 9", "", f"{page.answer}.0", "the red cell", str(page.answer + 10)):
        assert play(family, task, [answer_message(said)])[1].total == 0.0


def test_every_picture_is_small_and_the_question_follows_it() -> None:
    family = Pages()
    for index in range(8):
        task = family.task("train", index)
        (message,) = task.prompt
        assert [(part.width, part.height) for part in message.images] == [(CELL, CELL)]
        assert message.content[0] == message.images[0]
        assert message.text == f" {task.payload['kind']}"
    full = Pages(prompt="full").task("train", 0).prompt[0].text
    assert "zoom(row, column)" in full


def test_a_fork_sees_what_its_origin_saw_and_goes_its_own_way() -> None:
    family = Pages()
    task, _ = task_of(family, "nested")

    async def run() -> None:
        environment = family.build_environment(task)
        await environment.reset(task, 0)
        await environment.step(zoom_message((0, 0), 0))
        twin = await environment.fork()
        assert isinstance(twin, PagesEnvironment)
        assert twin.state_hash() == environment.state_hash()
        one, other = await environment.step(zoom_message((1, 1), 1)), await twin.step(zoom_message((2, 2), 1))
        assert one.observations[0].images != other.observations[0].images
        assert twin.state_hash() != environment.state_hash()

    asyncio.run(run())


# ------------------------------------------------------------------------------------------------ policies


def worth(policy: str, count: int = 150, **arguments: object) -> dict[str, float]:
    """Success by kind on held-out tasks, from a policy's replies alone."""
    family = Pages(**arguments)
    right: dict[str, list[bool]] = {}
    for index in range(count):
        task, random = family.task("heldout", index), Random(index)
        messages = list(task.prompt)
        while len(messages) == 1 or (messages[-1].tool_calls and len(messages) < 10):
            messages.append(family.policy(policy).reply(task, messages, random))
        said = messages[-1].text.split()
        answer = make_page(task.payload["kind"], task.payload["seed"]).answer
        right.setdefault(task.payload["kind"], []).append(said[1:2] == [str(answer)])
    return {kind: sum(rights) / len(rights) for kind, rights in right.items()}


def test_what_the_policies_and_the_controls_are_worth() -> None:
    assert set(worth("oracle").values()) == {1.0}
    naive = worth("naive", naive_skill=0.25)
    assert naive.pop("plain") == 1.0
    assert all(0.1 < share < 0.5 for share in naive.values())
    assert all(share < 0.3 for share in worth("random").values())
    assert all(share < 0.35 for share in worth("oracle", overview="grey").values())
    for crops in ("grey", "shuffled"):
        shares = worth("oracle", crops=crops)
        assert shares.pop("plain") == 1.0  # its overview shows the digit
        assert all(share < 0.35 for share in shares.values())


def test_the_demonstrator_answers_what_it_has_read() -> None:
    family = Pages(naive_skill=0.0)
    policy = family.policy("naive")
    for index in range(40):
        task, random = family.task("train", index), Random(index)
        view = View.open(task.payload, PagesArguments())
        messages = list(task.prompt)
        while (reply := policy.reply(task, messages, random)).tool_calls:
            messages.append(reply)
            given = json.loads(reply.tool_calls[0].arguments)
            view = view.zoom(given["row"] - 1, given["column"] - 1)
        read = [int(view.page.digits[cell]) for cell in view.shown] or [view.page.answer]
        assert reply == answer_message(str(max(read)))


def test_kinds_and_switches_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"kinds.write=1: unknown kind; use read, compare, nested, plain"):
        Pages(kinds={"write": 1})
    with pytest.raises(ConfigError, match="crops"):
        Pages(crops="blank")
    kinds = {Pages(kinds={"read": 1, "nested": 2}).task("train", index).payload["kind"] for index in range(30)}
    assert kinds == {"read", "nested"}
