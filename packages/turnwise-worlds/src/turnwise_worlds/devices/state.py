"""What a device holds: the entries of its apps and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

FOLDERS = ("Documents", "Downloads", "Pictures")
"""Folders of the app "files"."""
SWITCHES = ("Wi-Fi", "Bluetooth", "Airplane mode", "Dark theme")
"""Settings that are on or off."""
LEVELS = ("low", "medium", "high")
"""Values of the brightness."""
BRIGHTNESS = "Brightness"

Fields = tuple[tuple[str, str], ...]
"""Names and values, in the order of the app's form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A contact, note, alarm or file."""

    app: str
    number: int
    """What its pages are called by; no other entry ever has it."""
    fields: Fields
    is_on: bool = True
    """Whether an alarm rings; other entries are always on."""
    folder: str = ""
    """Where a file is; empty for other entries."""

    def get(self, name: str) -> str:
        """Return the value of a field; "" if there is none."""
        return dict(self.fields).get(name, "")

    @property
    def content(self) -> tuple[str, Fields, bool, str]:
        """All but the number, by which two devices are compared."""
        return self.app, self.fields, self.is_on, self.folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device between two actions. Two equal devices answer every request alike."""

    entries: tuple[Entry, ...]
    settings: Fields
    next_number: int
    notice: str = ""
    """Why the last form was refused; the page shows it once."""

    @property
    def content(self) -> tuple[tuple[tuple[str, Fields, bool, str], ...], Fields]:
        """What a checker compares: entries without their numbers, in a fixed order, and settings."""
        return tuple(sorted(entry.content for entry in self.entries)), self.settings

    def list_app(self, app: str) -> tuple[Entry, ...]:
        """Return an app's entries, sorted by their first field."""
        return tuple(sorted((each for each in self.entries if each.app == app), key=lambda each: each.fields[0][1]))

    def find(self, number: int) -> Entry | None:
        """Return the entry with this number; None if there is none."""
        return next((entry for entry in self.entries if entry.number == number), None)

    def add(self, app: str, fields: Mapping[str, str], *, folder: str = "") -> Device:
        """Return the device with one more entry."""
        entry = Entry(app=app, number=self.next_number, fields=tuple(fields.items()), folder=folder)
        return replace(self, entries=(*self.entries, entry), next_number=self.next_number + 1)

    def change(self, entry: Entry) -> Device:
        """Return the device with this entry in the place of the one with its number."""
        return replace(self, entries=tuple(entry if each.number == entry.number else each for each in self.entries))

    def remove(self, entry: Entry) -> Device:
        """Return the device without an entry."""
        return replace(self, entries=tuple(each for each in self.entries if each.number != entry.number))

    def set(self, name: str, value: str) -> Device:
        """Return the device with another value of a setting."""
        return replace(self, settings=tuple((key, value if key == name else old) for key, old in self.settings))
