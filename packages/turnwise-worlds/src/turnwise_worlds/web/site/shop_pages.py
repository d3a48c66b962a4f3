"""The pages of the shop."""

from __future__ import annotations

from turnwise_worlds.web.addresses import encode_fields
from turnwise_worlds.web.site.layout import lay_out, show_notice
from turnwise_worlds.web.site.markup import Markup, bullets, button, form, join, link, tag, text_field, ticked
from turnwise_worlds.web.site.search import find_products
from turnwise_worlds.web.site.state import Line, Site, State


def write_price(site: Site, price: int) -> str:
    """Write a price: "$25", in terse pages "25"."""
    return f"${price}" if site.style == "full" else str(price)


def search_form(query: str = "") -> Markup:
    """Write the form that searches."""
    return form("get", "/search", text_field("search", "q", query), button("go"))


def home_page(state: State) -> str:
    """Write the home page."""
    if state.site.style == "terse":
        return lay_out(state, "shop", form("get", "/search", tag("input", type="text", aria_label="search", name="q")))
    return lay_out(state, "Shop", search_form(), tag("p", f"{len(state.site.products)} things to buy."))


def results_page(state: State, query: str, number: int) -> str:
    """Write one page of what a query finds; `number` counts from 1."""
    site = state.site
    hits = find_products(site, query)
    start = (number - 1) * site.hits_per_page
    shown = hits[start : start + site.hits_per_page]
    items = [_list_hit(site, hit) for hit in shown]
    turns = [
        link(text, f"/search?{encode_fields({'q': query, 'page': str(page)})}")
        for text, page, exists in (
            ("previous", number - 1, start > 0),
            ("next", number + 1, hits[start + len(shown) :]),
        )
        if exists and shown
    ]
    found = bullets(*items) if items else tag("p", "nothing found")
    form_again = search_form(query) if site.style == "full" else None
    return lay_out(state, f"Results for {query}", form_again, found, join(*(tag("p", each) for each in turns)))


def _list_hit(site: Site, number: int) -> Markup:
    """Write a product among others; in terse pages its attributes come first, as names do not tell them."""
    face = site.faces[number]
    told = f"{' '.join(face.attributes)} " if site.style == "terse" else ""
    return join(told, link(face.title, f"/item/{number}"), " ", write_price(site, face.price))


def item_page(state: State, number: int) -> str:
    """Write the page of a product."""
    site, face = state.site, state.site.faces[number]
    terse = site.style == "terse"
    choices = [_choices(terse, name, values) for name, values in face.options]
    buttons = [button("buy", "do", "buy")]
    if not terse:
        buttons = [button("Add to cart", "do", "add"), button("Buy now", "do", "buy")]
    price, count = write_price(site, face.price), None if terse else text_field("count", "count", "1")
    facts = tag("p", f"{price} {' '.join(face.attributes)}") if terse else bullets(*face.attributes)
    return lay_out(
        state,
        face.title,
        tag("p", link(site.lure, "/win")) if site.lure else None,
        *((tag("p", f"Price: {price}"), tag("p", face.description)) if not terse else ()),
        facts,
        show_notice(state, f"/item/{number}"),
        form("post", "/cart/add", *choices, count, *buttons, item=str(number)),
    )


def _choices(terse: bool, name: str, values: tuple[str, ...]) -> Markup:
    if terse:
        boxes = (tag("input", type="radio", name=name, value=each, aria_label=each) for each in values)
        return tag("div", *boxes)
    return tag("fieldset", tag("legend", name), *(ticked("radio", each, name, each) for each in values))


def describe_line(state: State, line: Line) -> str:
    """Write a line of a cart or an order."""
    face = state.site.faces[line.product]
    chosen = "".join(f", {name}: {value}" for name, value in line.options)
    return f"{line.count} x {face.title}{chosen}, {write_price(state.site, face.price * line.count)}"


def total(site: Site, lines: tuple[Line, ...]) -> int:
    """Return the price of some lines."""
    return sum(site.faces[line.product].price * line.count for line in lines)


def cart_page(state: State) -> str:
    """Write the cart."""
    if not state.cart:
        return lay_out(state, "Cart", tag("p", "The cart is empty."), show_notice(state, "/cart"))
    lines = [
        join(describe_line(state, line), form("post", "/cart/remove", button("Remove"), line=str(place)))
        for place, line in enumerate(state.cart)
    ]
    pay = tag("p", f"Total: {write_price(state.site, total(state.site, state.cart))}")
    order = form("post", "/cart/order", button("Place order"))
    return lay_out(state, "Cart", bullets(*lines), pay, show_notice(state, "/cart"), order)
