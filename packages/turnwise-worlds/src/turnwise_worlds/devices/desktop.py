"""OSWorld's actions (Xie et al., arXiv 2404.07972), its action space "computer_13": a mouse and a keyboard.

Icons on the desktop and in lists open by a double click, buttons and fields by a click. Deviations: nothing can be
dragged, and single keys are not held down; both are refused and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from turnwise.core.errors import ToolFailure
from turnwise_worlds.devices.phone import open_menu
from turnwise_worlds.devices.replies import read_text, read_whole
from turnwise_worlds.devices.screen import Screen
from turnwise_worlds.devices.session import Session
from turnwise_worlds.web.page import TYPED

_HOTKEYS: Mapping[tuple[str, ...], str] = {("ctrl", "a"): "all", ("alt", "left"): "back", ("win", "d"): "home"}


def _aim(session: Session, given: Mapping[str, Any]) -> Session:
    x, y = read_whole(given, "x"), read_whole(given, "y")
    if (x is None) != (y is None):
        raise ToolFailure("give both x and y")
    if x is None or y is None:
        return session
    session.screen.find_at(x, y)
    return replace(session, cursor=(x, y))


def _under(session: Session) -> int | None:
    return session.screen.find_at(*session.cursor)


def is_icon(screen: Screen, number: int | None) -> bool:
    """Whether an element opens by a double click: an icon of the desktop, an entry or a folder."""
    node = None if number is None else screen.page.find(number)
    return node is not None and node.role == "link" and not node.target.endswith(("/new", "/edit"))


def _click(session: Session, given: Mapping[str, Any]) -> Session:
    session = _aim(session, given)
    number, count = _under(session), read_whole(given, "num_clicks") or 1
    if given.get("button", "left") == "right":
        return replace(session, screen=open_menu(session.screen, number))
    if given.get("button", "left") not in ("left", "middle") or not 1 <= count <= 3:
        raise ToolFailure("button must be left, right or middle, num_clicks 1 to 3")
    if is_icon(session.screen, number) and count == 1:
        return replace(session, screen=session.screen.tap(None))
    # A second click selects the text of a field.
    node = None if number is None else session.screen.page.find(number)
    selects = count > 1 and node is not None and node.role in TYPED
    return replace(session, screen=session.screen.tap(number), selects_all=selects)


def _release(session: Session, given: Mapping[str, Any]) -> Session:
    if session.pressed is None:
        raise ToolFailure("no mouse button is down")
    is_click = session.pressed == session.cursor
    session = replace(session, pressed=None)
    return _click(session, given) if is_click else session


def _scroll(session: Session, given: Mapping[str, Any]) -> Session:
    notches = read_whole(given, "dy") or 0
    return replace(session, screen=session.screen.scroll(-notches))


def _type(session: Session, given: Mapping[str, Any]) -> Session:
    screen = session.screen.type(read_text(given, "text"), clears=session.selects_all)
    return replace(session, screen=screen)


def _press(session: Session, given: Mapping[str, Any]) -> Session:
    screen, key = session.screen, read_text(given, "key").casefold()
    rows = screen.shape.rows - 1
    match key:
        case "enter" | "return":
            return replace(session, screen=screen.enter())
        case "pagedown" | "pageup":
            return replace(session, screen=screen.scroll(rows if key == "pagedown" else -rows))
        case "backspace" | "delete":
            return replace(session, screen=_erase(session))
        case "esc" | "escape":
            return replace(session, screen=screen.tap(None))
        case _ if len(key) == 1:
            return _type(session, {"text": read_text(given, "key")})
    raise ToolFailure(
        f"key {key[:12]!r} does nothing here; use enter, backspace, pagedown, pageup, esc or one character"
    )


def _erase(session: Session) -> Screen:
    screen = session.screen
    node = None if screen.focus is None else screen.page.find(screen.focus)
    return screen if node is None else screen.type("" if session.selects_all else node.value[:-1], clears=True)


def _hotkey(session: Session, given: Mapping[str, Any]) -> Session:
    keys = given.get("keys")
    named = tuple(str(key).casefold() for key in keys) if isinstance(keys, list) and len(keys) < 5 else ()
    match _HOTKEYS.get(named):
        case "all":
            return replace(session, selects_all=session.screen.focus is not None)
        case "back":
            return replace(session, screen=session.screen.back())
        case "home":
            return replace(session, screen=session.screen.go("/"))
    raise ToolFailure(f"keys must be one of {', '.join('+'.join(keys) for keys in _HOTKEYS)}")


def _refuse(session: Session, given: Mapping[str, Any]) -> Session:
    raise ToolFailure("nothing here is dragged, and no key is held down; use CLICK, PRESS and HOTKEY")


def _double(session: Session, given: Mapping[str, Any]) -> Session:
    return _click(session, {**given, "num_clicks": 2})


def _press_button(session: Session, given: Mapping[str, Any]) -> Session:
    return replace(session, pressed=session.cursor)


def _end(session: Session, given: Mapping[str, Any]) -> Session:
    return replace(session, is_over=True, answer=_read_answer(given) or session.answer)


def _read_answer(given: Mapping[str, Any]) -> str:
    return read_text(given, "text") if given.get("text") is not None else ""


DESKTOP_ACTIONS: Mapping[str, Callable[[Session, Mapping[str, Any]], Session]] = {
    "MOVE_TO": _aim,
    "CLICK": _click,
    "DOUBLE_CLICK": _double,
    "RIGHT_CLICK": lambda session, given: _click(session, {**given, "button": "right"}),
    "MOUSE_DOWN": _press_button,
    "MOUSE_UP": _release,
    "DRAG_TO": _refuse,
    "SCROLL": _scroll,
    "TYPING": _type,
    "PRESS": _press,
    "KEY_DOWN": _refuse,
    "KEY_UP": _refuse,
    "HOTKEY": _hotkey,
    "WAIT": lambda session, given: session,
    "FAIL": _end,
    "DONE": _end,
}
"""What each action does. `dy` above 0 turns the wheel up. OSWorld's "DONE" has no answer; here it may have "text"."""
_KEEP_SELECTION = {"HOTKEY", "CLICK", "DOUBLE_CLICK", "MOUSE_UP"}
"""Actions that select text themselves; after any other nothing is selected."""


def act_on_desktop(session: Session, given: Mapping[str, Any]) -> Session:
    """Return the session after an action. Raises ToolFailure, which names the field that is wrong."""
    kind = str(given.get("action_type")).upper()
    action = DESKTOP_ACTIONS.get(kind)
    if action is None:
        raise ToolFailure(f"action_type must be one of {', '.join(DESKTOP_ACTIONS)}")
    after = action(session, given)
    return after if kind in _KEEP_SELECTION else replace(after, selects_all=False)
