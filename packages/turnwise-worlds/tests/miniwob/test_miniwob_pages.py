"""MiniWoB++ in the real browser."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from turnwise.core.messages import ImagePart
from turnwise.core.types import Message, Scored, StopReason, Task
from turnwise_worlds.miniwob.environment import MiniwobEnvironment
from turnwise_worlds.miniwob.family import Miniwob
from turnwise_worlds.miniwob.goals import Step
from turnwise_worlds.miniwob.pages import PagePool, TaskPage
from turnwise_worlds.miniwob.policies import step_message
from turnwise_worlds.programs import BROWSER

pytest.importorskip("playwright")
pytestmark = pytest.mark.system
ORACLE_TASKS = (
    *("choose-list", "click-button", "click-checkboxes", "click-color", "click-dialog", "click-dialog-2"),
    *("click-link", "click-option", "click-tab", "click-test", "click-test-2", "click-widget"),
    *("enter-password", "enter-text", "focus-text", "focus-text-2", "login-user"),
)


@pytest.fixture(scope="module", autouse=True)
def family() -> Miniwob:
    """The family of all tasks that the oracle knows."""
    try:
        BROWSER.find()
    except ValueError:
        pytest.skip("chromium-headless-shell is missing")
    return Miniwob(tasks=list(ORACLE_TASKS), max_pages=2)


async def play(family: Miniwob, name: str, task: Task) -> tuple[float, bool, str]:
    """Play a task with a scripted policy; returns the reward, whether it is a success, and the opening."""
    environment, policy, random = family.build_environment(task), family.policy(name), Random(str(task.payload))
    messages: list[Message] = list((await environment.reset(task, 0)).messages)
    opening = messages[0].text
    for _ in range(8):
        messages.append(policy.reply(task, messages, random))
        result = await environment.step(messages[-1])
        messages += result.observations
        if result.done:
            break
    reward = await environment.score([], StopReason.DONE)
    await environment.close()
    assert isinstance(reward, Scored)
    return reward.total, reward.part("success") == 1, opening


def task_of(family: Miniwob, name: str, seed: int) -> Task:
    """A task of the family with another page."""
    task = family.task("train", 0)
    return Task(environment="miniwob", prompt=task.prompt, payload={"task": name, "seed": seed, "kind": name})


def test_the_oracle_succeeds_and_random_play_does_not(family: Miniwob) -> None:
    async def play_all() -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {"oracle": Counter(), "random": Counter()}
        for policy, counts in found.items():
            for name in ORACLE_TASKS:
                for seed in range(2):
                    _, success, _ = await play(family, policy, task_of(family, name, seed))
                    counts[name] += success
        return found

    found = asyncio.run(play_all())
    assert found["oracle"] == Counter(dict.fromkeys(ORACLE_TASKS, 2))
    assert sum(found["random"].values()) <= 22  # of 34; some of these tasks have one thing to click on


def test_a_seed_gives_the_same_page_whether_it_was_used_before_or_not(family: Miniwob) -> None:
    fresh = Miniwob(tasks=["tiny"], reuse_pages=False, max_pages=1)

    async def read() -> None:
        for name in ("click-link", "click-dialog-2", "enter-text"):
            task = task_of(family, name, 7)
            openings = {(await play(each, "random", task))[2] for each in (family, family, fresh)}
            assert len(openings) == 1

    asyncio.run(read())


def calls(*steps: Step) -> Sequence[Message]:
    """One reply for every step."""
    return [step_message(number, step) for number, step in enumerate(steps)]


def run(environment: MiniwobEnvironment, task: Task, replies: Sequence[Message]) -> tuple[list[str], Scored]:
    """Play fixed replies; returns what they were answered, and the reward."""

    async def go() -> tuple[list[str], Scored]:
        await environment.reset(task, 0)
        answers = [each.text for reply in replies for each in (await environment.step(reply)).observations]
        reward = await environment.score([], StopReason.MAX_TURNS)
        await environment.close()
        assert isinstance(reward, Scored)
        return answers, reward

    return asyncio.run(go())


def test_what_a_page_cannot_do_is_said(family: Miniwob) -> None:
    task = task_of(family, "enter-text", 1)
    steps = (
        Step(verb="click", number=99),
        Step(verb="type", number=2, text="x"),
        Step(verb="select", number=1, text="x"),
        Step(verb="type", number=1, text="two\nlines"),
    )
    answers, reward = run(family.build_environment(task), task, calls(*steps))
    assert answers == [
        "error: no element 99",
        "error: 2 is no field",
        "error: 1 is no list",
        "error: type one line of at most 200 characters",
    ]
    # An episode that ends before its task counts as one whose time is over.
    assert reward.total == -1.0
    assert reward.part("decided") == 0.0


def test_an_element_that_the_page_took_away_is_gone(family: Miniwob) -> None:
    async def act() -> None:
        pool = PagePool(1, reuse=True)
        page = await pool.open("click-button", 1)
        await page._page.run(("evaluate", "() => document.getElementById('area').replaceChildren()", None))
        with pytest.raises(Exception, match="it is gone"):
            await page.act(Step(verb="click", number=1))
        await page.close()

    asyncio.run(act())


def test_the_wrong_button_costs_and_the_reward_is_the_raw_one(family: Miniwob) -> None:
    task = task_of(family, "click-test-2", 1)
    for number, total in ((1, 1.0), (2, -1.0)):
        answers, reward = run(family.build_environment(task), task, calls(Step(verb="click", number=number)))
        assert answers == []
        assert reward.total == total


def test_a_little_reward_for_a_wrong_answer_is_no_success(family: Miniwob) -> None:
    async def choose(number: int) -> Scored:
        task = task_of(family, "find-greatest", 1)
        environment = family.build_environment(task)
        await environment.reset(task, 0)
        page = environment._page
        assert page is not None
        cards = [at for at, each in enumerate(page.view.elements, 1) if each.name != "Submit"]
        await environment.click(cards[number])
        # A card that lies face up cannot be clicked again: it is counted after what can be.
        send = next(at for at, each in enumerate(page.view.elements, 1) if each.name == "Submit")
        await environment.click(send)
        reward = await environment.score([], StopReason.DONE)
        await environment.close()
        assert isinstance(reward, Scored)
        return reward

    rewards = [asyncio.run(choose(number)) for number in range(3)]
    # See Farama-Foundation/MiniWoB-plusplus#108: a wrong card is worth .1.
    assert sorted(reward.total for reward in rewards) == [0.1, 0.1, 1.0]
    assert sorted(reward.part("success") or 0.0 for reward in rewards) == [0.0, 0.0, 1.0]


def test_a_tall_element_is_clicked_where_it_is_visible(family: Miniwob) -> None:
    async def act() -> bool:
        page = await PagePool(1, reuse=True).open("click-test", 1)
        grow = "() => { const each = document.getElementById('subbtn'); each.style.height = '900px'; }"
        await page._page.run(("evaluate", grow, None))
        view = await page.act(Step(verb="click", number=1))
        await page.close()
        return view.is_done

    assert asyncio.run(act())


def test_pictures_are_clicked_at(family: Miniwob) -> None:
    seeing = Miniwob(tasks=["click-test"], surface="picture", max_pages=1)
    task = task_of(seeing, "click-test", 3)

    async def look() -> None:
        environment = seeing.build_environment(task)
        opening = await environment.reset(task, 0)
        picture = opening.messages[0].content[0]
        assert isinstance(picture, ImagePart)
        assert (picture.width, picture.height) == (160, 210)
        assert opening.messages[0].text == "Click the button."
        assert "click_at" in {tool.name for tool in opening.tools}
        assert isinstance(environment._page, TaskPage)
        where = "() => document.getElementById('subbtn').getBoundingClientRect().toJSON()"
        box = (await environment._page._page.run(("evaluate", where, None)))[0]
        await environment.click_at(round(box["x"]) + 5, round(box["y"]) + 5)
        assert environment.done
        await environment.close()

    asyncio.run(look())
