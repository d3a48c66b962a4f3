"""An episode of ScienceWorld as a text game."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random

from turnwise.core.errors import ToolFailure
from turnwise_adapters.scienceworld.arguments import ScienceWorldArguments
from turnwise_adapters.scienceworld.server import Scene, Server
from turnwise_adapters.scienceworld.servers import Servers
from turnwise_adapters.text_game import Outcome, TextGame

UNKNOWN = "No known action matches that input."
"""The simulator's answer to text that is no action."""


class ScienceWorldGame(TextGame):
    """One episode."""

    def __init__(self, chosen: ScienceWorldArguments, servers: Servers) -> None:
        """`servers` simulate."""
        self._chosen = chosen
        self._servers = servers
        self._taken: list[str] = []
        self._score = 0
        self._listed: tuple[str, ...] | None = None

    def open(self, seed: int) -> str:
        """Load the task and variation of the seed."""
        random = Random(seed)
        task = draw_task(self._chosen.tasks, random)
        split = self._chosen.heldout.title() if seed % 2 else "Train"
        variation = random.choice(self._servers.list_variations(task, split))
        self._scene = Scene(task=task, variation=variation, simplifications=",".join(self._chosen.simplifications))
        with self._servers.use(self) as server:
            server.load(self._scene)
            server.owner = self
            self.objective = server.describe_task()
            look = server.look()
        return f"{self.objective}\n{look}"

    @contextmanager
    def _resume(self) -> Iterator[Server]:
        """Lend a process that is in this episode's state."""
        with self._servers.use(self) as server:
            if server.owner is not self:
                server.owner = None
                server.load(self._scene)
                for action in self._taken:
                    server.step(action)
                server.owner = self
            yield server

    def step(self, action: str) -> Outcome:
        """See `TextGame.step`. Rewards sum to a hundredth of the score; a task that failed for good (a score below 0)
        sums to 0, and `report` says so."""
        with self._resume() as server:
            answer = server.step(action)
        self._listed = None
        self._taken.append(action)
        if answer.text.startswith(UNKNOWN):
            raise ToolFailure(answer.text)
        gained = max(answer.score, 0) - max(self._score, 0)
        self._score = answer.score
        return Outcome(text=answer.text, reward=gained / 100, done=answer.done, won=answer.score >= 100)

    def legal_actions(self) -> Sequence[str]:
        """Return the simulator's list of actions if it is shown."""
        return () if self._chosen.show_actions == "never" else self._list()

    def _list(self) -> Sequence[str]:
        if self._listed is None:
            with self._resume() as server:
                self._listed = server.list_actions()
        return self._listed

    def random_action(self, random: Random) -> str:
        """Return any action of the simulator's list."""
        return random.choice(self._list())

    def expert_action(self) -> str | None:
        """Return the first action of the simulator's own solution that was not taken yet; None if all were. The
        solution does not know of other actions in between."""
        gold = self._servers.find_gold(self._scene)
        taken = 0
        for action in self._taken:
            taken += taken < len(gold) and gold[taken] == action
        return gold[taken] if taken < len(gold) else None

    def report(self) -> Mapping[str, float]:
        """Return the parts `score`, ScienceWorld's, and `failed`, whether it is below 0."""
        return {"score": float(self._score), "failed": float(self._score < 0)}

    def close(self) -> None:
        """Give the process back."""
        self._servers.release(self)


def draw_task(tasks: Mapping[str, float], random: Random) -> str:
    """Return a task drawn by weight."""
    return random.choices(list(tasks), list(tasks.values()))[0]
