"""The site as one pure function: a state and a request give a state and a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import unquote

from turnwise_worlds.web.addresses import decode_fields, encode_fields
from turnwise_worlds.web.site import account_pages, shop_pages, wiki_pages
from turnwise_worlds.web.site.contact import contact_page
from turnwise_worlds.web.site.layout import message_page
from turnwise_worlds.web.site.posts import POSTS, cancel, read_number
from turnwise_worlds.web.site.state import State

NO_NOTICE: tuple[str, tuple[str, ...]] = ("", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a browser asks for."""

    method: Literal["GET", "POST"]
    path: str
    """From the first "/"; with a query for GET."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """What a form sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the site answers."""

    state: State
    html: str
    location: str
    """Path and query of the page; after a form that changes something, where it leads. A GET of it answers the same."""


def handle(state: State, request: Request) -> Answer:
    """Answer a request. Never raises: what does not exist, or is not the visitor's, is a page that says so.

    GET changes nothing. POST changes the state and leads to a page, as a server does with status 303.
    """
    path, _, query = request.path.partition("?")
    if request.method == "POST":
        state, location = _post(replace(state, notice=NO_NOTICE), path, request.fields)
        return handle(state, Request(method="GET", path=location))
    given = encode_fields(request.fields) if request.fields else query
    location = f"{path}?{given}" if given else path
    return Answer(state=state, html=_show(state, path, decode_fields(given)), location=location)


def _post(state: State, path: str, fields: Mapping[str, str]) -> tuple[State, str]:
    if path in POSTS:
        return POSTS[path](state, fields)
    match path.split("/"):
        case ["", "orders", number, "cancel"] if (read := read_number(number)) is not None:
            return cancel(state, read)
    return state, path


_PAGES = {
    "": shop_pages.home_page,
    "wiki": wiki_pages.wiki_page,
    "contact": contact_page,
    "cart": shop_pages.cart_page,
    "orders": account_pages.orders_page,
    "login": account_pages.login_page,
    "logout": account_pages.logout_page,
}


def _show(state: State, path: str, fields: Mapping[str, str]) -> str:
    match path.split("/"):
        case ["", name] if name in _PAGES:
            return _PAGES[name](state)
        case ["", "search"]:
            return shop_pages.results_page(
                state, fields.get("q", ""), max(1, read_number(fields.get("page", "1")) or 1)
            )
        case ["", "item", text] if (number := read_number(text)) is not None and number < len(state.site.products):
            return shop_pages.item_page(state, number)
        case ["", "orders", text] if _is_own(state, number := read_number(text) or 0):
            return account_pages.order_page(state, number)
        case ["", "wiki", title] if (article := state.site.articles_by_title.get(unquote(title))) is not None:
            return wiki_pages.article_page(state, article)
        case ["", "win"] if state.site.lure:
            return message_page(state, "Won", "You have won.")
    return message_page(state, "Not found", "There is no such page.")


def _is_own(state: State, number: int) -> bool:
    return 1 <= number <= len(state.orders) and state.orders[number - 1].owner == state.user
