"""Crafter's view in words: what the player faces, the nearest thing of every kind in the picture, and what they have.

The view is the part of the picture that shows the world: 9 by 7 cells, the player in the middle.
"""

from __future__ import annotations

from typing import Any, Literal

Style = Literal["full", "terse"]

VITALS = ("health", "food", "drink", "energy")
WIDTH, HEIGHT = 9, 7
"""Cells of the view."""
_DARK = 0.5
"""Daylight, from 0 to 1, below which Crafter's picture gets noisy."""


def name_cell(world: Any, place: tuple[int, int]) -> str:
    """Return the kind of the creature in a cell, or else its material; "edge" outside the world."""
    material, creature = world[place]
    if creature is not None:
        ripe = getattr(creature, "ripe", False)
        return f"ripe {type(creature).__name__.lower()}" if ripe else type(creature).__name__.lower()
    return material or "edge"


def list_nearest(env: Any) -> dict[str, tuple[int, int]]:
    """Return the nearest cell of every kind in view but grass, relative to the player: cells to the right and down.
    Of equally near cells the upper, then the left one is taken."""
    world, (x, y) = env._world, map(int, env._player.pos)
    nearest: dict[str, tuple[int, int]] = {}
    cells = [(dx, dy) for dy in range(-(HEIGHT // 2), HEIGHT // 2 + 1) for dx in range(-(WIDTH // 2), WIDTH // 2 + 1)]
    for dx, dy in sorted(cells, key=lambda cell: abs(cell[0]) + abs(cell[1])):
        kind = name_cell(world, (x + dx, y + dy))
        if (dx, dy) != (0, 0) and kind not in ("grass", "edge"):
            nearest.setdefault(kind, (dx, dy))
    return nearest


def name_facing(env: Any) -> str:
    """Return what the player faces, as `name_cell` does."""
    x, y = env._player.pos
    dx, dy = env._player.facing
    return name_cell(env._world, (int(x + dx), int(y + dy)))


def describe_view(env: Any, style: Style, sought: str = "") -> str:
    """Describe what the player sees and has.

    "terse" is a line per thing, `tree left 2 up 1`, without what can be walked on; vitals only below 5. The line of the
    `sought` kind is the last of the things, where small models find it first.
    """
    inventory, nearest = env._player.inventory, list_nearest(env)
    if style == "terse":
        shown = {kind: cell for kind, cell in nearest.items() if kind not in env._player.walkable or kind == "lava"}
        lines = [f" face {name_facing(env)}"]
        lines += [f" {kind} {_steer(shown[kind])}" for kind in sorted(shown, key=sought.__eq__)]
        lines += [
            f" {name} {count}" for name, count in inventory.items() if (count < 5 if name in VITALS else count > 0)
        ]
        return "\n".join(lines)
    seen = ", ".join(f"{kind} ({_point(cell)})" for kind, cell in nearest.items())
    carried = ", ".join(f"{count} {name}" for name, count in inventory.items() if count and name not in VITALS)
    state = "You are asleep. " if env._player.sleeping else "It is dark. " if env._world.daylight < _DARK else ""
    return (
        f"{state}You face {name_facing(env)}.\nNearest: {seen or 'only grass'}.\n"
        f"{', '.join(f'{name} {inventory[name]}' for name in VITALS)}.\nYou carry: {carried or 'nothing'}."
    )


def _steer(cell: tuple[int, int]) -> str:
    """Write `left 2 up 1`, without a zero."""
    (dx, dy) = cell
    words = ([f"{'right' if dx > 0 else 'left'} {abs(dx)}"] if dx else []) + (
        [f"{'down' if dy > 0 else 'up'} {abs(dy)}"] if dy else []
    )
    return " ".join(words)


def _point(cell: tuple[int, int]) -> str:
    """Write `2 left, 1 up`, without a zero."""
    (dx, dy) = cell
    words = ([f"{abs(dx)} {'right' if dx > 0 else 'left'}"] if dx else []) + (
        [f"{abs(dy)} {'down' if dy > 0 else 'up'}"] if dy else []
    )
    return ", ".join(words)
