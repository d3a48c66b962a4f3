"""Where the passages of research come from and how its report is checked: what a desk needs of its surroundings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from turnwise.core.judging import EpisodeJudges
from turnwise.core.types import Reward, Task, ToolRecord


class Sources(Protocol):
    """The sources of one episode. Single use."""

    @property
    def has_titles(self) -> bool:
        """Whether a search shows titles only, so that pages have to be opened."""
        ...

    def begin(self, task: Task, seed: int) -> None:
        """Begin the episode of a task; everything random comes from the seed."""
        ...

    def search(self, query: str) -> str:
        """Return passages for a query, each with its id."""
        ...

    def open(self, page: str) -> str:
        """Return one passage by its id. Raises ToolFailure if there is none."""
        ...

    async def score(self, records: Sequence[ToolRecord], answer: str | None, judges: EpisodeJudges) -> Reward:
        """Return the reward of what was written and answered; `answer` None if there is none."""
        ...
