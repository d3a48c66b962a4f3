"""Draws the tasks of a run again: what a curriculum chose follows from the results stored before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from turnwise.audit.breaches import Breach, Tallies
from turnwise.core.errors import StoreError, TurnwiseError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import DropReason, TrajectoryGroup
from turnwise.curriculum.curriculum import REFILL, Curriculum, DrawnTask
from turnwise.curriculum.offered import Offered
from turnwise.environments.draws import LeftOut, try_task

CHECK = "curriculum"


class DrawCheck:
    """Follows a journal line by line with a sampler of its own."""

    def __init__(
        self,
        curriculum: Curriculum,
        family: EnvironmentFamily,
        load: Callable[[int], TrajectoryGroup],
        tallies: Tallies,
        *,
        first_task: int,
    ) -> None:
        """`load` reads the stored group of a draw, and raises StoreError."""
        self._curriculum = curriculum
        self._family = family
        self._load = load
        self._tallies = tallies
        self._offered = Offered(self._identify, first=first_task)
        self._drawn: dict[int, DrawnTask] = {}
        self._finished: set[int] = set()
        self._fates: dict[int, tuple[int, DropReason | None]] = {}
        """Step and reason of every draw that was taken (None) or dropped."""
        self._states = {0: curriculum.state_dict()}

    def run(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Check every draw, until one whose choice depends on a group that cannot be read."""
        lines = list(rows)
        for place, row in enumerate(lines):
            try:
                self._follow(row)
            except StoreError:
                rest = {each["draw"] for each in lines[place:] if each["kind"] == "opened"} - self._drawn.keys()
                self._tallies.skip(CHECK, "draws after a group that cannot be read", len(rest))
                return

    def _follow(self, row: Mapping[str, Any]) -> None:
        match row["kind"]:
            case "opened" if row["draw"] not in self._drawn:
                self._check(row["draw"], DrawnTask(task=row["task"], pool=row.get("pool", "")))
            case "finished":
                self._finished.add(row["draw"])
            case "left_out":
                self._offered.leave_out(row["task"])
            case "dropped":
                reason = DropReason(row["reason"])
                self._fates[row["draw"]] = row["step"], reason
                if row["draw"] not in self._finished:
                    self._offered.settle(row["draw"])
                if reason is DropReason.TOO_LONG:
                    self._offered.leave_out(self._drawn[row["draw"]].task)
            case "taken":
                self._observe(row["step"], row["draws"])
            case "rewound":
                self._rewind(row["step"])

    def _check(self, draw: int, drawn: DrawnTask) -> None:
        if drawn.pool == REFILL:
            self._tallies.skip(CHECK, "draws that dynamic sampling repeated within a step", 1)
        else:
            self._tallies[CHECK].checked += 1
            try:
                choice = self._curriculum.choose(draw, self._offered)
                task = self._offered.take_new(choice.kind) if choice.again is None else choice.again
                again = f"task {task} ({choice.pool})"
            except TurnwiseError as cause:
                again = str(cause)
            was = f"task {drawn.task} ({drawn.pool})"
            if again != was:
                text = f"it was for {was}; from the results stored before, the sampler gives: {again}"
                self._tallies.take([Breach(check=CHECK, draw=draw, text=text)])
        self._drawn[draw] = drawn
        self._curriculum.note(draw, drawn)
        self._offered.recall(drawn.task)
        self._offered.hold(draw, drawn.task)

    def _observe(self, step: int, draws: Iterable[int]) -> None:
        """Take in a step's groups, as training does when it takes them."""
        groups = [self._load(draw) for draw in draws]
        dropped = [
            (self._load(draw), reason)
            for draw, (when, reason) in self._fates.items()
            if when == step and reason is not None and draw in self._finished
        ]
        self._curriculum.observe(step, groups, dropped)
        self._states[step] = self._curriculum.state_dict()
        self._fates |= dict.fromkeys(draws, (step, None))
        for group in [*groups, *(group for group, _ in dropped)]:
            self._offered.settle(group.draw.index)

    def _rewind(self, step: int) -> None:
        for draw, (when, _) in [*self._fates.items()]:
            if when > step:
                del self._fates[draw]
                self._offered.hold(draw, self._drawn[draw].task)
        self._curriculum.load_state_dict(self._states[step])

    def _identify(self, index: int) -> tuple[str, str] | None:
        task = try_task(self._family, "train", index)
        return None if isinstance(task, LeftOut) else self._curriculum.identify(task)
