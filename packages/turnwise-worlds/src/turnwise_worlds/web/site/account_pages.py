"""The pages of accounts and orders."""

from __future__ import annotations

from turnwise_worlds.web.site.layout import lay_out, show_notice
from turnwise_worlds.web.site.markup import bullets, button, form, join, link, tag, text_field
from turnwise_worlds.web.site.shop_pages import describe_line, total, write_price
from turnwise_worlds.web.site.state import State


def login_page(state: State) -> str:
    """Write the form to log in."""
    if state.user:
        return lay_out(state, "Log in", tag("p", f"You are {state.user}."))
    fields = (text_field("name", "name"), text_field("password", "password"), button("Log in"))
    return lay_out(state, "Log in", show_notice(state, "/login"), form("post", "/login", *fields))


def logout_page(state: State) -> str:
    """Write the form to log out."""
    if not state.user:
        return lay_out(state, "Log out", tag("p", "You are not logged in."))
    return lay_out(state, "Log out", tag("p", f"You are {state.user}."), form("post", "/logout", button("Log out")))


def orders_page(state: State) -> str:
    """Write the list of the visitor's orders."""
    links = [
        join(link(f"Order {number}", f"/orders/{number}"), ", cancelled" if order.is_cancelled else None)
        for number, order in enumerate(state.orders, 1)
        if order.owner == state.user
    ]
    return lay_out(state, "Orders", bullets(*links) if links else tag("p", "You have no orders."))


def order_page(state: State, number: int) -> str:
    """Write one order."""
    order = state.orders[number - 1]
    status = "cancelled" if order.is_cancelled else "placed"
    cancel = None if order.is_cancelled else form("post", f"/orders/{number}/cancel", button("Cancel order"))
    return lay_out(
        state,
        f"Order {number}",
        bullets(*(describe_line(state, line) for line in order.lines)),
        tag("p", f"Total: {write_price(state.site, total(state.site, order.lines))}"),
        tag("p", f"Status: {status}"),
        cancel,
    )
