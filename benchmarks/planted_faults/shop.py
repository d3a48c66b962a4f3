"""Faults planted in visits: of the terse shop, and of the other tasks of the full site."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from planted_faults.script import Planted, Reply, follow, write_nonsense
from turnwise.core.types import Message, Task, ToolCall
from turnwise_worlds.web.arguments import WebArguments
from turnwise_worlds.web.environment import Shown, WebEnvironment
from turnwise_worlds.web.family import Web
from turnwise_worlds.web.goals.tasks import make_visit
from turnwise_worlds.web.named import NamedEnvironment
from turnwise_worlds.web.policies import follow as go
from turnwise_worlds.web.policies import write_call
from turnwise_worlds.web.scripts import Sight

SHOP = {
    "site": "terse",
    "actions": "webshop",
    "format": "short",
    "kinds": {"shop": 1.0},
    "reward": "success",
    "remind": True,
}
"""The visits of the recipe web/shop."""
OTHERS = ("wiki", "open", "form", "order", "cross")


def call(tool: str, /, **arguments: object) -> Message:
    """A reply with one call."""
    return Message(
        role="assistant",
        content=(),
        tool_calls=(ToolCall(id="call_0", name=tool, arguments=json.dumps(arguments)),),
    )


class _DownEnvironment(NamedEnvironment):
    """A visit of a site that is down."""

    async def act(self, choose: object) -> Shown:  # type: ignore[override]
        """Raise."""
        raise RuntimeError("the site is down")


class _DownFamily(Web):
    """Visits of a site that is down."""

    def build_environment(self, task: Task) -> WebEnvironment:
        """A visit whose actions fail."""
        return _DownEnvironment(self._chosen, task)


class ShopFaults:
    """Plants every fault of the family in its tasks."""

    def __init__(self) -> None:
        self.family = Web(**SHOP)
        self._down = _DownFamily(**SHOP)
        self._full = {kind: Web(site="full", kinds={kind: 1.0}) for kind in ("shop", *OTHERS)}

    def plant(self, index: int) -> Iterator[Planted]:
        """Yield an attempt for every fault that can be planted in the task at `index` of the held-out split."""
        task, random = self.family.task("heldout", index), Random(index)
        visit = make_visit(task.payload, "terse")
        goal, products = visit.purchase, visit.state.site.products
        assert goal is not None
        wanted = products[goal.product]
        given: dict[str, Any] = {"family": self.family, "task": task, "index": index}
        search = call("search", query=wanted.category)
        options = [call("click", name=value) for _, value in goal.options]
        open_right, buy = call("click", name=wanted.title), call("click", name="buy")
        alike = [each for each in products if each.category == wanted.category and each is not wanted]
        lacking = [each for each in alike if not set(each.attributes).issuperset(goal.attributes)]
        dear = [each for each in alike if each not in lacking and each.price > goal.limit]
        strange = [each for each in products if each.category != wanted.category]
        misfit, stranger = random.choice(lacking), random.choice(strange)
        seek = call("search", query=stranger.category)

        def plant(
            name: str, turn: int, *replies: Reply, loop: Sequence[Reply] = (), diverges: int | None = None
        ) -> Planted:
            return Planted(name=name, turn=turn, replies=replies, loop=loop, max_turns=10, diverges=diverges, **given)

        def open_(title: str) -> Message:
            return call("click", name=title)

        yield plant("wrong search", 0, seek, open_(stranger.title), buy)
        yield plant("wrong kind of thing", 3, search, call("back"), seek, open_(stranger.title), buy, diverges=1)
        yield plant("wrong attribute", 1, search, open_(misfit.title), *options, buy)
        if dear:
            yield plant("too dear", 1, search, open_(dear[0].title), *options, buy)
        name, value = random.choice(goal.options)
        values = [each for each in dict(wanted.options)[name] if each != value]
        if values:
            chosen = [random.choice(values) if each == (name, value) else each[1] for each in goal.options]
            clicks = [call("click", name=each) for each in chosen]
            at = 2 + list(goal.options).index((name, value))
            yield plant("wrong option", at, search, open_right, *clicks, buy)
        yield plant("option not chosen", 2, search, open_right, buy)
        yield plant("opened and not bought", 3, search, open_right, call("back"), open_(misfit.title), buy, diverges=2)
        yield plant("gave up", 1, search, call("stop"))
        yield plant("format", 1, search, loop=[write_nonsense()])
        shelves = [*{each.category: each for each in strange}.values(), misfit]
        browse = [
            reply
            for each in shelves
            for reply in (call("search", query=each.category), open_(each.title), call("back"), call("back"))
        ]
        if len(browse) >= 10:
            yield plant("limit", 9, *browse[:10], diverges=0)
        yield plant("repeated itself", 3, search, diverges=1, loop=[open_(misfit.title), call("back")])
        down = [search, call("stop")]
        yield Planted(name="tool failure", turn=0, replies=down, **{**given, "family": self._down})
        yield from self._plant_full(index, random)

    def _plant_full(self, index: int, random: Random) -> Iterator[Planted]:
        """Faults of the full site, with numbered elements."""
        kind = (*OTHERS, "shop")[index % (len(OTHERS) + 1)]
        family = self._full[kind]
        task = family.task("heldout", index)
        visit = make_visit(task.payload, "full")
        given: dict[str, Any] = {"family": family, "task": task, "index": index, "max_turns": 12}
        oracle, stop = follow(family.policy("oracle"), task), call("stop", answer="nobody")
        if visit.purchase is not None:
            goal, products = visit.purchase, visit.state.site.products
            strange = next(n for n, each in enumerate(products) if each.category != products[goal.product].category)
            buy = _click("Buy now", family, task)
            yield Planted(name="never searched", turn=0, replies=[call("goto", path=f"/item/{strange}"), buy], **given)
        elif kind == "open":
            yield Planted(name="stopped at the wrong page", turn=2, replies=[oracle, oracle, call("stop")], **given)
        elif kind in ("wiki", "cross"):
            reads = 2 if kind == "wiki" else 3
            yield Planted(name="read and not used", turn=reads, replies=[oracle] * reads + [stop], **given)
            yield Planted(name="right page not read", turn=1, replies=[oracle, stop], **given)
        else:
            done = random.randint(1, 3)
            yield Planted(
                name="stopped before it was done", turn=done, replies=[oracle] * done + [call("stop")], **given
            )


def _click(name: str, family: Web, task: Task) -> Reply:
    """Click on the element that is called so, by its number."""

    def reply(messages: Sequence[Message]) -> Message:
        chosen: WebArguments = family._chosen
        seen, urls = go(chosen, task, messages)
        sight = Sight(page=seen.page, url=seen.url, urls=urls, turn=0, rng=Random(0), skill=1.0)
        return write_call(sight.click(name), seen.page, chosen, len(messages))

    return reply
