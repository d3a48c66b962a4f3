"""WebShop's reward against a second implementation, and WebArena's evaluators by hand."""

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.seeds import rng
from turnwise_worlds.web.goals.evaluators import (
    AnswerCheck,
    Match,
    PageCheck,
    UrlCheck,
    check_visit,
    match_page,
    match_string,
    match_url,
)
from turnwise_worlds.web.goals.purchase import Purchase, compare_types, reward_purchase
from turnwise_worlds.web.site.generate import make_state
from turnwise_worlds.web.site.state import Line, Order, Product, Site, State


def product(title: str, category: str, *attributes: str, price: int = 20) -> Product:
    return Product(title=title, category=category, attributes=attributes, options=(("colour", ("red",)),), price=price)


def reward_by_counting(site: Site, goal: Purchase, line: Line) -> Fraction:
    """The published formula, written a second time: shares of points in whole numbers. On generated sites words are
    equal or far apart, so that equality stands for likeness."""
    bought, wanted = site.products[line.product], site.products[goal.product]
    points, most = 0, 1 + len(goal.attributes) + len(goal.options)
    for attribute in goal.attributes:
        points += 1 if attribute in {*bought.attributes, *bought.title.lower().split()} else 0
    chosen = {value for _, value in line.options}
    points += len([value for _, value in goal.options if value in chosen])
    points += 1 if line.count * bought.price <= goal.limit else 0
    shared = len(set(wanted.title.lower().split()).intersection(bought.title.lower().split()))
    of = len(set(wanted.title.lower().split()))
    if bought.category == wanted.category or 5 * shared > of:
        kind = Fraction(1)
    elif shared == 0:
        kind = Fraction(0)
    else:
        kind = Fraction(1, 10) if 10 * shared < of else Fraction(1, 2)
    return kind * Fraction(points, most)


@given(seed=st.integers(0, 50), draw=st.integers(0, 10**6), style=st.sampled_from(("full", "terse")))
@settings(max_examples=150, deadline=None)
def test_two_implementations_agree_on_random_carts(seed: int, draw: int, style: str) -> None:
    site = make_state(rng(seed, "carts"), "full" if style == "full" else "terse").site
    random = Random(draw)
    wanted, bought = (random.choice(site.products) for _ in range(2))
    if random.random() < 0.5:
        bought = random.choice([each for each in site.products if each.category == wanted.category])
    goal = Purchase(
        product=site.products.index(wanted),
        attributes=wanted.attributes[: random.randint(1, 3)],
        options=tuple((name, random.choice(values)) for name, values in wanted.options),
        limit=random.randint(1, 99),
    )
    options = tuple((name, random.choice(values)) for name, values in bought.options if random.random() < 0.8)
    line = Line(product=site.products.index(bought), options=options, count=random.randint(1, 3))
    assert reward_purchase(site, goal, line) == pytest.approx(float(reward_by_counting(site, goal, line)))


def test_webshops_reward_by_hand() -> None:
    site = Site(
        products=(
            product("Kalo mug", "mug", "soft", "light", price=20),
            product("Rosu mug", "mug", "soft", price=30),
            product("Kalo lamp", "lamp", "soft", price=10),
            product("Tefa lamp", "lamp", "soft", price=10),
        )
    )
    goal = Purchase(product=0, attributes=("soft", "light"), options=(("colour", "red"),), limit=20)
    red = (("colour", "red"),)
    assert reward_purchase(site, goal, Line(product=0, options=red)) == 1.0
    assert reward_purchase(site, goal, Line(product=0)) == 3 / 4  # no colour
    assert reward_purchase(site, goal, Line(product=0, options=red, count=2)) == 3 / 4  # 40 > 20
    assert reward_purchase(site, goal, Line(product=1, options=red)) == 2 / 4  # soft, red; not light, too dear
    assert reward_purchase(site, goal, Line(product=2, options=red)) == 3 / 4  # half of the title: the type counts
    assert reward_purchase(site, goal, Line(product=3, options=red)) == 0.0  # no word of the title


def test_types_by_the_share_of_the_titles_words() -> None:
    def compare(shared: int, of: int) -> float:
        wanted = product(" ".join(f"w{number}" for number in range(of)), "mug")
        bought = product(" ".join(f"w{number}" for number in range(shared)) + " x", "lamp")
        return compare_types(Site(products=(wanted, bought)), 0, 1)

    assert [compare(*each) for each in ((0, 5), (1, 11), (1, 10), (1, 5), (2, 5))] == [0.0, 0.1, 0.5, 0.5, 1.0]


@pytest.mark.parametrize(
    ("match", "answer", "wanted", "holds"),
    [
        ("exact", ' "Kalo" ', ("kalo",), True),
        ("exact", "kalo rosu", ("kalo",), False),
        ("exact", "", ("",), False),
        ("must_include", "It costs $25.", ("25",), True),
        ("must_include", "It costs $250.", ("25",), False),
        ("must_include", "kalo mug and lamp", ("kalo mug", "lamp"), True),
        ("must_include", "kalo", ("kalo", "lamp"), False),
        ("must_include", "kalo", (), False),
        ("must_include", "3", ("65 |OR| 3",), True),
        ("exact", "kalo", ("rosu |OR| Kalo",), True),
        ("must_include", "it is $0.00.", ("0",), True),
        ("must_include", "Score: 0. Method", ("0",), True),
        ("must_include", "$10.00 or 20", ("0",), False),
        ("must_include", "000000170", ("170",), True),
        ("must_include", "1,250", ("1250",), True),
        ("must_include", "I could not determine it", ("mi",), False),
        ("exact", "kalo", ("kalo", "rosu"), False),
        ("fuzzy", "kalo mugs", ("kalo mug",), True),
        ("fuzzy", "a lamp", ("kalo mug",), False),
    ],
)
def test_answers_are_compared(match: Match, answer: str, wanted: tuple[str, ...], holds: bool) -> None:
    assert match_string(match, answer, wanted) is holds


@pytest.mark.parametrize(
    ("url", "wanted", "holds"),
    [
        ("/wiki/Kalo", ("/wiki/Kalo",), True),
        ("/wiki/Kalo/", ("/wiki/Kalo",), True),
        ("/wiki/Kalo2", ("/wiki/Kalo",), False),
        ("/search?q=xbox", ("/search/?q=xbox",), True),
        ("/search?q=mug&page=2", ("/search?page=2",), True),
        ("/search?q=mug", ("/search?page=2",), False),
        ("/search?q=mug", ("/cart", "/search?q=mug"), True),
        ("/search?q=mug", (), False),
    ],
)
def test_addresses_are_compared(url: str, wanted: tuple[str, ...], holds: bool) -> None:
    assert match_url(url, wanted) is holds


def test_pages_are_asked_of_the_state_and_all_checks_must_hold() -> None:
    site = Site(products=(product("Kalo mug", "mug"),))
    state = State(site=site, orders=(Order(owner="ann", lines=(Line(product=0),), is_cancelled=True),))
    cancelled = PageCheck(path="/orders/1", user="ann", includes=("Status: cancelled",), excludes=("placed",))
    assert match_page(cancelled, state)
    assert not match_page(PageCheck(path="/orders/1", includes=("Status: cancelled",)), state)  # another's order
    assert not match_page(PageCheck(path="/orders/1", user="ann", excludes=("cancelled",)), state)
    checks = (cancelled, UrlCheck(wanted=("/orders",)), AnswerCheck(match="exact", wanted=("done",)))
    assert check_visit(checks, "Done", "/orders", state) == 1.0
    assert check_visit(checks, "Done", "/", state) == 0.0
    assert check_visit(checks, "", "/orders", state) == 0.0
