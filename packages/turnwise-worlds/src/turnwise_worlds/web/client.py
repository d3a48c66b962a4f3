"""A browser without a screen: its page, its history, and what an action asks of the site. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from turnwise.core.errors import ToolFailure
from turnwise_worlds.web.actions import Action, Back, Click, ClickAt, Goto, Scroll, Select, Stop, Type
from turnwise_worlds.web.page import TICKED, TYPED, Node, Page, options_of
from turnwise_worlds.web.site.handle import Request

LONGEST_TEXT = 200
"""Characters that can be typed into a field, at most."""
_PATH = re.compile(r"/(?:[A-Za-z0-9_?=&+%-][A-Za-z0-9/_.?=&+%-]*)?")


def check_path(path: str) -> str:
    """Return a path of the site that every surface reads alike. Raises ToolFailure for other sites and for what a
    browser would rewrite."""
    if not _PATH.fullmatch(path) or "//" in path or "/." in path or "%2e" in path.lower() or len(path) > LONGEST_TEXT:
        raise ToolFailure("goto opens pages of this site by their path, such as /cart")
    return path


def check_text(text: str) -> str:
    """Return a text that can be typed into a field. Raises ToolFailure for line breaks, other control characters and
    what is too long."""
    if len(text) > LONGEST_TEXT:
        raise ToolFailure(f"at most {LONGEST_TEXT} characters can be typed")
    if not text.isprintable():
        raise ToolFailure("a field takes one line of printable text")
    return text


def find_element(page: Page, number: int) -> Node:
    """Return the element with this number. Raises ToolFailure."""
    node = page.find(number)
    if node is None:
        raise ToolFailure(f"no element [{str(number)[:8]}] on this page")
    return node


def check_typing(page: Page, number: int) -> Node:
    """Return the text field with this number. Raises ToolFailure."""
    node = find_element(page, number)
    if node.role not in TYPED:
        raise ToolFailure(f"[{number}] is a {node.role}; type writes into a textbox")
    return node


def check_choice(page: Page, number: int, option: str) -> Node:
    """Return the list with this number that has this option. Raises ToolFailure."""
    node = find_element(page, number)
    if node.role != "combobox":
        raise ToolFailure(f"[{number}] is a {node.role}; select chooses from a combobox")
    options = options_of(page, number)
    if option not in options:
        raise ToolFailure(f"[{number}] has no such option; use one of: {', '.join(options)}")
    return node


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The addresses that were visited, as a browser keeps them."""

    urls: tuple[str, ...]
    """Paths with queries; the last is that of the page."""

    def visit(self, url: str, *, posted: bool) -> History:
        """Return the history after a page: the same address again replaces its entry, unless a POST led there."""
        if url == self.urls[-1] and not posted:
            return self
        return History(urls=(*self.urls, url))

    def back(self) -> History:
        """Return the history without its last page. Raises ToolFailure at the first page."""
        if len(self.urls) == 1:
            raise ToolFailure("there is no page to go back to")
        return History(urls=self.urls[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What an action comes to: a page that is filled in, or a request and the history that it starts from."""

    page: Page
    history: History
    request: Request | None = None
    """None if nothing is asked of the site."""


def plan_move(page: Page, history: History, action: Action) -> Move:
    """Return what an action does to a page. Raises ToolFailure for what the page refuses."""
    stay = Move(page=page, history=history)
    match action:
        case Click(number):
            return _click(stay, find_element(page, number))
        case Type(number, text, enter):
            node = check_typing(page, number)
            filled = replace(stay, page=page.fill(number, check_text(text)))
            return replace(filled, request=_send(filled.page, node, None)) if enter else filled
        case Select(number, option):
            check_choice(page, number, option)
            return replace(stay, page=page.fill(number, option))
        case Back():
            before = history.back()
            return replace(stay, history=before, request=Request(method="GET", path=before.urls[-1]))
        case Goto(path):
            return replace(stay, request=Request(method="GET", path=check_path(path)))
        case ClickAt():
            raise ToolFailure("this surface has no picture to click at; click by number")
        case Scroll() | Stop():
            return stay


def _click(stay: Move, node: Node) -> Move:
    if node.role == "link":
        return replace(stay, request=Request(method="GET", path=node.target))
    if node.role == "button":
        return replace(stay, request=_send(stay.page, node, node))
    if node.role in TICKED and node.number is not None:
        return replace(stay, page=stay.page.tick(node.number))
    return stay


def _send(page: Page, control: Node, button: Node | None) -> Request | None:
    """Return the request of a control's form; None if it is in none. Enter presses the form's first button."""
    if control.form is None:
        return None
    form = page.forms[control.form]
    inside = [node for node in page.nodes if node.form == control.form]
    button = button or next((node for node in inside if node.role == "button"), None)
    fields: dict[str, str] = dict(form.hidden)
    for node in inside:
        fields |= _field_of(node, button)
    return Request(method="POST" if form.method == "POST" else "GET", path=form.action, fields=fields)


def _field_of(node: Node, button: Node | None) -> Mapping[str, str]:
    if not node.target:
        return {}
    if node.role == "button":
        return {node.target: node.sends} if node == button else {}
    if node.role in TICKED:
        return {node.target: node.sends} if node.value else {}
    return {node.target: node.value}
