"""Chooses which past version of itself a policy plays against: the latest, any of them, or those that it loses to.

Prioritised fictitious self-play is AlphaStar's (Vinyals et al. 2019, Nature 575): an opponent is drawn with a weight
that falls with the share of games won against it. Deviation: the weight is the share of games lost, `1 - x`, while
AlphaStar also uses its powers; and a snapshot without games counts as lost half the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from turnwise.core.seeds import rng

Choice = Literal["latest", "uniform", "wins"]
DECAY = 0.99
"""Weight of a game after one further game against the same snapshot: a learning policy outgrows old results."""
NEW = 1.0
"""Games that every snapshot is assumed to have played, half of them won, so that none has weight 0."""


def list_snapshots(version: int, every: int) -> list[int]:
    """List the steps whose checkpoints exist when weights `version` sample: the start, and each `every`-th one (0:
    none)."""
    return [0, *(range(every, version + 1, every) if every else ())]


class Standings:
    """The learning policy's results against each of its snapshots, as decayed sums of games and of losses."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[float, float]] = {}

    def count(self, snapshot: int, lost: float) -> None:
        """Count one more game: `lost` is 1 for a loss, 0 for a win, between them for a draw."""
        games, losses = self._sums.get(snapshot, (0.0, 0.0))
        self._sums[snapshot] = (DECAY * games + 1.0, DECAY * losses + lost)

    def loss_rate(self, snapshot: int) -> float:
        """Return the share of games lost, in (0, 1)."""
        games, losses = self._sums.get(snapshot, (0.0, 0.0))
        return (losses + 0.5 * NEW) / (games + NEW)

    def state_dict(self) -> dict[str, list[float]]:
        """Return the state as JSON values; floats keep every bit."""
        return {str(snapshot): list(sums) for snapshot, sums in self._sums.items()}

    def load_state_dict(self, state: Mapping[str, Sequence[float]]) -> None:
        """The inverse of `state_dict`."""
        self._sums = {int(snapshot): (sums[0], sums[1]) for snapshot, sums in state.items()}


def choose_snapshot(choice: Choice, snapshots: Sequence[int], standings: Standings, seed: int, *path: int | str) -> int:
    """Choose the snapshot that plays in the draw identified by `seed` and `path`; `snapshots` are in order of time."""
    if choice == "latest":
        return snapshots[-1]
    weights = [standings.loss_rate(snapshot) if choice == "wins" else 1.0 for snapshot in snapshots]
    return rng(seed, "opponent", *path).choices(snapshots, weights)[0]
