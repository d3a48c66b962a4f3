"""The site in Chromium shows, to the character, what it shows as text."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from turnwise.core.errors import ToolFailure
from turnwise_worlds.browser.settings import BrowserSettings
from turnwise_worlds.programs import BROWSER
from turnwise_worlds.web.actions import Action, Back, Click, ClickAt, Goto, Select, Type
from turnwise_worlds.web.page import TYPED, Page, options_of
from turnwise_worlds.web.site.generate import make_state
from turnwise_worlds.web.site.state import Style
from turnwise_worlds.web.snapshot import format_aria
from turnwise_worlds.web.surfaces.chromium import ChromiumSurface
from turnwise_worlds.web.surfaces.surface import Seen, Surface
from turnwise_worlds.web.surfaces.text import TextSurface

pytest.importorskip("playwright")
pytestmark = pytest.mark.system
PATHS = ("/", "/cart", "/wiki", "/nothing", "/search?q=mug", "/orders", "/done", "//x", "/search?q=%3Cb%3E")
TEXTS = ("mug", "red mug", "a@b.example", "<b>&amp;\"'", "ü 3", "  x ", "")


@pytest.fixture(scope="module", autouse=True)
def _browser() -> None:
    try:
        BROWSER.find()
    except ValueError:
        pytest.skip("chromium-headless-shell is missing")


def draw_action(random: Random, page: Page) -> Action:
    """Draw an action that fits a page, or one that it refuses."""
    numbered = [node for node in page.nodes if node.number is not None]
    chance = random.random()
    if chance < 0.1 or not numbered:
        return Back()
    if chance < 0.15:
        return Goto(random.choice(PATHS))
    if chance < 0.2:
        return random.choice((Click(99), Type(1, "mug", enter=False), Select(1, "no such option")))
    node = random.choice(numbered)
    assert node.number is not None
    if node.role in TYPED and chance < 0.9:
        return Type(node.number, random.choice(TEXTS), enter=random.random() < 0.4)
    if node.role == "combobox":
        return Select(node.number, random.choice(options_of(page, node.number)))
    return Click(node.number)


async def try_action(surface: Surface, action: Action, before: Seen) -> tuple[Seen, str]:
    """Do an action; returns what is shown then, and the refusal, "" for none."""
    try:
        return await surface.act(action), ""
    except ToolFailure as failure:
        return before, str(failure)


@pytest.mark.parametrize("style", ["full", "terse"])
@pytest.mark.parametrize("seed", [0, 1])
def test_random_actions_show_the_same_pages_addresses_trees_and_states(seed: int, style: Style) -> None:
    async def walk() -> None:
        random = Random(f"{seed} {style}")
        state = make_state(Random(seed), style)
        text, chromium = TextSurface(), ChromiumSurface()
        shown, drawn = await text.open(state), await chromium.open(state)
        actions: list[Action] = []
        for _ in range(15):
            assert drawn == shown, actions
            assert chromium.state == text.state, actions
            assert await chromium.aria() == format_aria(shown.page), actions
            actions.append(draw_action(random, shown.page))
            shown, refusal = await try_action(text, actions[-1], shown)
            drawn, same = await try_action(chromium, actions[-1], drawn)
            assert same == refusal, actions
        await chromium.close()

    asyncio.run(walk())


def test_a_click_at_a_place_of_the_picture_is_a_click_on_what_is_there() -> None:
    async def click() -> None:
        text, chromium = TextSurface(), ChromiumSurface(pictures=True)
        state = make_state(Random(0), "full")
        await text.open(state)
        seen = await chromium.open(state)
        assert seen.picture is not None
        assert (seen.picture.width, seen.picture.height) == (224, 224)
        link = [node for node in seen.page.nodes if node.role == "link"][1]
        box = "() => { const box = document.querySelectorAll('a')[1].getBoundingClientRect();"
        assert chromium._page is not None
        x, y = (await chromium._page.run(("evaluate", f"{box} return [box.x + 3, box.y + 3]; }}", None)))[0]
        assert link.number is not None
        shown = await text.act(Click(link.number))
        drawn = await chromium.act(ClickAt(round(x), round(y)))
        assert (drawn.page, drawn.url) == (shown.page, shown.url)
        assert drawn.picture != seen.picture
        with pytest.raises(ToolFailure, match="x and y are 0 to 223"):
            await chromium.act(ClickAt(224, 0))
        await chromium.close()

    asyncio.run(click())


def test_screenshots_of_fresh_contexts_are_equal() -> None:
    async def draw() -> set[str]:
        pictures = set()
        for _ in range(3):
            surface = ChromiumSurface(pictures=True)
            seen = await surface.open(make_state(Random(1), "full"))
            assert seen.picture is not None
            pictures.add(seen.picture.digest)
            await surface.close()
        return pictures

    assert len(asyncio.run(draw())) == 1


def test_a_browser_that_is_missing_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    surface = ChromiumSurface(settings=BrowserSettings(max_pages=1, queue_s=1.0))
    with pytest.raises(ValueError, match="the surface 'chromium' needs the program chromium-headless-shell, which is"):
        asyncio.run(surface.open(make_state(Random(0), "terse")))
