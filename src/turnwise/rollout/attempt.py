"""Names, seeds and sampling options of the trajectory that a rollout samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwise.core.episodes import MAIN
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Draw, Grammar, Session, Task, ToolSpec, TrajectoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How replies are sampled, and the seed for all randomness in the rollout."""

    temperature: float
    seed: int
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all tokens."""
    min_p: float = 0.0
    """0 keeps all tokens."""
    build_grammar: Callable[[Sequence[ToolSpec]], Grammar] | None = None
    """Builds the grammar of replies from the tools on offer; None, and a conversation without tools, allow
    everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Identifies one trajectory: draw, member and attempt."""

    draw: Draw
    member: int
    number: int = 0
    """Attempt number of the member; the first one is `draw.attempt`."""
    version: int = 0
    """Version of the weights that opened its group."""
    scope: str = "train"
    """What the rollout is for: keeps the engine sessions of training and of an evaluation apart."""

    @property
    def task(self) -> Task:
        """The task of the draw."""
        return self.draw.task

    @property
    def id(self) -> TrajectoryId:
        """Id of the trajectory."""
        return TrajectoryId(draw=self.draw.index, member=self.member, attempt=self.number)

    def seed(self, run_seed: int, *path: int | str) -> int:
        """Return a seed that depends on the run, the draw, the member, the attempt and `path`, never on time or
        order."""
        return derive_seed(run_seed, self.draw.index, self.task.id, self.member, self.number, *path)

    def session(self, branch: int = 0, conversation: str = MAIN) -> Session:
        """Return the engine session of this attempt, or of one of its branches or conversations."""
        suffix = (f".{branch}" if branch else "") + (f"/{conversation}" if conversation != MAIN else "")
        return Session(f"{self.scope}/{self.draw.index}", f"{self.member}/{self.number}{suffix}")


def environment_seed(run_seed: int, draw: Draw) -> int:
    """Return the seed of a draw's environments: its members face the same episode and differ only in what they
    sample."""
    return derive_seed(run_seed, "environment", draw.index, draw.task.id)
