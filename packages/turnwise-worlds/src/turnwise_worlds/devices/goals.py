"""What is asked of a device, and how the state tells that it was done.

A goal is the device as it has to be in the end, everything else included, and the answer where one is asked for. So a
task that is done and something else broken besides has failed, and no task is done before it is begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from turnwise.core.seeds import rng
from turnwise_worlds.devices.apps import APPS
from turnwise_worlds.devices.generate import TEXTS, draw_phone, draw_time, make_device
from turnwise_worlds.devices.state import BRIGHTNESS, FOLDERS, LEVELS, SWITCHES, Device, Entry
from turnwise_worlds.web.site.words import NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One task on one device."""

    device: Device
    """The device before."""
    question: str
    wanted: Device
    """The device as it has to be in the end."""
    answer: str = ""
    """What has to be answered; empty if nothing is asked."""
    path: str = ""
    """The page on which the task is done or the answer read, for scripted policies."""
    button: str = ""
    """What has to be pressed there; empty where a form is filled or only read."""
    values: Mapping[str, str]
    """What has to be written into the form there."""

    def is_met(self, device: Device, answer: str) -> bool:
        """Whether a device and an answer are what was asked for. Numbers of entries do not count; blanks around an
        answer and its case neither."""
        said = " ".join(answer.split()).casefold()
        return device.content == self.wanted.content and said == self.answer.casefold()


def make_goal(seed: int, task: str) -> Goal:
    """Make the task of a seed; `task` is a key of `TASKS`."""
    random = rng(seed, "device", task)
    return TASKS[task](make_device(random), random)


def _pick(device: Device, app: str, random: Random) -> Entry:
    return random.choice(device.list_app(app))


def _new_name(device: Device, app: str, random: Random) -> str:
    taken = {entry.fields[0][1].casefold().removesuffix(".txt") for entry in device.list_app(app)}
    return random.choice([name for name in NAMES if name not in taken])


def _add(device: Device, app: str, question: str, values: Mapping[str, str], folder: str = "") -> Goal:
    path = f"/{app}/{folder}/new" if folder else f"/{app}/new"
    wanted = device.add(app, values, folder=folder)
    return Goal(device=device, question=question, wanted=wanted, path=path, values=values)


def _add_contact(device: Device, random: Random) -> Goal:
    values = {"name": _new_name(device, "contacts", random).title(), "phone": draw_phone(random)}
    return _add(device, "contacts", f"Add the contact {values['name']} with the phone {values['phone']}.", values)


def _add_note(device: Device, random: Random) -> Goal:
    values = {"title": _new_name(device, "notes", random), "text": random.choice(TEXTS)}
    return _add(device, "notes", f'Add a note with the title {values["title"]} that says "{values["text"]}".', values)


def _add_alarm(device: Device, random: Random) -> Goal:
    taken = {entry.get("time") for entry in device.list_app("clock")}
    time = draw_time(random)
    while time in taken:
        time = draw_time(random)
    values = {"time": time, "label": random.choice(NAMES)}
    return _add(device, "clock", f"Set an alarm for {time} with the label {values['label']}.", values)


def _copy_phone(device: Device, random: Random) -> Goal:
    contact, title = _pick(device, "contacts", random), _new_name(device, "notes", random)
    values = {"title": title, "text": contact.get("phone")}
    question = (
        f"Add a note with the title {title} that says the phone number of {contact.get('name')}, and nothing else."
    )
    return _add(device, "notes", question, values)


def _change_phone(device: Device, random: Random) -> Goal:
    contact, phone = _pick(device, "contacts", random), draw_phone(random)
    while phone == contact.get("phone"):
        phone = draw_phone(random)
    values = {"name": contact.get("name"), "phone": phone}
    return Goal(
        device=device,
        question=f"Change the phone of {contact.get('name')} to {phone}.",
        wanted=device.change(replace(contact, fields=tuple(values.items()))),
        path=f"/contacts/{contact.number}/edit",
        values=values,
    )


def _press(device: Device, question: str, wanted: Device, path: str, button: str) -> Goal:
    return Goal(device=device, question=question, wanted=wanted, path=path, button=button, values={})


def _delete(app: str) -> Callable[[Device, Random], Goal]:
    def make(device: Device, random: Random) -> Goal:
        entry = _pick(device, app, random)
        question = f"Delete the {APPS[app].noun} {entry.fields[0][1]}."
        return _press(device, question, device.remove(entry), f"/{app}/{entry.number}", "Delete")

    return make


def _switch_alarm(device: Device, random: Random) -> Goal:
    entry = _pick(device, "clock", random)
    question = f"Turn off the alarm at {entry.get('time')}."
    return _press(device, question, device.change(replace(entry, is_on=False)), f"/clock/{entry.number}", "Turn off")


def _move_file(device: Device, random: Random) -> Goal:
    entry = _pick(device, "files", random)
    folder = random.choice([name for name in FOLDERS if name != entry.folder])
    question = f"Move the file {entry.get('name')} from {entry.folder} to {folder}."
    wanted = device.change(replace(entry, folder=folder))
    return _press(device, question, wanted, f"/files/{entry.number}", f"Move to {folder}")


def _switch_setting(device: Device, random: Random) -> Goal:
    name = random.choice(SWITCHES)
    value = "off" if dict(device.settings)[name] == "on" else "on"
    return _press(device, f"Turn {name} {value}.", device.set(name, value), "/settings", f"{name} {value}")


def _set_brightness(device: Device, random: Random) -> Goal:
    value = random.choice([level for level in LEVELS if level != dict(device.settings)[BRIGHTNESS]])
    question = f"Set the brightness to {value}."
    return _press(device, question, device.set(BRIGHTNESS, value), "/settings", f"{BRIGHTNESS} {value}")


def _ask_phone(device: Device, random: Random) -> Goal:
    contact = _pick(device, "contacts", random)
    return Goal(
        device=device,
        question=f"What is the phone number of {contact.get('name')}? Answer with the number alone.",
        wanted=device,
        answer=contact.get("phone"),
        path=f"/contacts/{contact.number}",
        values={},
    )


TASKS: Mapping[str, Callable[[Device, Random], Goal]] = {
    "add_contact": _add_contact,
    "add_note": _add_note,
    "add_alarm": _add_alarm,
    "copy_phone": _copy_phone,
    "change_phone": _change_phone,
    "delete_contact": _delete("contacts"),
    "delete_note": _delete("notes"),
    "delete_file": _delete("files"),
    "switch_alarm": _switch_alarm,
    "move_file": _move_file,
    "switch_setting": _switch_setting,
    "set_brightness": _set_brightness,
    "ask_phone": _ask_phone,
}
"""Makes a task on a device, by name."""
