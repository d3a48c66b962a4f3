"""Reads HTML as an accessibility tree, and writes the tree as text.

Roles, names and states follow WAI-ARIA and "HTML Accessibility API Mappings" for the elements that the site uses;
`format_aria` writes them as Playwright's `aria_snapshot` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from turnwise_worlds.web.dom import Element, parse
from turnwise_worlds.web.page import TICKED, TYPED, Form, Node, Page
from turnwise_worlds.web.yaml_text import quote_key, quote_value

__all__ = ["Form", "Node", "Page", "extract", "format_aria", "format_page", "format_short"]

_ROLES = {
    **{f"h{level}": "heading" for level in range(1, 7)},
    **{"p": "paragraph", "ul": "list", "ol": "list", "li": "listitem", "button": "button", "select": "combobox"},
    **{"option": "option", "textarea": "textbox", "fieldset": "group", "nav": "navigation", "main": "main"},
    **{"article": "article", "strong": "strong", "em": "emphasis", "hr": "separator", "header": "banner"},
    "footer": "contentinfo",
}
_INPUT_ROLES = {"radio": "radio", "checkbox": "checkbox", "submit": "button", "search": "searchbox"}
_NAMED_BY_CONTENT = {"heading", "link", "button", "option"}
_INLINE = {"a", "strong", "em", "span", "label", "input", "button", "select", "textarea", "option"}
"""Elements that do not separate the words around them. A browser lays buttons and fields out as inline blocks, which
do: see `_is_block`."""
_INLINE_BLOCKS = {"input", "button", "select", "textarea", "option"}
_UNSEEN = {"script", "style", "template", "head", "title"}


@dataclass
class _Branch:
    """A node of the tree before it is flattened: children are branches and pieces of text."""

    node: Node
    children: list[_Branch | str] = field(default_factory=list)


class _Reader:
    """Reads one document."""

    def __init__(self, root: Element) -> None:
        self._labels = {each.get("for"): each for each in root.walk() if each.tag == "label" and each.get("for")}
        self._forms: list[Form] = []
        self._next = 1
        title = next((each for each in root.walk() if each.tag == "title"), None)
        top = _Branch(Node(role="body"))
        self._read_children(root, top, None)
        self.page = Page(
            title=_join_words(title.text()) if title else "",
            nodes=tuple(_flatten(top.children, top, 0)),
            forms=tuple(self._forms),
        )

    def _read_children(self, element: Element, into: _Branch, form: int | None) -> None:
        for child in element.children:
            if isinstance(child, str):
                if into.node.role not in TYPED:
                    into.children.append(child)
            elif child.tag not in _UNSEEN and child.get("hidden") is None and child.get("type") != "hidden":
                self._read(child, into, form)

    def _read(self, element: Element, into: _Branch, form: int | None) -> None:
        space = " " if element.tag not in _INLINE or element.tag in _INLINE_BLOCKS else ""
        if space:
            into.children.append(space)
        if element.tag == "form":
            form = self._open_form(element)
        node = self._describe(element, form)
        if node is None:
            self._read_children(element, into, form)
        else:
            branch = _Branch(node)
            if element.tag != "input":
                self._read_children(element, branch, form)
            into.children.append(branch)
        if space:
            into.children.append(space)

    def _open_form(self, element: Element) -> int:
        fields = [each for each in element.walk() if each.tag == "input" and each.get("type") == "hidden"]
        hidden = tuple((each.get("name") or "", each.get("value") or "") for each in fields)
        method = (element.get("method") or "get").upper()
        self._forms.append(Form(action=element.get("action") or "", method=method, hidden=hidden))
        return len(self._forms) - 1

    def _describe(self, element: Element, form: int | None) -> Node | None:
        """Return the node of an element; None for one without a role, whose children stand in its place."""
        tag, href = element.tag, element.get("href")
        if tag == "a":
            role = "link" if href is not None else ""
        elif tag == "input":
            role = _INPUT_ROLES.get(element.get("type") or "text", "textbox")
        else:
            role = _ROLES.get(tag, "")
        if not role:
            return None
        node = Node(role=role, name=self._name(element, role))
        if role == "heading":
            return replace(node, states=(f"level={tag[1]}",))
        if role == "option":
            return replace(node, states=("selected",) if _is_selected(element) else ())
        if role == "link":
            return replace(node, number=self._take_number(), target=href or "")
        if tag not in ("input", "button", "select", "textarea"):
            return node
        node = replace(node, number=self._take_number(), target=element.get("name") or "", form=form)
        if role in TICKED:
            value = "on" if element.get("checked") is not None else ""
            return replace(node, value=value, sends=element.get("value") or "on")
        if role == "button":
            return replace(node, sends=element.get("value") or "")
        return replace(node, value=_value(element))

    def _take_number(self) -> int:
        self._next += 1
        return self._next - 1

    def _name(self, element: Element, role: str) -> str:
        if (label := element.get("aria-label")) is not None:
            return _join_words(label)
        if element.tag == "input" and role == "button":
            return _join_words(element.get("value") or "Submit")
        if role in _NAMED_BY_CONTENT:
            return _join_words(element.text())
        if role == "group":
            legend = next((each for each in element.walk() if each.tag == "legend"), None)
            return _join_words(legend.text()) if legend else ""
        if element.tag in ("input", "select", "textarea"):
            label_element = self._labels.get(element.get("id") or "")
            return _join_words(label_element.text()) if label_element else ""
        return ""


@lru_cache(maxsize=512)  # the episodes of a group see many equal pages
def extract(html: str) -> Page:
    """Read a page. Never raises: what is no HTML is text.

    Labels name controls by `for`; values are those of the attributes `value`, `checked` and `selected`.
    """
    return _Reader(parse(html)).page


def _value(element: Element) -> str:
    if element.tag == "textarea":
        return element.text().removeprefix("\n")
    if element.tag == "select":
        chosen = [each for each in element.walk() if each.tag == "option" and _is_selected(each)]
        return _join_words(chosen[-1].text()) if chosen else ""
    return element.get("value") or ""


def _is_selected(option: Element) -> bool:
    """Return whether an option is chosen: the last that says so, else the first of its list."""
    siblings = [each for each in option.parent.walk() if each.tag == "option"] if option.parent else []
    marked = [each for each in siblings if each.get("selected") is not None]
    return option is (marked[-1] if marked else siblings[0])


def _join_words(text: str) -> str:
    return " ".join(text.split())


def _flatten(children: list[_Branch | str], parent: _Branch, depth: int) -> list[Node]:
    """Return the nodes inside a branch. Neighbouring texts become one; a text that only repeats the name goes."""
    merged: list[_Branch | str] = []
    for child in children:
        if isinstance(child, str) and merged and isinstance(merged[-1], str):
            merged[-1] += child
        else:
            merged.append(child)
    kept = [each if isinstance(each, _Branch) else _join_words(each) for each in merged]
    kept = [each for each in kept if each != ""]
    if kept == [parent.node.name]:
        return []
    nodes: list[Node] = []
    for each in kept:
        if isinstance(each, str):
            nodes.append(Node(role="text", name=each, depth=depth))
        else:
            nodes.append(replace(each.node, depth=depth))
            nodes += _flatten(each.children, each, depth + 1)
    return nodes


def format_page(page: Page) -> str:
    """Write one line per node that says something: `[7] link red large mug` for an element, `heading Shop`, and texts
    as they are. A field's text follows a colon, a ticked box ends with "checked"."""
    lines = []
    for node in page.nodes:
        if node.number is not None:
            line = " ".join(filter(None, (f"[{node.number}]", node.role, node.name)))
            if node.role in TICKED:
                line += " checked" * bool(node.value)
            elif node.value:
                line += f": {node.value}"
        elif node.role == "text":
            line = node.name
        elif node.name and node.role != "option":
            line = f"{node.role} {node.name}"
        elif node.role == "option":
            line = f"option {node.name}"
        else:
            continue
        lines.append(line)
    return "\n".join(lines)


def format_short(page: Page) -> str:
    """Write a page in few words, for small models: the names of its elements and its texts, each after a blank, and
    the field's text or "on" after what has one."""
    words = [
        word
        for node in page.nodes
        if node.number is not None or node.role == "text"
        for word in f"{node.name} {node.value}".split()
    ]
    return " " + " ".join(words or ["nothing"])


def format_aria(page: Page) -> str:
    """Write the tree as Playwright's `locator("body").aria_snapshot()` writes it."""
    lines = []
    nodes = page.nodes
    at = 0
    while at < len(nodes):
        node = nodes[at]
        indent = "  " * node.depth + "- "
        if node.role == "text":
            lines.append(f"{indent}text: {quote_value(node.name)}")
            at += 1
            continue
        inner = _texts_inside(nodes, at)
        key = quote_key(_write_key(node))
        address = f"{'  ' * (node.depth + 1)}- /url: {quote_value(node.target)}" if node.role == "link" else ""
        if address:
            lines += [f"{indent}{key}:", address]
        elif inner is not None:
            lines.append(f"{indent}{key}: {quote_value(inner)}")
            at += 1 + (node.role not in TYPED)
            continue
        else:
            has_children = at + 1 < len(nodes) and nodes[at + 1].depth > node.depth
            lines.append(f"{indent}{key}{':' * has_children}")
        at += 1
    return "\n".join(lines)


def _texts_inside(nodes: tuple[Node, ...], at: int) -> str | None:
    """Return the text that is all there is inside a node; None if there is none, or more."""
    node = nodes[at]
    if node.role in TYPED:
        return _join_words(node.value) or None
    inside = []
    for each in nodes[at + 1 : at + 3]:
        if each.depth <= node.depth:
            break
        inside.append(each)
    return inside[0].name if len(inside) == 1 and inside[0].role == "text" else None


def _write_key(node: Node) -> str:
    name = f" {_quote_name(node.name)}" if node.name else ""
    ticked = ("checked",) if node.role in TICKED and node.value else ()
    return node.role + name + "".join(f" [{state}]" for state in (*ticked, *node.states))


def _quote_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
