"""The contact form: its page, and what it accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from turnwise_worlds.web.site.layout import lay_out, show_notice
from turnwise_worlds.web.site.markup import button, choice, form, tag, text_field, ticked
from turnwise_worlds.web.site.state import State

TOPICS = ("question", "complaint", "return", "praise")
FIELDS = ("name", "email", "date", "topic", "agree")
_DATE = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


def find_errors(entries: Mapping[str, str]) -> tuple[str, ...]:
    """Return why these entries are refused, a line per field; empty if they are accepted."""
    lines = []
    if not entries.get("name", "").strip():
        lines.append("name: write your name")
    if not _EMAIL.fullmatch(entries.get("email", "")):
        lines.append("email: write an address such as ann@example.org")
    if not _DATE.fullmatch(entries.get("date", "")):
        lines.append("date: write year-month-day, such as 2031-05-24")
    if entries.get("topic") not in TOPICS:
        lines.append(f"topic: choose one of {', '.join(TOPICS)}")
    if entries.get("agree") != "yes":
        lines.append("terms: tick the box")
    return tuple(lines)


def contact_page(state: State) -> str:
    """Write the form, with what was refused to correct."""
    entries = dict(state.entries)
    sent = (tag("p", f"Sent: {', '.join(value for _, value in message[:4])}") for message in state.messages)
    return lay_out(
        state,
        "Contact",
        *sent,
        show_notice(state, "/contact"),
        form(
            "post",
            "/contact",
            *(text_field(name, name, entries.get(name, "")) for name in ("name", "email", "date")),
            choice("topic", "topic", TOPICS, entries.get("topic", "")),
            ticked("checkbox", "I agree to the terms", "agree", "yes", checked="agree" in entries),
            button("Send"),
        ),
    )
