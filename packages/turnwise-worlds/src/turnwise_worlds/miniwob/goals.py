"""What some tasks ask for, read from their sentences: a few words for small models, and the steps that do it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from turnwise_worlds.miniwob.listing import Element, find_numbers, strip_stops

Verb = Literal["click", "type", "select"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An action on one element."""

    verb: Verb
    number: int
    text: str = ""
    """What is typed, or the option."""


Elements = Sequence[Element]
Planner = Callable[[Elements, tuple[str, ...]], Step | None]
"""From a page and the words of its goal to the next step; None if the page does not have what is asked for."""
_TYPED = ("field", "area")
_TICKED = ("radio", "checkbox")


def _click(elements: Elements, name: str) -> Step | None:
    numbers = find_numbers(elements, ("button", "link"), name) or find_numbers(elements, (), name)
    return Step(verb="click", number=numbers[0]) if numbers else None


def _click_named(elements: Elements, words: tuple[str, ...]) -> Step | None:
    return _click(elements, words[0])


def _click_first(elements: Elements, words: tuple[str, ...]) -> Step | None:
    return Step(verb="click", number=1) if elements else None


def _click_tab(elements: Elements, words: tuple[str, ...]) -> Step | None:
    return _click(elements, f"Tab #{words[0]}")


def _close(elements: Elements, words: tuple[str, ...]) -> Step | None:
    return _click(elements, "Close")


def _click_in_dialog(elements: Elements, words: tuple[str, ...]) -> Step | None:
    return _click(elements, "Close" if words[0] == "x" else words[0])


def _focus_nth(elements: Elements, words: tuple[str, ...]) -> Step | None:
    fields, nth = find_numbers(elements, _TYPED), int(words[0])
    return Step(verb="click", number=fields[nth - 1]) if len(fields) >= nth else None


def _click_kind(elements: Elements, words: tuple[str, ...]) -> Step | None:
    numbers = find_numbers(elements, ({"text": "field", "textarea": "area"}.get(words[0], words[0]),))
    return Step(verb="click", number=numbers[0]) if numbers else None


def _fill(elements: Elements, texts: tuple[str, ...], send: str) -> Step | None:
    """Fill the fields in their order, then click on `send`."""
    for number, text in zip(find_numbers(elements, _TYPED), texts, strict=False):
        if elements[number - 1].value != text:
            return Step(verb="type", number=number, text=text)
    return _click(elements, send)


def _enter_text(elements: Elements, words: tuple[str, ...]) -> Step | None:
    return _fill(elements, words, "Submit")


def _enter_twice(elements: Elements, words: tuple[str, ...]) -> Step | None:
    return _fill(elements, (words[0], words[0]), "Submit")


def _log_in(elements: Elements, words: tuple[str, ...]) -> Step | None:
    return _fill(elements, words, "Login")


def _choose(elements: Elements, words: tuple[str, ...]) -> Step | None:
    numbers = find_numbers(elements, ("list",))
    if numbers and elements[numbers[0] - 1].value != words[0]:
        return Step(verb="select", number=numbers[0], text=words[0])
    return _click(elements, "Submit")


def _tick(elements: Elements, words: tuple[str, ...]) -> Step | None:
    for name in words[0].split(", ") if words[0] != "nothing" else ():
        numbers = find_numbers(elements, _TICKED, name)
        if numbers and not elements[numbers[0] - 1].value:
            return Step(verb="click", number=numbers[0])
    return _click(elements, "Submit")


KNOWN: dict[str, tuple[str, str, Planner]] = {
    "choose-list": ("choose", r"Select (.+) from the list and click Submit\.", _choose),
    "click-button": ("button", r'Click on the "(.+)" button\.', _click_named),
    "click-checkboxes": ("tick", r"Select (.+) and click Submit\.", _tick),
    "click-color": ("colour", r"Click on the (.+) colored box\.", _click_named),
    "click-dialog": ("close", r'Close the (dialog) box by clicking the "x"\.', _close),
    "click-dialog-2": ("dialog", r'Click the button in the dialog box labeled "(.+)"\.', _click_in_dialog),
    "click-link": ("link", r'Click on the link "(.+)"\.', _click_named),
    "click-option": ("tick", r"Select (.+) and click Submit\.", _tick),
    "click-tab": ("tab", r"Click on Tab #(\d)\.", _click_tab),
    "click-test": ("press", r"Click the (button)\.", _click_first),
    "click-test-2": ("press", r"Click button (ONE)\.", _click_named),
    "click-widget": ("widget", r'Click on a "(.+)" widget\.', _click_kind),
    "enter-password": (
        "password",
        r'Enter the password "(.+)" into both text fields and press submit\.',
        _enter_twice,
    ),
    "enter-text": ("enter", r'Enter "(.+)" into the text field and press Submit\.', _enter_text),
    "focus-text": ("focus", r"Focus into the (textbox)\.", _click_first),
    "focus-text-2": ("focus", r"Focus into the (\d)\w\w input textbox\.", _focus_nth),
    "login-user": (
        "login",
        r'Enter the username "(.+)" and the password "(.+)" into the text fields and press login\.',
        _log_in,
    ),
}
"""Short verb, sentence with the words that matter, and the planner of the tasks that the oracle knows."""


def find_words(task: str, goal: str) -> tuple[str, ...]:
    """Return the words that matter in a task's sentence; none if the task is not one of `KNOWN`."""
    match = re.fullmatch(KNOWN[task][1], goal) if task in KNOWN else None
    return match.groups() if match else ()


def shorten(task: str, goal: str) -> str:
    """Return a goal in few words, as it is if the task is not one of `KNOWN`."""
    words = find_words(task, goal)
    return strip_stops(" ".join([KNOWN[task][0], *words])) if words else goal


def lengthen(task: str, short: str) -> tuple[str, ...]:
    """Return the words that matter in what `shorten` returned; none if it is something else."""
    verb, sentence, _ = KNOWN.get(task, ("", "", None))
    first, _, rest = short.partition(" ")
    if not rest or first != verb:
        return ()
    return tuple(rest.split(" ", 1)) if re.compile(sentence).groups > 1 else (rest,)


def plan(task: str, elements: Elements, words: tuple[str, ...]) -> Step | None:
    """Return the right next step; None if the task is not one of `KNOWN`, or the page lacks what is asked for."""
    return KNOWN[task][2](elements, words) if words else None
