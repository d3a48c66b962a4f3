"""The tasks of a file of failures as an environment family: a source for the next phase of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import Environment, EnvironmentFamily, ScriptedPolicy, Split
from turnwise.core.types import Task
from turnwise.environments.file_splits import DataFile
from turnwise.environments.registry import load_family
from turnwise_synthesis.failures.task_file import read_tasks


class NearFailures:
    """Implements `EnvironmentFamily`: the file's tasks to train on, held-out ones as they were.

    Everything else is the family's from which the tasks were taken.
    """

    def __init__(self, *, path: str = "", **arguments: Any) -> None:
        """`path` is what `turnwise failures` wrote; `arguments` replace those of the family. Raises ConfigError for a
        path that is missing, DataError for a file that cannot be read."""
        if not path:
            raise ConfigError("environment.args.path is missing; name a file that `turnwise failures` wrote")
        self._path = Path(path)
        self._file = read_tasks(self._path)
        plan = self._file.plan
        self._base: EnvironmentFamily = load_family(plan["environment"], {**plan["args"], **arguments})

    def __getattr__(self, name: str) -> Any:
        """What only some families have is the other family's."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._base, name)

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """The file of tasks, and those of the family."""
        own = DataFile(path=self._path, num_rows=len(self._file.made.tasks))
        return own, *getattr(self._base, "data_files", ())

    def place(self, split: Split, index: int) -> str | None:
        """Return file and line of a training task."""
        if split == "train":
            return f"{self._path}, line {index + 2}"
        find = getattr(self._base, "place", None)
        place: str | None = None if find is None else find(split, index)
        return place

    def task(self, split: Split, index: int) -> Task:
        """Return a task. Raises IndexError past the end, DataError if the family makes another one than it made when
        the file was written."""
        if split != "train":
            return self._base.task(split, index)
        made = self._file.made.tasks[index]
        task = self._base.task(split, made.index)
        if task.id != made.id:
            raise DataError(
                f"{self._path}, line {index + 2}: task {made.index} is {task.id}, and was {made.id} when the file was "
                "written; use the same arguments and version, or write the file again"
            )
        return task

    def build_environment(self, task: Task) -> Environment | AskingEnvironment:
        """Build the family's environment."""
        return self._base.build_environment(task)

    def policy(self, name: str) -> ScriptedPolicy:
        """Return the family's policy."""
        return self._base.policy(name)

    def texts(self, count: int) -> list[str]:
        """Return the family's texts: a tokenizer is trained on the same ones as before."""
        return [*self._base.texts(count)]
