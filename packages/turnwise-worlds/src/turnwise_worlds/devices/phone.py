"""AndroidWorld's actions (Rawles et al., arXiv 2405.14573): JSON objects with "action_type".

Deviations: `input_text` does not press enter; a double tap is a tap; elements are numbered from 0 in the order of the
whole page, so that scrolling does not change their numbers, and only those on the screen can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from turnwise.core.errors import ToolFailure
from turnwise_worlds.devices.replies import read_text, read_whole
from turnwise_worlds.devices.screen import Screen, find_app
from turnwise_worlds.devices.session import Session

STATUSES = ("complete", "infeasible")
_DOWN = {"down": 1, "up": -1, "left": 0, "right": 0}
"""Screens by which a scroll moves; pages are never wider than the screen."""


def _find_element(screen: Screen, given: Mapping[str, Any]) -> int | None:
    index, x, y = (read_whole(given, name) for name in ("index", "x", "y"))
    if index is not None:
        if x is not None or y is not None:
            raise ToolFailure("give index, or x and y")
        return screen.check_visible(index + 1)
    if x is None or y is None:
        raise ToolFailure("give index, or x and y")
    return screen.find_at(x, y)


def _tap(session: Session, given: Mapping[str, Any]) -> Session:
    return replace(session, screen=session.screen.tap(_find_element(session.screen, given)))


def _press_long(session: Session, given: Mapping[str, Any]) -> Session:
    return replace(session, screen=open_menu(session.screen, _find_element(session.screen, given)))


def open_menu(screen: Screen, number: int | None) -> Screen:
    """Return the screen after a long press or a right click: that of an entry's form, where its icon is one; else the
    same."""
    node = None if number is None else screen.page.find(number)
    is_entry = node is not None and node.role == "link" and node.target.rpartition("/")[2].isdigit()
    return screen.go(f"{node.target}/edit") if node is not None and is_entry else screen


def _input_text(session: Session, given: Mapping[str, Any]) -> Session:
    text, screen = read_text(given, "text"), session.screen
    clears = given.get("clear_text")
    if clears is not None and not isinstance(clears, bool):
        raise ToolFailure("clear_text must be true or false")
    if any(given.get(name) is not None for name in ("index", "x", "y")):
        screen = screen.tap(_find_element(screen, given))
    return replace(session, screen=screen.type(text, clears=bool(clears)))


def _scroll(session: Session, given: Mapping[str, Any], sign: int = 1) -> Session:
    direction = given.get("direction")
    if not isinstance(direction, str) or direction not in _DOWN:
        raise ToolFailure("direction must be down, up, left or right")
    lines = sign * _DOWN[direction] * (session.screen.shape.rows - 1)
    return replace(session, screen=session.screen.scroll(lines))


def _open_app(session: Session, given: Mapping[str, Any]) -> Session:
    return replace(session, screen=session.screen.go(find_app(read_text(given, "app_name"))))


def _end(session: Session, given: Mapping[str, Any]) -> Session:
    if given.get("goal_status") not in STATUSES:
        raise ToolFailure(f"goal_status must be {' or '.join(STATUSES)}")
    return replace(session, is_over=True)


PHONE_ACTIONS: Mapping[str, Callable[[Session, Mapping[str, Any]], Session]] = {
    "click": _tap,
    "double_tap": _tap,
    "long_press": _press_long,
    "input_text": _input_text,
    "keyboard_enter": lambda session, given: replace(session, screen=session.screen.enter()),
    "scroll": _scroll,
    "swipe": lambda session, given: _scroll(session, given, -1),
    "navigate_home": lambda session, given: replace(session, screen=session.screen.go("/")),
    "navigate_back": lambda session, given: replace(session, screen=session.screen.back()),
    "open_app": _open_app,
    "answer": lambda session, given: replace(session, answer=read_text(given, "text")),
    "status": _end,
    "wait": lambda session, given: session,
}
"""What each action does. A swipe moves the finger, a scroll the page."""


def act_on_phone(session: Session, given: Mapping[str, Any]) -> Session:
    """Return the session after an action. Raises ToolFailure, which names the field that is wrong."""
    action = PHONE_ACTIONS.get(str(given.get("action_type")))
    if action is None:
        raise ToolFailure(f"action_type must be one of {', '.join(PHONE_ACTIONS)}")
    return action(session, given)
