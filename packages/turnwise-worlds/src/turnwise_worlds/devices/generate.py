"""Makes devices from seeds."""

from __future__ import annotations

from random import Random

from turnwise_worlds.devices.state import BRIGHTNESS, FOLDERS, LEVELS, SWITCHES, Device
from turnwise_worlds.web.site.words import NAMES

TEXTS = ("buy bread", "call the bank", "water the plants", "book a table", "return the keys", "send the parcel")
FEWEST, MOST = 3, 9
"""Entries of each app."""


def draw_phone(random: Random) -> str:
    """Draw a phone number, `555 0123`."""
    return f"555 {random.randrange(10_000):04d}"


def draw_time(random: Random) -> str:
    """Draw a time, `07:35`."""
    return f"{random.randrange(24):02d}:{random.randrange(0, 60, 5):02d}"


def make_device(random: Random) -> Device:
    """Make a device. No two entries of an app have the same first field."""
    device = Device(entries=(), settings=(), next_number=1)
    for name in random.sample(NAMES, random.randint(FEWEST, MOST)):
        device = device.add("contacts", {"name": name.title(), "phone": draw_phone(random)})
    for title in random.sample(NAMES, random.randint(FEWEST, MOST)):
        device = device.add("notes", {"title": title, "text": random.choice(TEXTS)})
    times = sorted({draw_time(random) for _ in range(random.randint(FEWEST, MOST))})
    for time in times:
        device = device.add("clock", {"time": time, "label": random.choice(NAMES)})
    for name in random.sample(NAMES, random.randint(FEWEST, MOST)):
        fields = {"name": f"{name}.txt", "text": random.choice(TEXTS)}
        device = device.add("files", fields, folder=random.choice(FOLDERS))
    switches = tuple((name, random.choice(("on", "off"))) for name in SWITCHES)
    return Device(
        entries=device.entries,
        settings=(*switches, (BRIGHTNESS, random.choice(LEVELS))),
        next_number=device.next_number,
    )
