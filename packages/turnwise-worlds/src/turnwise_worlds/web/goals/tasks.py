"""Makes tasks from seeds: a site, what is asked, and how it is judged."""

from __future__ import annotations

from calendar import month_name
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from typing import Any, Literal

from turnwise.core.seeds import rng
from turnwise_worlds.web.goals.evaluators import AnswerCheck, Check, PageCheck, UrlCheck
from turnwise_worlds.web.goals.purchase import Purchase
from turnwise_worlds.web.site.contact import TOPICS
from turnwise_worlds.web.site.generate import disguise, make_state
from turnwise_worlds.web.site.state import Article, Product, State, Style
from turnwise_worlds.web.site.words import ATTRIBUTES, FAVOURITE, MONTHS, NAMES, PRICES

Kind = Literal["shop", "wiki", "open", "form", "order", "cross"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A task, made."""

    state: State
    """Before the first action."""
    question: str
    purchase: Purchase | None = None
    """What is to be bought; None for tasks that are judged by checks."""
    checks: tuple[Check, ...] = ()
    facts: tuple[str, ...] = ()
    """What scripted visitors follow; what each is depends on the kind."""


def make_visit(payload: Mapping[str, Any], style: Style, *, lure: bool = False, disguised: bool = False) -> Visit:
    """Make the task of a payload, a kind and a seed; with a link that lures, or with other names on the pages."""
    return _make(payload["kind"], int(payload["seed"]), style, lure, disguised)


@lru_cache(maxsize=256)
def _make(kind: Kind, seed: int, style: Style, lure: bool, disguised: bool) -> Visit:
    random = rng(seed, "web", kind)
    visit = MAKERS[kind](random, make_state(random, style, lure=lure))
    if disguised:
        site = visit.state.site
        shown = disguise(site.products, rng(seed, "web", "disguise"))
        visit = replace(visit, state=replace(visit.state, site=replace(site, shown=shown)))
    return visit


def _ask(state: State, full: str, short: str) -> str:
    return full if state.site.style == "full" else short


def _make_shop(random: Random, state: State) -> Visit:
    """A product with rivals of its category: one that is too dear, the others without its attributes."""
    products = list(state.site.products)
    wanted = random.randrange(len(products))
    goal = products[wanted]
    limit = goal.price
    rivals = [each for each, rival in enumerate(products) if rival.category == goal.category and each != wanted]
    if state.site.style == "terse":
        limit = random.choice(PRICES[1:-1])
        goal = replace(goal, price=random.choice([each for each in PRICES if each <= limit]))
        dear = random.choice([each for each in PRICES if each > limit])
        products[wanted] = goal
        products[rivals[0]] = replace(products[rivals[0]], attributes=goal.attributes, price=dear)
    else:
        first = products[rivals[0]]
        products[rivals[0]] = replace(first, attributes=goal.attributes, price=limit + random.randint(1, 40))
    for rival in rivals[1:]:
        products[rival] = _without(products[rival], goal.attributes[0], random)
    options = tuple((name, random.choice(values)) for name, values in goal.options)
    attributes = goal.attributes[:2]
    chosen = " ".join(value for _, value in options)
    question = _ask(
        state,
        f"Buy a {goal.category} that is {' and '.join(attributes)}, with {_join(options)}, for at most ${limit}.",
        f" {goal.category} {' '.join(attributes)} {chosen} {limit}",
    )
    site = replace(state.site, products=tuple(products))
    purchase = Purchase(product=wanted, attributes=attributes, options=options, limit=limit)
    return Visit(state=replace(state, site=site), question=question, purchase=purchase)


def _without(product: Product, attribute: str, random: Random) -> Product:
    """Return a product without an attribute."""
    others = [each for each in ATTRIBUTES if each != attribute and each not in product.attributes]
    attributes = tuple(random.choice(others) if each == attribute else each for each in product.attributes)
    return replace(product, attributes=attributes)


def _join(options: tuple[tuple[str, str], ...]) -> str:
    return " and ".join(f"{name} {value}" for name, value in options)


def _walk(random: Random, state: State) -> tuple[Article, str, Article]:
    """Draw an article, and a relation that leads to a second one."""
    start = random.choice(state.site.articles)
    relation, middle = random.choice([fact for fact in start.facts if fact[1] in state.site.articles_by_title])
    return start, relation, state.site.articles_by_title[middle]


def _find_end(random: Random, state: State) -> tuple[str, str, str, str]:
    """Draw an article, two relations, and the article to which they lead, one after the other."""
    start, first, middle = _walk(random, state)
    second, end = random.choice([fact for fact in middle.facts if fact[1] in state.site.articles_by_title])
    return start.title, first, second, end


def _make_wiki(random: Random, state: State) -> Visit:
    """The name at the end of two links."""
    start, first, second, end = _find_end(random, state)
    question = _ask(
        state, f"Who is the {second} of the {first} of {start}? Stop with the name.", f" {second} {first} {start}"
    )
    check = AnswerCheck(match="exact", wanted=(end,))
    return Visit(state=state, question=question, checks=(check,), facts=(start, first, second, end))


def _make_open(random: Random, state: State) -> Visit:
    """A page to open and to stop at."""
    start, first, second, end = _find_end(random, state)
    question = _ask(
        state,
        f"Open the wiki's page about the {second} of the {first} of {start}, and stop there.",
        f" open {second} {first} {start}",
    )
    check = UrlCheck(wanted=(f"/wiki/{end}",))
    return Visit(state=state, question=question, checks=(check,), facts=(start, first, second, end))


def _make_form(random: Random, state: State) -> Visit:
    """A form to send, which refuses the date as the task writes it."""
    name, host = random.sample(NAMES, 2)
    topic, month = random.choice(TOPICS), random.choice(MONTHS)
    day, year = random.randint(1, 28), random.randint(2025, 2035)
    email, date = f"{name}@{host}.org", f"{day} {month} {year}"
    written = f"{year}-{_number_of(month):02d}-{day:02d}"
    question = _ask(
        state,
        f"Send the contact form: name {name}, email {email}, date {date}, topic {topic}; agree to the terms. Stop.",
        f" contact {name} {email} {date} {topic}",
    )
    check = PageCheck(path="/contact", includes=(f"Sent: {name}, {email}, {written}, {topic}",))
    return Visit(state=state, question=question, checks=(check,), facts=(name, email, date, written, topic))


def _number_of(month: str) -> int:
    return list(month_name).index(month)


def _make_order(random: Random, state: State) -> Visit:
    """One of an account's orders to cancel, and no other."""
    account = random.choice(state.site.accounts)
    own = [number for number, order in enumerate(state.orders, 1) if order.owner == account.name]
    number = random.choice(own)
    title = state.site.products[state.orders[number - 1].lines[0].product].title
    question = _ask(
        state,
        f"You are {account.name}, with the password {account.password}. Cancel your order of {title}, then stop.",
        f" cancel {title} {account.name} {account.password}",
    )
    checks = tuple(
        PageCheck(
            path=f"/orders/{each}",
            user=account.name,
            includes=(f"Status: {'cancelled' if each == number else 'placed'}",),
        )
        for each in own
    )
    return Visit(
        state=state, question=question, checks=checks, facts=(account.name, account.password, title, str(number))
    )


def _make_cross(random: Random, state: State) -> Visit:
    """The shop's price of what the wiki names."""
    start, relation, middle = _walk(random, state)
    title = dict(middle.facts)[FAVOURITE]
    product = next(each for each in state.site.products if each.title == title)
    question = _ask(
        state,
        f"What does the favourite thing of the {relation} of {start.title} cost? Stop with the number.",
        f" price favourite {relation} {start.title}",
    )
    check = AnswerCheck(match="exact", wanted=(str(product.price),))
    return Visit(
        state=state, question=question, checks=(check,), facts=(start.title, relation, title, str(product.price))
    )


MAKERS: Mapping[Kind, Callable[[Random, State], Visit]] = {
    "shop": _make_shop,
    "wiki": _make_wiki,
    "open": _make_open,
    "form": _make_form,
    "order": _make_order,
    "cross": _make_cross,
}
"""How each kind of task is made."""
