"""Several engines: which one a trajectory goes to, and how their time was spent."""

from __future__ import annotations

import heapq
from collections import Counter

from turnwise.forecast.simulation.agenda import Agenda
from turnwise.forecast.simulation.costs import Costs
from turnwise.forecast.simulation.engine import SimulatedEngine


class EnginePool:
    """All engines of a run."""

    def __init__(self, agenda: Agenda, costs: Costs) -> None:
        if costs.num_engines < 1:
            raise ValueError(f"got {costs.num_engines} engines; a run needs at least 1")
        self._placement = costs.placement
        self.engines = [SimulatedEngine(agenda, costs.engine) for _ in range(costs.num_engines)]
        self._by_load = [(0, index) for index in range(costs.num_engines)]

    def place(self, present: int | None, draw: int) -> int:
        """The engine for a member's next turn; `present` is that of its last turn, None before the first."""
        if present is not None:
            if self._placement != "turn":
                return present
            self.leave(present)
        index = draw % len(self.engines) if self._placement == "group" else self._find_free()
        self.engines[index].num_members += 1
        self._note(index)
        return index

    def leave(self, index: int) -> None:
        """Note that a member does not stay on this engine any longer."""
        self.engines[index].num_members -= 1
        self.engines[index].refresh()
        self._note(index)

    def publish(self, version: int, seconds: float) -> None:
        """Let all engines load weights."""
        for engine in self.engines:
            engine.publish(version, seconds)

    def set_training(self, is_training: bool) -> None:
        """Let the trainer take the engines' machines, or return them."""
        for engine in self.engines:
            engine.refresh()
            engine.is_training = is_training
            engine.refresh()

    def seconds(self, now_s: float) -> dict[str, float]:
        """Seconds by state, over all engines."""
        total: Counter[str] = Counter()
        for engine in self.engines:
            total.update(engine.occupancy.seconds(now_s))
        return {state: float(seconds) for state, seconds in total.items()}

    def _find_free(self) -> int:
        """The engine with the fewest members; the first one if there are several."""
        while self._by_load[0][0] != self.engines[self._by_load[0][1]].num_members:
            heapq.heappop(self._by_load)  # recorded before members came or went
        return self._by_load[0][1]

    def _note(self, index: int) -> None:
        if self._placement != "group":
            heapq.heappush(self._by_load, (self.engines[index].num_members, index))
