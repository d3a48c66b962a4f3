"""The family `swe`: bugs in real repositories, an agent's tools, grading in fresh trees."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.types import Message, Task
from turnwise.environments.file_splits import DataFile, FileSplits
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise_swe.environment.arguments import SweArguments
from turnwise_swe.environment.cases import Case, load_cases, split_cases
from turnwise_swe.environment.environment import SweEnvironment
from turnwise_swe.environment.mini import MiniEnvironment
from turnwise_swe.environment.policies import NaivePolicy, OraclePolicy, RandomPolicy, RetryingPolicy, Speaker
from turnwise_swe.environment.prompts import write_prompt
from turnwise_swe.repositories.library import default_library


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The content of the file of instances."""

    cases: dict[str, Case]
    splits: FileSplits[Case]


class Swe(GeneratedFamily[SweArguments]):
    """Bugs in real repositories, from a file of instances that is read for the first task."""

    name = "swe"
    section = SweArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        self._sandbox = SharedSandbox(load_sandbox(self._chosen.sandbox, self._chosen.sandbox_args))
        self._lock = threading.Lock()
        self._loaded: Loaded | None = None

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """The file of instances."""
        return (DataFile(path=Path(self._chosen.instances), num_rows=len(self._load().cases)),)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; "train" starts over in a new order after each pass, "heldout" ends.

        Raises IndexError past the end, ConfigError as `load_cases` does.
        """
        case = self._load().splits.row(split, index)
        prompt = write_prompt(case, self._chosen.prompt, self._chosen.protocol)
        return prompt, {"instance": case.instance.to_row(), "split": split}

    def build_environment(self, task: Task) -> Environment:
        """Build a fresh, single-use environment; all environments of a family share one sandbox, opened for the first
        call.

        Raises ConfigError for a task of another file of instances.
        """
        case = self._load().cases.get(task.payload["instance"]["instance_id"])
        if case is None:
            raise ConfigError(
                f"task {task.id} belongs to instance {task.payload['instance']['instance_id']!r}, which "
                f"{self._chosen.instances} does not contain"
            )
        build = MiniEnvironment if self._chosen.protocol == "mini" else SweEnvironment
        return build(sandbox=self._sandbox, case=case, chosen=self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        chosen = self._chosen
        speaker = Speaker(protocol=chosen.protocol, tools=tuple(chosen.tools), view_lines=chosen.view_lines)
        demonstrator = RetryingPolicy if chosen.prompt == "oracle" else NaivePolicy
        naive = demonstrator(speaker, right=chosen.naive_right, test=chosen.naive_test)
        return {"oracle": OraclePolicy(speaker), "random": RandomPolicy(speaker), "naive": naive}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield reports and sources. Runs nothing."""
        rows = self._load().splits
        case = rows.row("train", index % rows.count("train"))
        yield from (message.text for message in write_prompt(case, self._chosen.prompt, self._chosen.protocol))
        yield from (text.decode("utf-8", "replace") for text in case.bug.values() if text)

    def _load(self) -> Loaded:
        chosen = self._chosen
        with self._lock:
            if self._loaded is None:
                if not chosen.instances:
                    raise ConfigError("instances='' names no file; set it to one written by `turnwise bugs make`")
                library = Path(chosen.library) if chosen.library else default_library()
                cases = load_cases(
                    Path(chosen.instances), library, allow_installed=chosen.allow_installed, max_lines=chosen.max_lines
                )
                splits = FileSplits(split_cases(cases, chosen.heldout), chosen.seed)
                self._loaded = Loaded(cases=cases, splits=splits)
            return self._loaded
