"""The site: what its requests do, what it refuses, and that no request ends it."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.seeds import rng
from turnwise_worlds.web.goals.tasks import make_visit
from turnwise_worlds.web.site.generate import make_state
from turnwise_worlds.web.site.handle import Request, handle
from turnwise_worlds.web.site.posts import POSTS
from turnwise_worlds.web.site.search import find_products
from turnwise_worlds.web.site.state import Article, Line, Order, Product, Site, State


def product(title: str, category: str = "mug", price: int = 20) -> Product:
    colours = (("colour", ("red", "blue")),)
    return Product(title=title, category=category, attributes=("soft",), options=colours, price=price)


SHOP = State(site=Site(products=(product("Kalo mug"), product("Rosu mug", price=9), product("Kalo lamp", "lamp"))))
FIELDS = ("item", "colour", "count", "do", "line", "name", "password", "email", "date", "topic", "agree", "q", "page")
PATHS = (
    *POSTS,
    "/",
    "/search",
    "/item/0",
    "/item/99",
    "/orders/1",
    "/orders/1/cancel",
    "/wiki/%zz",
    "",
    "x",
    "/item/²",
)
REQUESTS = st.builds(
    Request,
    method=st.sampled_from(("GET", "POST")),
    path=st.sampled_from(PATHS) | st.text(max_size=20).map(lambda text: f"/{text}"),
    fields=st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(("0", "1", "red", "buy", "-1", "")) | st.text()),
)


def post(state: State, path: str, **fields: str) -> State:
    return handle(state, Request(method="POST", path=path, fields=fields)).state


@given(requests=st.lists(REQUESTS, max_size=6), seed=st.integers(0, 9))
@settings(max_examples=80, deadline=None)
def test_no_request_ends_the_site_and_a_page_can_be_asked_for_again(requests: list[Request], seed: int) -> None:
    state = make_state(rng(seed, "site"), "terse" if seed % 2 else "full", lure=seed % 3 == 0)
    for request in requests:
        answer = handle(state, request)
        assert answer.html.startswith("<!DOCTYPE html>")
        if request.method == "GET":
            assert answer.state == state  # GET changes nothing
        again = handle(answer.state, Request(method="GET", path=answer.location))
        assert (again.state, again.html) == (answer.state, answer.html)
        state = answer.state
    assert hash(state) == hash(replace(state))
    assert replace(state, user="").digest == replace(state, user="").digest


def test_a_purchase_by_hand() -> None:
    bought = post(SHOP, "/cart/add", item="1", colour="blue", count="2", do="buy")
    line = Line(product=1, options=(("colour", "blue"),), count=2)
    assert bought == replace(SHOP, orders=(Order(owner="", lines=(line,)),))
    cart = post(SHOP, "/cart/add", item="1", colour="blue", count="2", do="add")
    assert cart == replace(SHOP, cart=(line,))
    assert post(cart, "/cart/order") == bought
    assert post(cart, "/cart/remove", line="0") == SHOP
    page = handle(cart, Request(method="GET", path="/cart")).html
    assert "2 x Rosu mug, colour: blue, $18" in page  # 2 * 9


def test_search_ranks_by_words_that_few_products_have() -> None:
    # "kalo" and "mug" have two of three products each, both weigh log(1 + 3/2); 0 has both, 1 and 2 one each.
    assert find_products(SHOP.site, "KALO, mug") == [0, 1, 2]
    # "lamp" has one product and weighs log(1 + 3) > log(1 + 3/2).
    assert find_products(SHOP.site, "mug lamp") == [2, 0, 1]
    assert find_products(SHOP.site, "chair") == find_products(SHOP.site, "") == []


def test_results_come_in_pages() -> None:
    site = Site(products=tuple(product(f"Kalo {number} mug") for number in range(25)))
    pages = [
        handle(State(site=site), Request(method="GET", path=f"/search?q=mug&page={page}")).html for page in (1, 2, 3, 4)
    ]
    assert [page.count('href="/item/') for page in pages] == [10, 10, 5, 0]
    assert [("next" in page, "previous" in page) for page in pages] == [
        (True, False),
        (True, True),
        (False, True),
        (False, False),
    ]


def test_texts_of_the_site_are_escaped() -> None:
    site = Site(products=(product('<b>Kalo</b> & "co"'),), articles=(Article(title="A", facts=(("x", "<i>"),)),))
    for path in ("/search?q=kalo", "/item/0", "/wiki/A", "/search?q=<script>"):
        html = handle(State(site=site), Request(method="GET", path=path)).html
        assert not any(mark in html for mark in ("<b>", "<i>", "<script>"))


def test_a_refused_form_keeps_what_was_written_and_says_why() -> None:
    fields = {"name": "Kalo", "email": "a@b.org", "date": "3 May 2031", "topic": "return", "agree": "yes"}
    refused = handle(SHOP, Request(method="POST", path="/contact", fields=fields))
    assert "year-month-day" in refused.html
    assert 'value="3 May 2031"' in refused.html
    assert refused.state.messages == ()
    accepted = post(refused.state, "/contact", **{**fields, "date": "2031-05-03"})
    assert accepted.messages == (tuple({**fields, "date": "2031-05-03"}.items()),)
    assert accepted.entries == ()
    assert accepted.notice == ("", ())


def test_the_same_seed_makes_the_same_task_and_another_makes_another() -> None:
    for kind in ("shop", "wiki", "open", "form", "order", "cross"):
        visits = [make_visit({"kind": kind, "seed": seed}, "full") for seed in (1, 1, 2)]
        assert visits[0] == visits[1]
        assert visits[0].question != visits[2].question
