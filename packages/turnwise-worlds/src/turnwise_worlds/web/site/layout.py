"""What all pages have in common."""

from __future__ import annotations

from turnwise_worlds.web.site.markup import Content, Markup, bullets, join, link, tag
from turnwise_worlds.web.site.state import State


def lay_out(state: State, title: str, *blocks: Content) -> str:
    """Write a document; full pages have a navigation and a heading."""
    head = tag("head", Markup('<meta charset="utf-8">'), tag("title", title))
    if state.site.style == "terse":
        body = tag("body", *blocks)
    else:
        account = link("Log out", "/logout") if state.user else link("Log in", "/login")
        places = (("Shop", "/"), ("Wiki", "/wiki"), ("Contact", "/contact"), ("Cart", "/cart"), ("Orders", "/orders"))
        menu = tag("nav", bullets(*(link(text, address) for text, address in places), account))
        body = tag("body", menu, tag("main", tag("h1", title), *blocks))
    return f"<!DOCTYPE html>{join(tag('html', head, body, lang='en'))}"


def show_notice(state: State, path: str) -> Markup | None:
    """Write why the page refused what was sent; None if it did not."""
    where, lines = state.notice
    return bullets(*lines) if lines and where == path else None


def message_page(state: State, title: str, text: str) -> str:
    """Write a page with one sentence and the way home."""
    return lay_out(state, title, tag("p", text), tag("p", link("home", "/")))
