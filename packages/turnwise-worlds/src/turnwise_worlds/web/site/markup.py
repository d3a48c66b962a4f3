"""Writes HTML. Every string that is not `Markup` is escaped."""

from __future__ import annotations

from html import escape


class Markup(str):
    """HTML that is complete."""


Content = Markup | str | None


def tag(name: str, /, *children: Content, **attributes: str | bool | None) -> Markup:
    """Write an element; None among the children and None or False among the attributes are left out. Attributes
    are named as in Python: `for_`, `aria_label`."""
    written = "".join(
        f" {_attribute(key)}" if value is True else f' {_attribute(key)}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inside = join(*children)
    return Markup(f"<{name}{written}>" if name in ("input", "br") else f"<{name}{written}>{inside}</{name}>")


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def join(*children: Content) -> Markup:
    """Write several pieces, one after the other."""
    return Markup("".join(each if isinstance(each, Markup) else escape(each) for each in children if each is not None))


def link(text: str, address: str) -> Markup:
    """Write a link."""
    return tag("a", text, href=address)


def bullets(*items: Content) -> Markup:
    """Write a list; empty without items."""
    return tag("ul", *(tag("li", each) for each in items if each is not None))


def text_field(label: str, name: str, value: str = "", kind: str = "text") -> Markup:
    """Write a text field with its label."""
    return tag("div", tag("label", label, for_=name), " ", tag("input", type=kind, id=name, name=name, value=value))


def choice(label: str, name: str, options: tuple[str, ...], chosen: str = "") -> Markup:
    """Write a list to choose one option from."""
    written = (tag("option", each, selected=each == chosen) for each in options)
    return tag("div", tag("label", label, for_=name), " ", tag("select", *written, id=name, name=name))


def ticked(kind: str, label: str, name: str, value: str, *, checked: bool = False) -> Markup:
    """Write a radio button or a check box with its label."""
    place = f"{name}-{value}"
    box = tag("input", type=kind, id=place, name=name, value=value, checked=checked)
    return tag("div", box, " ", tag("label", label, for_=place))


def button(text: str, name: str | None = None, value: str | None = None) -> Markup:
    """Write a button that sends its form."""
    return tag("button", text, name=name, value=value)


def form(method: str, action: str, /, *children: Content, **hidden: str) -> Markup:
    """Write a form; `hidden` are fields that are sent and not shown. Browsers are asked to restore nothing."""
    fields = (tag("input", type="hidden", name=name, value=value) for name, value in hidden.items())
    return tag("form", *fields, *children, method=method, action=action, autocomplete="off")
