"""What the site's forms do to its state."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from turnwise_worlds.web.site.contact import FIELDS, find_errors
from turnwise_worlds.web.site.state import Line, Order, State

Outcome = tuple[State, str]
"""The state after a form, and the path of the page to show."""
MOST_COUNT = 9
"""Of one product in a line."""
MOST_LINES = 50
"""In a cart; as many orders and messages."""


def read_number(text: str) -> int | None:
    """Return a whole number from 0 of at most six digits; None for any other text."""
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) else None


def refuse(state: State, path: str, *lines: str) -> Outcome:
    """Return the state with a notice on that page."""
    return replace(state, notice=(path, lines)), path


def add(state: State, fields: Mapping[str, str]) -> Outcome:
    """Put a product into the cart, or buy it at once if the field `do` is "buy". Prices are never read from a form."""
    number = read_number(fields.get("item", ""))
    if number is None or number >= len(state.site.products):
        return refuse(state, "/cart", "no such item")
    here, options = f"/item/{number}", []
    for place, (name, values) in enumerate(state.site.faces[number].options):
        chosen = fields.get(name)
        if chosen is not None and chosen not in values:
            return refuse(state, here, f"no such {name}")
        if chosen is not None:
            options.append((name, state.site.products[number].options[place][1][values.index(chosen)]))
    count = read_number(fields.get("count", "1"))
    if count is None or not 1 <= count <= MOST_COUNT:
        return refuse(state, here, f"count: write a number from 1 to {MOST_COUNT}")
    line = Line(product=number, options=tuple(options), count=count)
    if fields.get("do") == "buy":
        return _place(state, (line,), here)
    if len(state.cart) >= MOST_LINES:
        return refuse(state, "/cart", "the cart is full")
    return replace(state, cart=(*state.cart, line)), "/cart"


def remove(state: State, fields: Mapping[str, str]) -> Outcome:
    """Take a line out of the cart."""
    place = read_number(fields.get("line", ""))
    if place is None or place >= len(state.cart):
        return refuse(state, "/cart", "no such line")
    return replace(state, cart=state.cart[:place] + state.cart[place + 1 :]), "/cart"


def order(state: State, fields: Mapping[str, str]) -> Outcome:
    """Order what is in the cart."""
    if not state.cart:
        return refuse(state, "/cart", "the cart is empty")
    return _place(replace(state, cart=()), state.cart, "/cart")


def _place(state: State, lines: tuple[Line, ...], here: str) -> Outcome:
    if len(state.orders) >= MOST_LINES:
        return refuse(state, here, "too many orders")
    placed = replace(state, orders=(*state.orders, Order(owner=state.user, lines=lines)))
    return placed, f"/orders/{len(placed.orders)}"


def cancel(state: State, number: int) -> Outcome:
    """Cancel one of the visitor's orders."""
    if not 1 <= number <= len(state.orders) or state.orders[number - 1].owner != state.user:
        return refuse(state, "/orders", "no such order")
    orders = list(state.orders)
    orders[number - 1] = replace(orders[number - 1], is_cancelled=True)
    return replace(state, orders=tuple(orders)), f"/orders/{number}"


def login(state: State, fields: Mapping[str, str]) -> Outcome:
    """Log in; a wrong name and a wrong password read the same."""
    given = (fields.get("name", ""), fields.get("password", ""))
    if any((account.name, account.password) == given for account in state.site.accounts):
        return replace(state, user=given[0]), "/orders"
    return refuse(state, "/login", "wrong name or password")


def logout(state: State, fields: Mapping[str, str]) -> Outcome:
    """Log out."""
    return replace(state, user=""), "/login"


def contact(state: State, fields: Mapping[str, str]) -> Outcome:
    """Accept what the contact form sent, or show it again to be corrected."""
    entries = tuple((name, fields[name][:200]) for name in FIELDS if name in fields)
    errors = find_errors(dict(entries))
    if errors:
        return refuse(replace(state, entries=entries), "/contact", *errors)
    if len(state.messages) >= MOST_LINES:
        return refuse(state, "/contact", "too many messages")
    return replace(state, messages=(*state.messages, entries), entries=()), "/contact"


POSTS: Mapping[str, Callable[[State, Mapping[str, str]], Outcome]] = {
    "/cart/add": add,
    "/cart/remove": remove,
    "/cart/order": order,
    "/login": login,
    "/logout": logout,
    "/contact": contact,
}
"""What each form's address does."""
