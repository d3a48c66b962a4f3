"""The apps: what their entries hold and accept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """An app that keeps entries."""

    label: str
    """What its icon says."""
    noun: str
    """What an entry is called."""
    fields: tuple[str, ...]
    """The form's fields; an entry is listed by the first one."""
    patterns: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions that values must match; other fields take any text of at most 80 characters but ""."""
    has_switch: bool = False
    """Whether entries can be on or off."""
    has_folders: bool = False
    """Whether entries lie in folders."""


APPS: Mapping[str, App] = {
    "contacts": App(
        label="Contacts", noun="contact", fields=("name", "phone"), patterns={"phone": r"[0-9+][0-9 -]{2,15}"}
    ),
    "notes": App(label="Notes", noun="note", fields=("title", "text")),
    "clock": App(
        label="Clock",
        noun="alarm",
        fields=("time", "label"),
        patterns={"time": r"([01][0-9]|2[0-3]):[0-5][0-9]"},
        has_switch=True,
    ),
    "files": App(label="Files", noun="file", fields=("name", "text"), has_folders=True),
}
"""Apps by the path of their pages."""
SETTINGS = "settings"
"""The path of the app "Settings", which keeps no entries."""
LABELS: Mapping[str, str] = {**{path: app.label for path, app in APPS.items()}, SETTINGS: "Settings"}
"""Labels of all apps by path."""
LONGEST = 80
"""Characters of a value, at most."""


def find_fault(app: App, values: Mapping[str, str]) -> str:
    """Return why a form is refused; "" if it is accepted."""
    for name in app.fields:
        value = values.get(name, "")
        if not value.strip() or len(value) > LONGEST:
            return f"{name}: write 1 to {LONGEST} characters"
        if name in app.patterns and not re.fullmatch(app.patterns[name], value, re.ASCII):
            return f"{name}: {value} is no {name}"
    return ""
