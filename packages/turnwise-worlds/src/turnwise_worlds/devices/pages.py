"""The device as one pure function: a device and a request give a device and a page, as the site of `web` is one.

/                       icons of the apps
/notes                  a list of entries; /files/Documents for those in a folder
/notes/new              a form; so is /notes/7/edit
/notes/7                an entry
/settings               buttons
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from turnwise_worlds.devices.apps import APPS, LABELS, SETTINGS, find_fault
from turnwise_worlds.devices.state import BRIGHTNESS, FOLDERS, LEVELS, SWITCHES, Device, Entry
from turnwise_worlds.web.site.handle import Request
from turnwise_worlds.web.site.markup import Content, bullets, button, form, join, link, tag, text_field

HOME = "/"
Outcome = tuple[Device, str]
"""The device after a form, and the path of the page to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a device answers."""

    device: Device
    html: str
    location: str


def handle(device: Device, request: Request) -> Answer:
    """Answer a request. Never raises: what does not exist is a page that says so. GET changes nothing but the notice,
    which is shown once."""
    path = request.path
    if request.method == "POST":
        device, path = _post(replace(device, notice=""), _split(path), request.fields)
        return Answer(device=device, html=_show(device, path), location=path)
    device = replace(device, notice="")
    return Answer(device=device, html=_show(device, path), location=path)


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _find(device: Device, app: str, number: str) -> Entry | None:
    entry = device.find(int(number)) if number.isascii() and number.isdigit() and len(number) < 7 else None
    return entry if entry is not None and entry.app == app else None


def _post(device: Device, parts: list[str], fields: Mapping[str, str]) -> Outcome:
    here = HOME + "/".join(parts)
    match parts:
        case ["settings", name, value] if name == BRIGHTNESS and value in LEVELS:
            return device.set(name, value), "/settings"
        case ["settings", name, ("on" | "off") as value] if name in SWITCHES:
            return device.set(name, value), "/settings"
        case [app, *folder, "new"] if app in APPS and _is_place(app, folder):
            values = {name: fields.get(name, "") for name in APPS[app].fields}
            if fault := find_fault(APPS[app], values):
                return replace(device, notice=fault), here
            return device.add(app, values, folder="".join(folder)), "/".join(["", app, *folder])
        case [app, number, action] if app in APPS and (entry := _find(device, app, number)) is not None:
            return _act(device, entry, action, fields)
        case _:
            return device, here


def _is_place(app: str, folder: list[str]) -> bool:
    return folder[0] in FOLDERS if len(folder) == 1 and APPS[app].has_folders else not folder


def _act(device: Device, entry: Entry, action: str, fields: Mapping[str, str]) -> Outcome:
    app, here = APPS[entry.app], f"/{entry.app}/{entry.number}"
    place = f"/{entry.app}/{entry.folder}" if app.has_folders else f"/{entry.app}"
    if action == "delete":
        return device.remove(entry), place
    if action == "edit":
        values = {name: fields.get(name, "") for name in app.fields}
        if fault := find_fault(app, values):
            return replace(device, notice=fault), f"{here}/edit"
        return device.change(replace(entry, fields=tuple(values.items()))), here
    if action == "switch" and app.has_switch:
        return device.change(replace(entry, is_on=not entry.is_on)), here
    if app.has_folders and action in FOLDERS:
        return device.change(replace(entry, folder=action)), here
    return device, here


def _show(device: Device, path: str) -> str:
    match _split(path):
        case []:
            return _lay_out("Home", bullets(*(link(label, f"/{name}") for name, label in LABELS.items())))
        case ["settings"]:
            return _lay_out("Settings", *(_write_setting(name, value) for name, value in device.settings))
        case ["files"]:
            return _lay_out("Files", bullets(*(link(folder, f"/files/{folder}") for folder in FOLDERS)))
        case [app, *folder] if app in APPS and _is_place(app, folder):
            return _show_list(device, app, "".join(folder))
        case [app, *folder, "new"] if app in APPS and _is_place(app, folder):
            return _lay_out(f"New {APPS[app].noun}", _show_notice(device), _write_form(app, path, {}))
        case [app, number, *action] if app in APPS and (entry := _find(device, app, number)) is not None:
            if action == ["edit"]:
                title = f"Edit {APPS[app].noun}"
                return _lay_out(title, _show_notice(device), _write_form(app, path, dict(entry.fields)))
            return _show_entry(entry) if not action else _show_missing()
        case _:
            return _show_missing()


def _show_missing() -> str:
    return _lay_out("Not found", tag("p", "There is nothing here."))


def _show_notice(device: Device) -> Content:
    return tag("p", device.notice) if device.notice else None


def _show_list(device: Device, app: str, folder: str) -> str:
    place = f"/{app}/{folder}" if folder else f"/{app}"
    entries = [each for each in device.list_app(app) if each.folder == folder]
    items = (link(each.fields[0][1], f"/{app}/{each.number}") for each in entries)
    title = folder or APPS[app].label
    return _lay_out(title, tag("p", link(f"New {APPS[app].noun}", f"{place}/new")), bullets(*items))


def _show_entry(entry: Entry) -> str:
    app, here = APPS[entry.app], f"/{entry.app}/{entry.number}"
    buttons = [link("Edit", f"{here}/edit")]
    if app.has_switch:
        buttons.append(form("post", f"{here}/switch", button("Turn off" if entry.is_on else "Turn on")))
    if app.has_folders:
        others = [folder for folder in FOLDERS if folder != entry.folder]
        buttons += [form("post", f"{here}/{folder}", button(f"Move to {folder}")) for folder in others]
    buttons.append(form("post", f"{here}/delete", button("Delete")))
    shown = [tag("p", f"{name}: {value}") for name, value in entry.fields]
    if app.has_switch:
        shown.append(tag("p", "on" if entry.is_on else "off"))
    return _lay_out(entry.fields[0][1], *shown, *(tag("div", each) for each in buttons))


def _write_form(app: str, path: str, values: Mapping[str, str]) -> Content:
    fields = (text_field(name, name, values.get(name, "")) for name in APPS[app].fields)
    return form("post", path, *fields, button("Save"))


def _write_setting(name: str, value: str) -> Content:
    others = [level for level in LEVELS if level != value] if name == BRIGHTNESS else ["off" if value == "on" else "on"]
    buttons = (form("post", f"/{SETTINGS}/{name}/{other}", button(f"{name} {other}")) for other in others)
    return tag("div", tag("p", f"{name}: {value}"), *buttons)


def _lay_out(title: str, *blocks: Content) -> str:
    return (
        f"<!DOCTYPE html>{join(tag('html', tag('head', tag('title', title)), tag('body', tag('h1', title), *blocks)))}"
    )
