"""Pictures of the physics, rendered by MuJoCo through EGL, which needs no GPU and no display.

A GL context belongs to the thread that made it, so all pictures of a process are taken in one.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from functools import lru_cache
from typing import Any

import numpy as np

from turnwise.core.errors import ConfigError, EnvironmentFault, boundary
from turnwise.core.pictures import Pixels
from turnwise_worlds.push.physics import MujocoBody, load_mujoco
from turnwise_worlds.push.show import COLOURS, PIXELS

TIMEOUT_S = 60.0
"""Seconds that one picture may take; the first one of a process starts EGL."""


def photograph(body: MujocoBody, *, hides_goal: bool) -> Pixels:
    """Return a picture from above, `[32, 32, 3]`, laid out as `show.draw` does.

    Raises ConfigError if EGL cannot be started, EnvironmentFault if a picture takes more than `TIMEOUT_S`.
    """
    try:
        return _start_thread().submit(_take, body, hides_goal).result(timeout=TIMEOUT_S)
    except TookTooLong:
        raise EnvironmentFault(f"MuJoCo took more than {TIMEOUT_S:g} s for a picture") from None


@lru_cache(maxsize=1)
def _start_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="turnwise-egl")


def _take(body: MujocoBody, hides_goal: bool) -> Pixels:
    mujoco = load_mujoco()
    model, data = body.load()
    mujoco.mj_forward(model, data)
    renderer = _build_renderer(model)
    renderer.update_scene(data, camera="above")
    if not hides_goal:
        _add_goal(mujoco, renderer.scene, body.before.goal)
    return np.array(renderer.render(), np.uint8)


@lru_cache(maxsize=4)
def _build_renderer(model: Any) -> Any:
    remedy = "camera='egl' needs EGL, which cannot be started; install libegl1, or use camera='drawn'"
    with boundary(ConfigError, remedy):
        return load_mujoco().Renderer(model, PIXELS, PIXELS)


def _add_goal(mujoco: Any, scene: Any, goal: tuple[int, int]) -> None:
    """Add a flat green square to a scene: the goal is no body and nothing touches it."""
    colour = np.array([*(part / 255 for part in COLOURS["goal"]), 1.0], np.float32)
    size, place, upright = np.array([0.5, 0.5, 0.01]), np.array([*goal, 0.0]), np.eye(3).ravel()
    mujoco.mjv_initGeom(scene.geoms[scene.ngeom], mujoco.mjtGeom.mjGEOM_BOX, size, place, upright, colour)
    scene.ngeom += 1
