"""Schemas of the real benchmarks, for who has an emulator or a virtual machine. Never run against either.

A policy that operates the simulated devices writes the actions of AndroidWorld (`android_world.env.json_action`) and of
OSWorld's "computer_13". These functions give them the form that the benchmarks take, and write AndroidWorld's elements
as the simulated screens write theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.errors import ToolFailure
from turnwise_worlds.devices.desktop import DESKTOP_ACTIONS
from turnwise_worlds.devices.phone import PHONE_ACTIONS
from turnwise_worlds.devices.replies import read_object

_ANDROID_FIELDS = (
    *("action_type", "index", "x", "y", "text", "direction", "goal_status", "app_name", "keycode", "clear_text"),
)
_BARE = ("WAIT", "FAIL", "DONE")
"""Actions that OSWorld takes as a word."""


def to_android_fields(text: str) -> dict[str, Any]:
    """Return the keyword arguments of AndroidWorld's `JSONAction` for a reply.

    Raises ToolFailure for another action and for fields that it does not have."""
    given = read_object(text)
    if given.get("action_type") not in PHONE_ACTIONS:
        raise ToolFailure(f"action_type must be one of {', '.join(PHONE_ACTIONS)}")
    if unknown := [name for name in given if name not in _ANDROID_FIELDS]:
        raise ToolFailure(f"AndroidWorld's actions have no field {unknown[0][:20]!r}")
    return {name: value for name, value in given.items() if value is not None}


def to_osworld_action(text: str) -> str | dict[str, Any]:
    """Return what OSWorld's `DesktopEnv.step` takes for a reply: a word, or a type and its parameters.

    Raises ToolFailure for another action."""
    given = dict(read_object(text))
    kind = str(given.pop("action_type", "")).upper()
    if kind not in DESKTOP_ACTIONS:
        raise ToolFailure(f"action_type must be one of {', '.join(DESKTOP_ACTIONS)}")
    given.pop("parameters", None)
    return kind if kind in _BARE else {"action_type": kind, "parameters": given}


def write_android_elements(elements: Sequence[Mapping[str, Any]]) -> str:
    """Write AndroidWorld's elements, as dicts of its `UIElement`, a line each with index, role, name and middle; those
    without a box are left out."""
    lines = []
    for index, element in enumerate(elements):
        box = element.get("bbox_pixels")
        if not box:
            continue
        role = str(element.get("class_name") or "view").rpartition(".")[2].lower()
        name = json.dumps(str(element.get("text") or element.get("content_description") or ""), ensure_ascii=False)
        x, y = (box["x_min"] + box["x_max"]) // 2, (box["y_min"] + box["y_max"]) // 2
        lines.append(f"[{index}] {role} {name} at ({x}, {y})")
    return "\n".join(lines)
