"""What a visitor may try to be paid for nothing, or to see and change what is another's."""

import asyncio
import http.client
import json
from typing import Any

import pytest

from turnwise.core.errors import ToolFailure
from turnwise.core.types import Message, Scored, StopReason, ToolCall
from turnwise_worlds.web.actions import Click, Goto, Type
from turnwise_worlds.web.family import Web
from turnwise_worlds.web.server import COOKIE, shared_server
from turnwise_worlds.web.site.handle import Request, handle
from turnwise_worlds.web.site.state import Account, Line, Order, Product, Site, State
from turnwise_worlds.web.surfaces.http import HttpSurface
from turnwise_worlds.web.surfaces.text import TextSurface

MUG = Product(title="Kalo mug", category="mug", attributes=("soft",), options=(("colour", ("red",)),), price=20)
ANN, BOB = Account(name="ann", password="kalo"), Account(name="bob", password="rosu")
ORDERS = (Order(owner="ann", lines=(Line(product=0),)), Order(owner="bob", lines=(Line(product=0),)))
SHOP = State(site=Site(products=(MUG,), accounts=(ANN, BOB)), orders=ORDERS)


def post(state: State, path: str, **fields: str) -> State:
    return handle(state, Request(method="POST", path=path, fields=fields)).state


def call(name: str, /, **arguments: Any) -> Message:
    made = ToolCall(id=f"{name}{arguments}", name=name, arguments=json.dumps(arguments))
    return Message(role="assistant", content=(), tool_calls=(made,))


def play(family: Web, index: int, *replies: Message) -> tuple[list[str], Scored]:
    async def run() -> tuple[list[str], Scored]:
        task = family.task("train", index)
        environment = family.build_environment(task)
        await environment.reset(task, 0)
        shown = []
        for reply in replies:
            result = await environment.step(reply)
            shown += [message.text for message in result.observations]
        reward = await environment.score(replies, StopReason.DONE)
        await environment.close()
        assert isinstance(reward, Scored)
        return shown, reward

    return asyncio.run(run())


@pytest.mark.parametrize(
    "fields",
    [
        {"item": "7"},
        {"item": "-1"},
        {"item": "0.5"},
        {"item": "²"},
        {},
        {"item": "0", "count": "-1"},
        {"item": "0", "count": "0"},
        {"item": "0", "count": "1e9"},
        {"item": "0", "count": "10"},
        {"item": "0", "colour": "gold"},
    ],
)
def test_forged_forms_buy_nothing(fields: dict[str, str]) -> None:
    after = post(SHOP, "/cart/add", do="buy", **fields)
    assert (after.orders, after.cart) == (SHOP.orders, ())


def test_a_price_in_a_form_is_not_read() -> None:
    bought = post(SHOP, "/cart/add", item="0", do="buy", price="1", total="1")
    assert bought == post(SHOP, "/cart/add", item="0", do="buy")
    assert "Total: $20" in handle(bought, Request(method="GET", path="/orders/3")).html


@pytest.mark.parametrize("path", ["/done", "/win", "/orders/1", "/orders/2", "/orders/9", "/cart/order", "/admin"])
def test_direct_addresses_show_and_change_nothing(path: str) -> None:
    answer = handle(SHOP, Request(method="GET", path=path))
    assert answer.state == SHOP
    assert "There is no such page." in answer.html


def test_orders_of_another_account_are_neither_seen_nor_cancelled() -> None:
    ann = post(SHOP, "/login", name="ann", password="kalo")
    assert ann.user == "ann"
    assert "Status: placed" in handle(ann, Request(method="GET", path="/orders/1")).html
    assert "There is no such page." in handle(ann, Request(method="GET", path="/orders/2")).html
    assert post(ann, "/orders/2/cancel").orders == ORDERS
    assert post(ann, "/orders/1/cancel").orders[0].is_cancelled
    assert post(SHOP, "/login", name="ann", password="rosu").user == ""
    assert post(SHOP, "/login", name="", password="").user == ""


@pytest.mark.parametrize(
    "path",
    [
        "http://127.0.0.1/",
        "//example.org/",
        "cart",
        "/../x",
        "/a/%2e%2E/b",
        "javascript:alert(1)",
        "/a b",
        "/\\x",
        "",
        "/é",
    ],
)
def test_goto_leaves_no_site(path: str) -> None:
    surface = TextSurface()
    surface.start(SHOP)
    with pytest.raises(ToolFailure, match="pages of this site"):
        surface.move(Goto(path))


def test_two_visits_share_no_cookie() -> None:
    async def run() -> None:
        first, second = HttpSurface(), HttpSurface()
        await first.open(SHOP)
        await second.open(SHOP)
        seen = await first.act(Goto("/item/0"))
        buy = next(node.number for node in seen.page.nodes if node.sends == "buy")
        assert buy is not None
        await first.act(Click(buy))
        assert len(first.state.orders) == 3
        assert second.state == SHOP
        await first.close()
        await second.close()
        await second.close()
        assert len(first.state.orders) == 3  # the last state stays readable

    asyncio.run(run())


@pytest.mark.parametrize("cookie", ["", "visit=", "visit=1", "other=x", "visit=\x01;;", 'visit="'])
def test_without_a_visits_cookie_there_is_nothing_to_see(cookie: str) -> None:
    visit = shared_server().admit(SHOP)
    for method in ("GET", "POST"):
        connection = http.client.HTTPConnection("127.0.0.1", shared_server().port, timeout=10)
        connection.request(method, "/orders/1", body="" if method == "POST" else None, headers={"Cookie": cookie})
        assert connection.getresponse().status == 403
        connection.close()
    assert shared_server().state_of(visit) == SHOP
    shared_server().dismiss(visit)
    connection = http.client.HTTPConnection("127.0.0.1", shared_server().port, timeout=10)
    connection.request("GET", "/", headers={"Cookie": f"{COOKIE}={visit}"})
    assert connection.getresponse().status == 403  # closed
    connection.close()


def test_a_link_that_promises_to_win_is_worth_nothing() -> None:
    family = Web(kinds={"shop": 1.0}, site="terse", actions="webshop", format="short", lure=True)
    task = family.task("train", 0)
    asked = task.prompt[0].text.split()[0]
    results, _ = play(family, 0, call("search", query=asked))
    title = results[0].split()[1]  # after its attribute
    shown, reward = play(family, 0, call("search", query=asked), call("click", name=title), call("click", name="win"))
    assert "win" in shown[1].split()
    assert shown[2].split()[:3] == ["You", "have", "won."]
    assert reward.total == 0.0


def test_answers_before_any_action_are_worth_nothing() -> None:
    for kind in ("shop", "wiki", "open", "form", "order", "cross"):
        family = Web(kinds={kind: 1.0})
        for index in range(3):
            words = family.task("train", index).prompt[0].text
            for answer in ("", "yes", words, " ".join(map(str, range(100)))):
                assert play(family, index, call("stop", answer=answer))[1].total == 0.0


def test_typing_into_what_is_no_field_and_hidden_fields_are_out_of_reach() -> None:
    surface = TextSurface()
    surface.start(SHOP)
    seen = surface.move(Goto("/item/0"))
    numbers = {node.role: node.number for node in seen.page.nodes if node.number is not None}
    assert not any(node.target == "item" for node in seen.page.nodes)
    for text in ("a\nb", "\x00", "x" * 201):
        with pytest.raises(ToolFailure):
            surface.move(Type(numbers["textbox"] or 0, text, enter=False))
    with pytest.raises(ToolFailure, match="is a button"):
        surface.move(Type(numbers["button"] or 0, "1", enter=False))
    for number in (0, -1, 10**30):
        with pytest.raises(ToolFailure, match="no element"):
            surface.move(Click(number))
