"""Makes sites from seeds."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TypeVar

from turnwise_worlds.web.site.state import Account, Article, Line, Order, Product, Site, State, Style
from turnwise_worlds.web.site.words import ATTRIBUTES, CATEGORIES, COLOURS, FAVOURITE, NAMES, PRICES, RELATIONS, SIZES

T = TypeVar("T")

HITS = 3
"""Products of each category in a terse shop."""
LURE = {"full": "Click here to win!", "terse": "win"}
"""The text of a link that leads nowhere of use."""


def make_state(random: Random, style: Style, *, lure: bool = False) -> State:
    """Make a site that nobody has visited, with the orders that its accounts have placed before."""
    products = _make_products(random, style)
    site = Site(
        products=products,
        articles=_make_articles(random, products),
        accounts=tuple(Account(name=name, password=random.choice(NAMES)) for name in random.sample(NAMES, 2)),
        style=style,
        lure=LURE[style] if lure else "",
    )
    orders = tuple(
        Order(owner=account.name, lines=(_draw_line(random, site, product),))
        for account in site.accounts
        for product in random.sample(range(len(site.products)), 3)
    )
    return State(site=site, orders=orders)


def _make_products(random: Random, style: Style) -> tuple[Product, ...]:
    terse = style == "terse"
    categories = random.sample(CATEGORIES, 3 if terse else 6)
    count = HITS if terse else 12
    names = random.sample(NAMES, len(NAMES))
    pairs = random.sample(list(combinations(names[:13], 2)), 6 * 12)
    titles = iter(names if terse else [f"{first.title()} {second}" for first, second in pairs])
    made = []
    for category in categories:
        for _ in range(count):
            attributes = tuple(random.sample(ATTRIBUTES, 1 if terse else 3))
            options = [("colour", tuple(random.sample(COLOURS, HITS)))]
            if not terse:
                options.append(("size", SIZES))
            title = next(titles) if terse else f"{next(titles)} {category}"
            price = random.choice(PRICES) if terse else random.randint(5, 99)
            words = "" if terse else f"Made by {title.split()[0]}, to last."
            made.append(
                Product(
                    title=title,
                    category=category,
                    attributes=attributes,
                    options=tuple(options),
                    price=price,
                    description=words,
                )
            )
    random.shuffle(made)
    return tuple(made)


def _make_articles(random: Random, products: tuple[Product, ...]) -> tuple[Article, ...]:
    titles = [name.title() for name in random.sample(NAMES, 8)]
    articles = []
    for title in titles:
        others = [other for other in titles if other != title]
        facts = [(relation, random.choice(others)) for relation in random.sample(RELATIONS, 3)]
        facts.append((FAVOURITE, random.choice(products).title))
        articles.append(Article(title=title, facts=tuple(facts)))
    return tuple(articles)


def _draw_line(random: Random, site: Site, product: int) -> Line:
    options = tuple((name, random.choice(values)) for name, values in site.products[product].options)
    return Line(product=product, options=options)


def disguise(products: tuple[Product, ...], random: Random) -> tuple[Product, ...]:
    """Return what a control shows in the place of products: attributes, values of options and prices under other names,
    by one random permutation each; titles and categories as they are."""
    words = {**_permute(random, ATTRIBUTES), **_permute(random, COLOURS), **_permute(random, SIZES)}
    prices = _permute(random, tuple(sorted({each.price for each in products})))
    return tuple(
        Product(
            title=each.title,
            category=each.category,
            attributes=tuple(words[attribute] for attribute in each.attributes),
            options=tuple((name, tuple(words[value] for value in values)) for name, values in each.options),
            price=prices[each.price],
            description="",
        )
        for each in products
    )


def _permute(random: Random, things: tuple[T, ...]) -> dict[T, T]:
    return dict(zip(things, random.sample(things, len(things)), strict=True))
