"""ScienceWorld (2203.07540): thirty kinds of experiments of an elementary school, in a text world that a Java program
simulates."""

from __future__ import annotations

from random import Random
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.packages import require_package
from turnwise.environments.arguments import read_arguments
from turnwise_adapters.game_family import GameFamily
from turnwise_adapters.programs import JAVA
from turnwise_adapters.scienceworld.arguments import SIMPLIFICATIONS, ScienceWorldArguments
from turnwise_adapters.scienceworld.game import ScienceWorldGame, draw_task
from turnwise_adapters.scienceworld.servers import Servers


class ScienceWorld(GameFamily):
    """Implements `EnvironmentFamily`. The kinds of its tasks are ScienceWorld's."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `ScienceWorldArguments`. Raises ConfigError, also where Java is missing."""
        chosen = read_arguments(ScienceWorldArguments, arguments)
        require_package("scienceworld", "1.2", "scienceworld")
        JAVA.find()
        known = _list_tasks()
        for field, names, allowed in (
            ("tasks", chosen.tasks, known),
            ("simplifications", chosen.simplifications, SIMPLIFICATIONS),
        ):
            unknown = [name for name in names if name not in allowed]
            if unknown:
                raise ConfigError(f"{field} has {unknown[0]!r}; use some of {', '.join(allowed)}")
        if any(weight <= 0 for weight in chosen.tasks.values()):
            raise ConfigError(f"tasks={chosen.tasks} has a weight that is not above 0; leave the task out")
        if "easy" in chosen.simplifications and len(set(chosen.simplifications)) > 1:
            # The simulator would silently use none.
            raise ConfigError(
                f"simplifications={chosen.simplifications}: ScienceWorld takes 'easy' alone; name the others one by one"
            )
        electric = [name for name in chosen.tasks if "power-component" in name or "conductivity" in name]
        if electric and "noElectricalAction" in chosen.simplifications:
            raise ConfigError(f"task {electric[0]!r} needs electrical actions; leave 'noElectricalAction' out")
        self._tasks = chosen.tasks
        self.servers = Servers(chosen.num_servers, chosen.tool_timeout_s)
        """The Java processes; their `close` ends them before Python does."""
        servers = self.servers
        super().__init__("scienceworld", "science", chosen, lambda: ScienceWorldGame(chosen, servers))

    def kind_of(self, seed: int) -> str:
        """Return ScienceWorld's name of the task with this seed."""
        return draw_task(self._tasks, Random(seed))


def _list_tasks() -> tuple[str, ...]:
    """Return the names by which the simulator knows its tasks."""
    from scienceworld.constants import ID2TASK
    from scienceworld.utils import infer_task

    return tuple(sorted({infer_task(name) for name in ID2TASK.values()}))
