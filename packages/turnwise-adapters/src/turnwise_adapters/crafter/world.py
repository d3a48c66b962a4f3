"""Crafter's worlds, by seed: made once, copied for every episode, and the same for every reader."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any

_MAX_KEPT = 1024
"""Worlds kept in memory; one takes about 0.1 MB."""


@cache
def _world_class() -> Any:
    """Crafter's environment with three deviations: creatures of a chunk are counted in the order of their places (a
    Python set has another order in every process), drawing takes no random numbers, and a step draws nothing."""
    import crafter

    class OrderedCrafter(crafter.Env):  # type: ignore[misc, unused-ignore]
        def _balance_chunk(self, chunk: Any, objs: Any) -> None:
            super()._balance_chunk(chunk, sorted(objs, key=lambda each: tuple(each.pos)))

        def _obs(self) -> None:
            return None

        def draw(self) -> Any:
            """Return the picture, `[height, width, 3]`; at night Crafter draws noise from the world's numbers."""
            state = self._world.random.get_state()
            try:
                return self.render()
            finally:
                self._world.random.set_state(state)

    return OrderedCrafter


class Worlds:
    """Makes worlds and keeps the last ones, as making one of 64 by 64 cells takes 0.65 s and copying it 1 ms."""

    def __init__(self, area: int, picture_size: int) -> None:
        """Sets the cells a side and the pixels a side of pictures."""
        self._area = area
        self._picture_size = picture_size
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._judged: dict[tuple[int, str], bool] = {}
        self._lock = Lock()

    def open(self, seed: int) -> Any:
        """Return a copy of the world with this seed, in its first state."""
        with self._lock:
            if seed in self._kept:
                self._kept.move_to_end(seed)
            else:
                self._kept[seed] = self._make(seed)
                if len(self._kept) > _MAX_KEPT:
                    self._kept.popitem(last=False)
            first = self._kept[seed]
        return self.copy(first)

    @staticmethod
    def copy(world: Any) -> Any:
        """Return a second world in the state of this one."""
        return copy.deepcopy(world, {id(world._textures): world._textures})

    def judge(self, question: tuple[int, str], answer: Callable[[], bool]) -> bool:
        """Return the answer about a seed and its goal, computed at the first call."""
        if question not in self._judged:
            self._judged[question] = answer()
        return self._judged[question]

    def _make(self, seed: int) -> Any:
        side = (self._area, self._area)
        world = _world_class()(area=side, size=(self._picture_size,) * 2, length=None, seed=seed)
        world.reset()
        return world
