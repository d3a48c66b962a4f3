"""A page as its reader meets it: the accessibility tree, flattened, with numbered elements."""

from __future__ import annotations

from dataclasses import dataclass, replace

INTERACTIVE = "a[href], button, input:not([type=hidden]), select, textarea"
"""CSS selector of the elements that get numbers, from 1 in the order of the document."""
TYPED = ("textbox", "searchbox")
"""Roles of elements that hold a text."""
TICKED = ("radio", "checkbox")
"""Roles of elements that are on or off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Where the controls of a form send their values."""

    action: str
    method: str
    """"GET" or "POST"."""
    hidden: tuple[tuple[str, str], ...] = ()
    """Names and values that are sent and never shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One line of the tree."""

    role: str
    """The ARIA role; "text" for a piece of text."""
    name: str = ""
    """The accessible name; of a text, the text."""
    value: str = ""
    """The text of a text field, the chosen option of a list, "on" or "" for radio buttons and check boxes."""
    depth: int = 0
    """Nodes around it."""
    number: int | None = None
    """What actions call it by; None for a node that is not interactive."""
    target: str = ""
    """The address of a link; the field's name of a control."""
    states: tuple[str, ...] = ()
    """Further states as the tree writes them, such as "level=1" or "selected"."""
    sends: str = ""
    """The value that a ticked box or a pressed button sends."""
    form: int | None = None
    """Place of a control's form in `Page.forms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page: its title, and its nodes in the order of the document."""

    title: str
    nodes: tuple[Node, ...]
    forms: tuple[Form, ...] = ()

    def find(self, number: int) -> Node | None:
        """Return the element with this number; None if there is none."""
        return next((node for node in self.nodes if node.number == number), None)

    def fill(self, number: int, value: str) -> Page:
        """Return the page with another text in a text field or another chosen option in a list."""
        nodes = list(self.nodes)
        at = next(place for place, node in enumerate(nodes) if node.number == number)
        depth = nodes[at].depth
        nodes[at] = replace(nodes[at], value=value)
        for place in range(at + 1, len(nodes)):
            if nodes[place].depth <= depth:
                break
            states = ("selected",) if nodes[place].name == value else ()
            nodes[place] = replace(nodes[place], states=states)
        return replace(self, nodes=tuple(nodes))

    def tick(self, number: int) -> Page:
        """Return the page after a click on a radio button, which frees the others of its group, or on a check box,
        which turns it over."""
        clicked = self.find(number)
        if clicked is None:
            raise ValueError(f"no element {number}")
        is_radio = clicked.role == "radio"

        def turn(node: Node) -> Node:
            if node.number == number:
                return replace(node, value="on" if is_radio or not node.value else "")
            in_group = (node.role, node.target, node.form) == ("radio", clicked.target, clicked.form)
            return replace(node, value="") if is_radio and in_group else node

        return replace(self, nodes=tuple(map(turn, self.nodes)))


def options_of(page: Page, number: int) -> list[str]:
    """Return the texts of a list's options."""
    at = next(place for place, node in enumerate(page.nodes) if node.number == number)
    options = []
    for node in page.nodes[at + 1 :]:
        if node.depth <= page.nodes[at].depth:
            break
        options.append(node.name)
    return options
