"""The table in MuJoCo: the same moves and the same words, on bodies that slide, touch and take time.

A cell is one metre. Hand and block are boxes of .4 and .5 half-width on two slides each, so that a pushed block comes
to rest .9 cells before the hand, which still rounds to the next cell. A servo moves the hand along x and then along y;
where it is stopped, it gives up and stays. What is where is rounded to whole cells.
"""

from __future__ import annotations

import math
import os
from ctypes.util import find_library
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from turnwise.core.errors import ConfigError, EnvironmentFault, boundary
from turnwise.core.packages import require_package
from turnwise_worlds.push.body import Move
from turnwise_worlds.push.show import COLOURS, GROUND, PIXELS
from turnwise_worlds.push.table import Cell, Table

TIMESTEP_S = 0.01
STEPS_PER_CELL = 16
SETTLING_STEPS = 24
"""Physics steps of a move: some for each cell of it, and some until what moved is at rest."""
STOPPED = 0.15
"""Cells between the servo's aim and the hand from which on something has stopped it."""
HAND, BLOCK, WALL = 0.4, 0.5, 0.45
"""Half-widths, in cells."""
_HEIGHTS = {"goal": 0.02, "hand": 0.3, "block": 0.25, "wall": 0.25}


@dataclass(frozen=True, slots=True, kw_only=True)
class MujocoBody:
    """Implements `Body`: the state of the physics, from which each move starts again."""

    before: Table
    """The table before any move: its goal, wall and side."""
    state: np.ndarray
    """All that MuJoCo's next step depends on, read-only."""

    @staticmethod
    def open(table: Table) -> MujocoBody:
        """Return the body of a table before any move. Raises ConfigError where MuJoCo is missing."""
        mujoco, model = load_mujoco(), _compile(table.side, table.wall, table.block is not None)
        data = mujoco.MjData(model)
        data.qpos[:] = [*table.hand, *(table.block or ())]
        data.ctrl[:] = table.hand
        mujoco.mj_forward(model, data)
        return MujocoBody(before=table, state=_take_state(mujoco, model, data))

    @property
    def table(self) -> Table:
        """See `Body`."""
        before = self.before
        hand, block = self._read_places()
        last = before.side - 1

        def to_cell(place: np.ndarray) -> Cell:
            return min(max(round(float(place[0])), 0), last), min(max(round(float(place[1])), 0), last)

        return Table(
            side=before.side,
            hand=to_cell(hand),
            goal=before.goal,
            block=None if before.block is None else to_cell(block),
            wall=before.wall,
        )

    def act(self, move: Move) -> MujocoBody:
        """See `Body`. Raises EnvironmentFault for a move that is no number, and if the physics diverge."""
        if not all(math.isfinite(cells) for cells in move):
            raise EnvironmentFault(f"a move of {move} cells is no move; give two finite numbers")
        mujoco = load_mujoco()
        model, data = self.load()
        for axis, cells in enumerate(move):
            if not cells:
                continue
            aimed, place = float(data.ctrl[axis]), float(data.qpos[axis])
            start = aimed if abs(aimed - place) < STOPPED else place
            goal = start + float(cells)
            travel = max(1, round(STEPS_PER_CELL * abs(float(cells))))
            for number in range(travel + SETTLING_STEPS):
                data.ctrl[axis] = start + (goal - start) * min(1.0, (number + 1) / travel)
                mujoco.mj_step(model, data)
            if abs(goal - float(data.qpos[axis])) >= STOPPED:
                data.ctrl[axis] = data.qpos[axis]
        _check(mujoco, data)
        return MujocoBody(before=self.before, state=_take_state(mujoco, model, data))

    def load(self) -> tuple[Any, Any]:
        """Return MuJoCo's model and data in this state, for the caller alone."""
        mujoco = load_mujoco()
        model = _compile(self.before.side, self.before.wall, self.before.block is not None)
        data = mujoco.MjData(model)
        mujoco.mj_setState(model, data, self.state, mujoco.mjtState.mjSTATE_INTEGRATION)
        return model, data

    def describe_state(self) -> str:
        """See `Body`."""
        return self.state.tobytes().hex()

    def _read_places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return where hand and block are, in cells; the second is empty where there is no block."""
        places = self.state[1:]  # the first number is the time
        return places[:2], places[2:4]


@lru_cache(maxsize=1)
def load_mujoco() -> Any:
    """Return the module. Raises ConfigError with the remedy where it is missing or cannot be imported."""
    require_package("mujoco", "3.2", "bodies")
    # Read when MuJoCo is imported, which fails where the named library is missing; its default needs a display.
    os.environ.setdefault("MUJOCO_GL", "egl" if find_library("EGL") else "disable")
    with boundary(ConfigError, "body='mujoco': MuJoCo cannot be imported; unset MUJOCO_GL, or install it again"):
        import mujoco
    return mujoco


@lru_cache(maxsize=256)
def _compile(side: int, wall: tuple[Cell, ...], has_block: bool) -> Any:
    return load_mujoco().MjModel.from_xml_string(write_model(side, wall, has_block=has_block))


def write_model(side: int, wall: tuple[Cell, ...], *, has_block: bool) -> str:
    """Write the table as an MJCF model; hand and block are placed by their slides."""
    low, high = -0.5, side - 0.5

    def box(name: str, x: float, y: float, half: float) -> str:
        red, green, blue = (colour / 255 for colour in COLOURS[name])
        height = _HEIGHTS[name]
        return f'<geom type="box" pos="{x} {y} {height}" size="{half} {half} {height}" rgba="{red} {green} {blue} 1"/>'

    def slides(name: str, half: float, damping: float) -> str:
        return "".join(
            f'<joint name="{name}_{axis}" type="slide" axis="{direction}" damping="{damping}" limited="true" '
            f'range="{low + half - 0.05} {high - half + 0.05}"/>'
            for axis, direction in (("x", "1 0 0"), ("y", "0 1 0"))
        )

    walls = "".join(box("wall", x, y, WALL) for x, y in wall)
    block = f'<body name="block">{slides("block", BLOCK, 40)}{box("block", 0, 0, BLOCK)}</body>' if has_block else ""
    servos = "".join(f'<position joint="hand_{axis}" kp="4000" kv="400"/>' for axis in "xy")
    ground = " ".join(str(colour / 255) for colour in GROUND)
    middle = (side - 1) / 2
    return (
        f'<mujoco><option timestep="{TIMESTEP_S}" gravity="0 0 0" integrator="implicitfast"/>'
        f'<visual><global offwidth="{PIXELS}" offheight="{PIXELS}"/><quality shadowsize="0"/>'
        '<headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>'
        f'<default><geom friction="0 0 0" condim="1" density="10" solref="0.02 1"/></default><worldbody>'
        f'<camera name="above" pos="{middle} {middle} 20" mode="fixed" projection="orthographic" fovy="{side}"/>'
        f'<geom type="box" pos="{middle} {middle} -0.1" size="{side / 2} {side / 2} 0.05" rgba="{ground} 1" '
        'contype="0" conaffinity="0"/>'
        f'{walls}<body name="hand">{slides("hand", HAND, 1)}{box("hand", 0, 0, HAND)}</body>{block}'
        f"</worldbody><actuator>{servos}</actuator></mujoco>"
    )


def _take_state(mujoco: Any, model: Any, data: Any) -> np.ndarray:
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, state, kind)
    state.flags.writeable = False
    return state


def _check(mujoco: Any, data: Any) -> None:
    """Raise EnvironmentFault if MuJoCo has warned of numbers that diverge, or any place is not finite."""
    bad = ("mjWARN_BADQPOS", "mjWARN_BADQVEL", "mjWARN_BADQACC", "mjWARN_BADCTRL")
    warned = [name for name in bad if data.warning[getattr(mujoco.mjtWarning, name)].number]
    if warned or not np.isfinite(data.qpos).all():
        raise EnvironmentFault(f"MuJoCo diverged ({', '.join(warned) or 'a place is not finite'})")
