"""Episodes on the web: the same on every surface, forks, actions of both styles, policies and controls."""

import asyncio
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Message, Scored, StopReason, Task, ToolCall
from turnwise_worlds.web.actions import Back, Goto
from turnwise_worlds.web.client import History
from turnwise_worlds.web.environment import WebEnvironment
from turnwise_worlds.web.family import Web
from turnwise_worlds.web.goals.tasks import make_visit
from turnwise_worlds.web.server import shared_server
from turnwise_worlds.web.surfaces.http import HttpSurface
from turnwise_worlds.web.surfaces.surface import SurfaceError

TERSE: dict[str, Any] = {"site": "terse", "actions": "webshop", "format": "short", "kinds": {"shop": 1.0}}
NUMBERS = st.integers(0, 16)
WORDS = st.sampled_from(("mug", "kalo", "2031-05-03", "a@b.org", "ann", "é ü+&=%", "*~", "1", " "))
CALLS = st.one_of(
    st.builds(lambda number: ("click", {"number": number}), NUMBERS),
    st.builds(
        lambda number, text, enter: ("type", {"number": number, "text": text, "enter": enter}),
        NUMBERS,
        WORDS,
        st.booleans(),
    ),
    st.builds(
        lambda number, option: ("select", {"number": number, "option": option}),
        NUMBERS,
        st.sampled_from(("return", "x")),
    ),
    st.sampled_from(("up", "down")).map(lambda direction: ("scroll", {"direction": direction})),
    st.just(("back", {})),
    st.sampled_from(
        (
            "/",
            "/item/0",
            "/search?q=mug&page=1",
            "/contact",
            "/login",
            "/cart",
            "/orders",
            "/wiki",
            "/x?a=%zz",
            "/item/1/",
            "//x",
        )
    ).map(lambda path: ("goto", {"path": path})),
)


def call(name: str, /, **arguments: Any) -> Message:
    made = ToolCall(id=f"{name}{arguments}", name=name, arguments=json.dumps(arguments))
    return Message(role="assistant", content=(), tool_calls=(made,))


async def trace(family: Web, task: Task, calls: list[tuple[str, dict[str, Any]]], fork_at: int = -1) -> list[Any]:
    """Everything that an episode shows: observations, hashes of states, the reward."""
    environment = family.build_environment(task)
    opening = await environment.reset(task, 0)
    shown: list[Any] = [opening.messages[0].text, environment.state_hash()]
    for number, (name, arguments) in enumerate(calls):
        if number == fork_at:
            twin = await environment.fork()
            await environment.step(call("goto", path="/wiki"))  # the original goes elsewhere and ends
            await environment.close()
            environment = twin
        result = await environment.step(call(name, **arguments))
        shown += [[message.text for message in result.observations], environment.state_hash()]
        if result.done:
            break
    reward = await environment.score([], StopReason.DONE)
    await environment.close()
    return [*shown, reward]


@given(index=st.integers(0, 11), calls=st.lists(CALLS, max_size=9), fork_at=st.integers(-1, 8))
@settings(max_examples=40, deadline=None)
def test_the_surface_changes_nothing_and_a_fork_goes_on_alike(index: int, calls: list[Any], fork_at: int) -> None:
    text, http = Web(), Web(surface="http")
    task = text.task("train", index)
    assert http.task("train", index) == task
    told = [
        asyncio.run(trace(text, task, calls)),
        asyncio.run(trace(http, task, calls)),
        asyncio.run(trace(http, task, calls, fork_at)),
    ]
    assert told[0] == told[1] == told[2]


def play(family: Web, index: int, policy: str, most: int = 40) -> tuple[list[str], Scored]:
    async def run() -> tuple[list[str], Scored]:
        task = family.task("heldout", index)
        environment: WebEnvironment = family.build_environment(task)
        messages = list((await environment.reset(task, 0)).messages)
        random = Random(index)
        for _ in range(most):
            messages.append(family.policy(policy).reply(task, messages, random))
            result = await environment.step(messages[-1])
            messages += result.observations
            if result.done:
                break
        replies = [message for message in messages if message.role == "assistant"]
        reward = await environment.score(replies, StopReason.DONE)
        await environment.close()
        assert isinstance(reward, Scored)
        return [message.text for message in messages], reward

    return asyncio.run(run())


@pytest.mark.parametrize("surface", ["text", "http"])
@pytest.mark.parametrize("kind", ["shop", "wiki", "open", "form", "order", "cross"])
def test_the_oracle_does_every_kind_on_every_surface(kind: str, surface: str) -> None:
    family = Web(kinds={kind: 1.0}, surface=surface)
    assert [play(family, index, "oracle")[1].total for index in range(4)] == [1.0] * 4


def test_a_form_is_refused_first_and_then_corrected() -> None:
    shown, reward = play(Web(kinds={"form": 1.0}), 0, "oracle")
    assert sum("year-month-day" in text for text in shown) == 2  # after it was sent, and while the date is corrected
    assert any("Sent: " in text for text in shown)
    assert reward.total == 1.0


def test_names_are_clicked_in_a_terse_shop() -> None:
    family = Web(**TERSE)
    shown, reward = play(family, 0, "oracle", 8)
    assert reward.total == 1.0
    assert shown[0].endswith("\n search")
    assert all(len(text.split()) <= 12 for text in shown)
    task = family.task("train", 0)
    asked = task.prompt[0].text.split()
    calls = [
        ("click", {"name": "nothing"}),
        ("search", {"query": f" {asked[0].upper()} "}),
        ("search", {"query": "mug"}),
        ("back", {}),
        ("back", {}),
        ("click", {"name": ""}),
    ]
    told = asyncio.run(trace(family, task, calls))
    assert told[2] == ["error: no"]
    assert len(told[4][0].split()) == 9  # three attributes, names and prices
    assert told[6] == told[10] == told[12] == ["error: no"]  # results have no search, the home page nothing before it
    assert told[3] == told[1]  # a refused action leaves the state


def test_the_question_can_follow_every_page_but_the_first() -> None:
    plain, reward = play(Web(**TERSE), 0, "oracle", 8)
    reminded, same = play(Web(**TERSE, remind=True), 0, "oracle", 8)
    question = Web(**TERSE).task("heldout", 0).prompt[0].text
    assert reminded[0] == plain[0]  # it begins with the question
    # Replies say nothing; what the purchase shows ends the visit like any page.
    assert reminded[1:] == [f"{text}\n{question}" if text else "" for text in plain[1:]]
    assert same.total == reward.total == 1.0


def test_what_fits_half_is_worth_half_or_nothing() -> None:
    for paid, total in (("webshop", 2 / 3), ("success", 0.0)):
        family = Web(**TERSE, reward=paid)
        task = family.task("train", 0)
        visit = make_visit(task.payload, "terse")
        assert visit.purchase is not None
        right = visit.state.site.products[visit.purchase.product]
        names = [("click", {"name": name}) for name in (right.title, "buy")]
        reward = asyncio.run(trace(family, task, [("search", {"query": right.category}), *names]))[-1]
        # Attribute and price fit, and no colour is chosen: 2 of 3.
        parts = {name: reward.part(name) for name in ("fit", "success", "stopped")}
        assert (reward.total, parts) == (total, {"fit": 2 / 3, "success": 0.0, "stopped": 1.0})


def test_a_long_page_is_read_by_scrolling() -> None:
    family = Web(kinds={"shop": 1.0}, window=5)
    calls = [("scroll", {"direction": each}) for each in ("up", "down", "down", "up")]
    told = asyncio.run(trace(family, family.task("train", 0), calls))
    first, up, down, lower, back = told[0].split("\n")[1:], *(shown[0].split("\n") for shown in told[2:10:2])
    assert (
        first
        == up
        == ["[1] link Shop", "[2] link Wiki", "[3] link Contact", "[4] link Cart", "[5] link Orders", "(6 lines below)"]
    )
    assert down[0] == "(5 lines above)"
    assert down[1] == "[6] link Log in"
    assert lower[0] == "(10 lines above)"
    assert back == down


def test_aria_snapshots_are_an_observation_too() -> None:
    family = Web(**{**TERSE, "format": "aria"})
    assert play(family, 0, "oracle")[0][0].endswith('\n- textbox "search"')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"kinds": {"shop": 1.0, "wiki": 1.0}, "actions": "webshop"},
            "actions='webshop' can only buy, and kinds has wiki",
        ),
        ({"format": "short"}, "format='short' shows no numbers"),
        ({"pictures": True}, "pictures=True needs surface='chromium'"),
        ({"surface": "paper"}, "surface='paper'"),
        ({"kinds": {"shopping": 1.0}}, "kinds.shopping=1.0: unknown kind"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Web(**arguments)
    assert message in str(caught.value)


def test_a_surface_that_fails_is_no_answer_of_the_page() -> None:
    async def run() -> None:
        surface = HttpSurface()
        with pytest.raises(EnvironmentFault, match="open it before acting"):
            await surface.act(Back())
        await surface.open(make_visit({"kind": "shop", "seed": 1}, "full").state)
        shared_server().dismiss(surface._visit)
        with pytest.raises(SurfaceError, match="the site answered 403 to GET /cart"):
            await surface.act(Goto("/cart"))

    asyncio.run(run())


def test_the_same_address_again_is_no_new_page_unless_a_form_led_there() -> None:
    history = History(urls=("/", "/cart"))
    assert history.visit("/cart", posted=False) == history
    assert history.visit("/cart", posted=True).urls == ("/", "/cart", "/cart")
    assert history.back().urls == ("/",)
