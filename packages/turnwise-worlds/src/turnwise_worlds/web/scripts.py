"""How each kind of task is done, page by page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from turnwise_worlds.web.actions import Action, Back, Click, Goto, Select, Stop, Type
from turnwise_worlds.web.goals.purchase import Purchase
from turnwise_worlds.web.goals.tasks import Visit
from turnwise_worlds.web.page import TICKED, TYPED, Node, Page

GIVE_UP = Stop("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a scripted visitor knows between two actions."""

    page: Page
    url: str
    urls: tuple[str, ...]
    """All addresses so far."""
    turn: int
    """Replies so far."""
    rng: Random
    skill: float
    """Probability of the right choice."""

    @property
    def is_skilled(self) -> bool:
        """Draws whether the next choice is right."""
        return self.rng.random() < self.skill

    def texts(self) -> list[str]:
        """All names and texts of the page."""
        return [node.name for node in self.page.nodes if node.name]

    def click(self, name: str) -> Action:
        """Return the click on the element with this name, or `GIVE_UP`."""
        node = next((node for node in self.page.nodes if node.number is not None and node.name == name), None)
        return Click(node.number) if node is not None and node.number is not None else GIVE_UP

    def type(self, target: str, text: str, *, enter: bool = False) -> Action:
        """Return the typing into the field with this name, or `GIVE_UP`."""
        node = next((node for node in self.page.nodes if node.role in TYPED and node.target == target), None)
        return Type(node.number, text, enter) if node is not None and node.number is not None else GIVE_UP


def shop(visit: Visit, sight: Sight) -> Action:
    """Search the category, open what is not too dear, return from what does not fit, choose options, buy."""
    goal = visit.purchase
    assert goal is not None, "shop follows tasks that buy"
    if sight.url.startswith("/item/"):
        return _judge_item(goal, sight)
    if sight.url.startswith("/search"):
        return _open_item(goal, sight)
    return sight.type("q", visit.state.site.products[goal.product].category, enter=True)


def read_price(text: str) -> int | None:
    """Return the last number of a text, as a price; None without one."""
    numbers = [word.strip("$") for word in text.split() if word.strip("$").isdigit()]
    return int(numbers[-1]) if numbers else None


def _open_item(goal: Purchase, sight: Sight) -> Action:
    nodes = sight.page.nodes
    hits: list[Node] = []
    likely: list[Node] = []
    for before, node, after in zip(nodes, nodes[1:], nodes[2:], strict=False):
        price = read_price(after.name) if after.role == "text" else None
        if node.target.startswith("/item/") and price is not None:
            hits.append(node)
            # Terse pages tell the attributes.
            told = set(before.name.split()) if before.role == "text" else set()
            if price <= goal.limit and (not told or told.issuperset(goal.attributes)):
                likely.append(node)
    unseen = [node for node in hits if node.target not in sight.urls]
    if sight.is_skilled:
        choices = [node for node in likely if node in unseen]
        if not choices and (turned := sight.click("next")) != GIVE_UP:
            return turned
    else:
        choices = unseen
    choices = choices or unseen or hits
    return Click(sight.rng.choice(choices).number or 0) if choices else GIVE_UP


def _judge_item(goal: Purchase, sight: Sight) -> Action:
    words = {word for text in sight.texts() for word in text.split()}
    prices = [read_price(node.name) for node in sight.page.nodes if node.role == "text"]
    price = next((each for each in prices if each is not None), 0)
    fits = price <= goal.limit and words.issuperset(goal.attributes)
    radios = [node for node in sight.page.nodes if node.role in TICKED]
    has_chosen = any(node.value for node in radios)
    if not fits and not has_chosen and sight.is_skilled:
        return Back()
    for name, value in goal.options:
        group = [node for node in radios if node.target == name]
        if group and not any(node.value for node in group):
            right = next((node for node in group if node.name == value), None)
            node = right if right is not None and sight.is_skilled else sight.rng.choice(group)
            return Click(node.number or 0)
    buy = next((node for node in sight.page.nodes if node.role == "button" and node.sends == "buy"), None)
    return Click(buy.number or 0) if buy is not None else GIVE_UP


def _follow_links(visit: Visit, sight: Sight, last: int) -> Action | None:
    """Return the action of the first turns, along `last` relations from the task's article; None after them."""
    start, *relations = visit.facts[: last + 1]
    if sight.turn == 0:
        return Goto(f"/wiki/{start}")
    if sight.turn > last:
        return None
    return sight.click(_find_fact(sight, relations[sight.turn - 1]))


def _find_fact(sight: Sight, relation: str) -> str:
    """Return what an article says about a relation: the name after it."""
    nodes = sight.page.nodes
    for node, after in pairwise(nodes):
        if node.role == "text" and f" {relation} " in f" {node.name} " and after.role == "link":
            return after.name
    return next((text.split(" is ")[-1].strip(" .") for text in sight.texts() if f" {relation} " in f" {text} "), "")


def _wiki(visit: Visit, sight: Sight) -> Action:
    return _follow_links(visit, sight, 1) or Stop(_find_fact(sight, visit.facts[2]))


def _open(visit: Visit, sight: Sight) -> Action:
    return _follow_links(visit, sight, 2) or GIVE_UP


def _cross(visit: Visit, sight: Sight) -> Action:
    if (action := _follow_links(visit, sight, 1)) is not None:
        return action
    if sight.turn == 2:
        title = _find_fact(sight, "favourite")
        return Goto(f"/search?q={title.replace(' ', '+')}") if title else GIVE_UP
    nodes = sight.page.nodes
    for node, after in pairwise(nodes):
        if node.target.startswith("/item/") and (price := read_price(after.name)) is not None:
            return Stop(str(price))
    return GIVE_UP


def _form(visit: Visit, sight: Sight) -> Action:
    """Write the date as the task does first, and as the page asks for then."""
    name, email, date, written, topic = visit.facts
    combobox = next((node for node in sight.page.nodes if node.role == "combobox"), None)
    steps: list[Action] = [
        Goto("/contact"),
        sight.type("name", name),
        sight.type("email", email),
        sight.type("date", date),
        Select(combobox.number, topic) if combobox is not None and combobox.number is not None else GIVE_UP,
        sight.click("I agree to the terms"),
        sight.click("Send"),
        sight.type("date", written),
        sight.click("Send"),
    ]
    return steps[sight.turn] if sight.turn < len(steps) else GIVE_UP


def _order(visit: Visit, sight: Sight) -> Action:
    name, password, _, number = visit.facts
    steps: list[Action] = [
        Goto("/login"),
        sight.type("name", name),
        sight.type("password", password, enter=True),
        sight.click(f"Order {number}"),
        sight.click("Cancel order"),
    ]
    return steps[sight.turn] if sight.turn < len(steps) else GIVE_UP


SCRIPTS: Mapping[str, Callable[[Visit, Sight], Action]] = {
    "wiki": _wiki,
    "open": _open,
    "cross": _cross,
    "form": _form,
    "order": _order,
}
"""How each kind that is judged by checks is done."""
