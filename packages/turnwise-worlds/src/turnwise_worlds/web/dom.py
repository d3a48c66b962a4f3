"""Parses HTML into elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser

_EMPTY = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
"""Elements that have no end tag."""


@dataclass(eq=False)
class Element:
    """An element, its attributes and what is inside."""

    tag: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    parent: Element | None = None
    children: list[Element | str] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        """Return an attribute; "" for one without a value, None if it is missing."""
        return self.attributes.get(name)

    def walk(self) -> Iterator[Element]:
        """Yield this element and those inside, in the order of the document."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def text(self) -> str:
        """Return all text inside."""
        return "".join(child if isinstance(child, str) else child.text() for child in self.children)


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self._open = Element("html")

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("html", "body"):
            return
        element = Element(tag, {name: value or "" for name, value in reversed(attributes)}, self._open)
        self._open.children.append(element)
        if tag not in _EMPTY:
            self._open = element

    def handle_endtag(self, tag: str) -> None:
        at: Element | None = self._open
        while at is not None and at.tag != tag:
            at = at.parent
        if at is not None and at.parent is not None:
            self._open = at.parent

    def handle_data(self, data: str) -> None:
        self._open.children.append(data)


def parse(html: str) -> Element:
    """Return the root of a document. End tags that match nothing are dropped, open elements end with the document.
    `html` and `body` are no elements of the tree: what is inside them is inside the root."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    return builder.root
