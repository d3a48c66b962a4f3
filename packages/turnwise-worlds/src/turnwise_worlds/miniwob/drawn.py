"""Pages that are drawn from a seed without a browser: imitations of MiniWoB++'s smallest tasks, for warm-ups of
thousands of episodes. They have the sentences and words of the real pages, and the elements as a policy reads them;
whether what is learned here holds is measured on the real pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from string import ascii_letters, digits

from turnwise.core.errors import ToolFailure
from turnwise_worlds.miniwob.goals import Step, find_words, plan
from turnwise_worlds.miniwob.listing import Element, Kind, View
from turnwise_worlds.miniwob.pages import find_element, find_html

BUTTONS = ("cancel", "next", "no", "ok", "okay", "previous", "submit", "yes")
COLOURS = (
    *("black", "blue", "cyan", "grey", "lime", "magenta", "olive", "orange", "pink", "purple", "red", "white"),
    "yellow",
)


@cache
def read_words(name: str) -> tuple[str, ...]:
    """Return a list of words of MiniWoB++'s own, each once, without stops: such as "FIFTY_NAMES". Raises
    ConfigError with the remedy if the package is missing."""
    source = (find_html() / "common" / "ui_utils.js").read_text(encoding="utf-8")
    _, _, after = source.partition(f"ui_utils.{name} = [")
    listed = re.findall(r"""["']([^"']+)["']""", after.partition("]")[0])
    return tuple(dict.fromkeys(word.rstrip(".,") for word in listed))


def _elements(kind: Kind, names: list[str]) -> list[Element]:
    return [Element(kind=kind, name=name, value="") for name in names]


def _either_case(random: Random, word: str) -> str:
    return word.capitalize() if random.random() < 0.3 else word


def _draw_button(random: Random) -> tuple[str, list[Element]]:
    names = random.sample(BUTTONS, random.randint(2, 4))
    buttons = _elements("button", [_either_case(random, name) for name in names])
    elements = buttons + _elements("field", [""] * random.randint(0, 3))
    random.shuffle(elements)
    return f'Click on the "{random.choice(buttons).name}" button.', elements


def _draw_colour(random: Random) -> tuple[str, list[Element]]:
    names = random.sample(COLOURS, 4)
    return f"Click on the {random.choice(names)} colored box.", _elements("button", names)


def _draw_dialog(random: Random) -> tuple[str, list[Element]]:
    name = random.choice(("x", "Cancel", "OK"))
    return f'Click the button in the dialog box labeled "{name}".', _elements("button", ["Close", "Cancel", "OK"])


def _draw_links(random: Random) -> tuple[str, list[Element]]:
    words = random.sample(read_words("lorem_words"), random.randint(1, 8))
    names = [_either_case(random, word) for word in words]
    return f'Click on the link "{random.choice(names)}".', _elements("link", names)


def _draw_tabs(random: Random) -> tuple[str, list[Element]]:
    names = [f"Tab #{number}" for number in (1, 2, 3)]
    return f"Click on {random.choice(names)}.", _elements("link", names)


def _draw_entry(random: Random) -> tuple[str, list[Element]]:
    goal = f'Enter "{random.choice(read_words("FIFTY_NAMES"))}" into the text field and press Submit.'
    return goal, _elements("field", [""]) + _elements("button", ["Submit"])


def _draw_password(random: Random) -> str:
    return "".join(random.choices(ascii_letters + digits, k=random.randint(2, 5)))


def _draw_login(random: Random) -> tuple[str, list[Element]]:
    user, password = random.choice(read_words("FIFTY_NAMES")).lower(), _draw_password(random)
    goal = f'Enter the username "{user}" and the password "{password}" into the text fields and press login.'
    return goal, _elements("field", ["Username", "Password"]) + _elements("button", ["Login"])


def _draw_verified(random: Random) -> tuple[str, list[Element]]:
    goal = f'Enter the password "{_draw_password(random)}" into both text fields and press submit.'
    return goal, _elements("field", ["Password", "Verify password"]) + _elements("button", ["Submit"])


def _draw_list(random: Random) -> tuple[str, list[Element]]:
    options = random.sample(read_words(random.choice(("PEOPLE_NAMES", "COUNTRIES"))), random.randint(3, 9))
    goal = f"Select {random.choice(options)} from the list and click Submit."
    chosen = Element(kind="list", name="", value=options[0], options=tuple(options))
    return goal, [chosen, *_elements("button", ["Submit"])]


def _draw_fields(random: Random) -> tuple[str, list[Element]]:
    nth = random.choice(("1st", "2nd", "3rd"))
    return f"Focus into the {nth} input textbox.", _elements("field", [""] * 3)


_DRAWING: dict[str, Callable[[Random], tuple[str, list[Element]]]] = {
    "choose-list": _draw_list,
    "click-button": _draw_button,
    "click-color": _draw_colour,
    "click-dialog-2": _draw_dialog,
    "click-link": _draw_links,
    "click-tab": _draw_tabs,
    "enter-password": _draw_verified,
    "enter-text": _draw_entry,
    "focus-text-2": _draw_fields,
    "login-user": _draw_login,
}
DRAWN = frozenset(_DRAWING)
"""Tasks that can be drawn."""


class DrawnPages:
    """Implements `Pages` without a browser."""

    async def open(self, task: str, seed: int) -> DrawnPage:
        """See `Pages`."""
        return DrawnPage(task, Random(seed))


class DrawnPage:
    """Implements `OpenPage`. What is typed or chosen stands; the first click on a button or link decides."""

    def __init__(self, task: str, random: Random) -> None:
        """Draws the task; `task` is one of `DRAWN`."""
        goal, elements = _DRAWING[task](random)
        self._task = task
        self.view = View(goal=goal, elements=tuple(elements))
        """See `OpenPage`."""

    async def act(self, step: Step) -> View:
        """See `OpenPage`."""
        element, elements = find_element(self.view, step), self.view.elements
        right = plan(self._task, elements, find_words(self._task, self.view.goal))
        if step.verb != "click":
            filled = replace(element, value=step.text)
            changed = (*elements[: step.number - 1], filled, *elements[step.number :])
            self.view = replace(self.view, elements=changed)
        elif right is not None and right.verb == "click" and elements[right.number - 1] == element:
            is_other_field = element.kind == "field" and right.number != step.number
            self.view = replace(self.view, is_done=True, reward=-1.0 if is_other_field else 1.0)
        elif self._task == "focus-text-2" or element.kind != "field":
            self.view = replace(self.view, is_done=True, reward=-1.0)
        return self.view

    async def click_at(self, x: int, y: int) -> View:
        """Refuse: nothing is drawn in pixels."""
        raise ToolFailure("there is no picture")

    async def draw(self) -> str:
        """Refuse as `click_at` does."""
        raise ToolFailure("there is no picture")

    async def close(self) -> None:
        """See `OpenPage`."""
