"""The family `swe`: bugs in real repositories, an agent's tools, grading in fresh trees."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.types import Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.file_splits import DataFile, FileSplits
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise.environments.swe.arguments import SweArguments
from turnwise.environments.swe.cases import Case, load_cases, split_cases
from turnwise.environments.swe.environment import Rules, SweEnvironment
from turnwise.environments.swe.mini import MiniEnvironment
from turnwise.environments.swe.policies import NaivePolicy, OraclePolicy, RandomPolicy, RetryingPolicy, Speaker
from turnwise.environments.swe.prompts import write_prompt
from turnwise.repositories.library import default_library
from turnwise_sandbox.types import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the file of instances holds."""

    cases: dict[str, Case]
    splits: FileSplits[Case]


class Swe:
    """Bugs in real repositories.

    Implements `EnvironmentFamily`. Tasks are pure functions of its arguments and the file of instances, which is read
    when the first task is asked for.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `SweArguments`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = chosen = read_arguments(SweArguments, arguments)
        limits = Limits(wall_s=chosen.command_s, disk_bytes=chosen.disk_mib << 20, num_files=65_536)
        self._rules = Rules(
            tools=tuple(chosen.tools),
            limits=limits,
            test_s=chosen.test_s,
            view_lines=chosen.view_lines,
            hide_tests=chosen.hide_tests,
            tool_timeout_s=chosen.tool_timeout_s,
            max_observation_chars=chosen.max_observation_chars,
        )
        self._sandbox = SharedSandbox(load_sandbox(chosen.sandbox, chosen.sandbox_args))
        self._lock = threading.Lock()
        self._loaded: Loaded | None = None

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """The file of instances."""
        return (DataFile(path=Path(self._chosen.instances), num_rows=len(self._load().cases)),)

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split: "train" starts over in a new order after each pass, "heldout" ends.

        Raises IndexError past the end and for a negative index, ConfigError for another split and as `load_cases` does.
        """
        check_index(split, index)
        case = self._load().splits.row(split, index)
        return Task(
            environment="swe",
            prompt=write_prompt(case, self._chosen.prompt, self._chosen.protocol),
            payload={"instance": case.instance.to_row(), "split": split},
        )

    def build_environment(self, task: Task) -> Environment:
        """A fresh, single-use environment; all of a family share one sandbox, opened for the first call.

        Raises ConfigError for a task of another file of instances.
        """
        case = self._load().cases.get(task.payload["instance"]["instance_id"])
        if case is None:
            raise ConfigError(
                f"task {task.id} is of instance {task.payload['instance']['instance_id']!r}, which "
                f"{self._chosen.instances} does not have"
            )
        build = MiniEnvironment if self._chosen.protocol == "mini" else SweEnvironment
        return build(sandbox=self._sandbox, case=case, rules=self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        chosen = self._chosen
        speaker = Speaker(protocol=chosen.protocol, tools=tuple(chosen.tools), view_lines=chosen.view_lines)
        demonstrator = RetryingPolicy if chosen.prompt == "oracle" else NaivePolicy
        naive = demonstrator(speaker, right=chosen.naive_right, test=chosen.naive_test)
        return choose_policy(name, {"oracle": OraclePolicy(speaker), "random": RandomPolicy(speaker), "naive": naive})

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: reports and sources. Nothing is run."""
        texts: list[str] = []
        rows = self._load().splits
        for index in range(count):
            case = rows.row("train", index % rows.count("train"))
            prompt = write_prompt(case, self._chosen.prompt, self._chosen.protocol)
            sources = [text.decode("utf-8", "replace") for text in case.bug.values() if text]
            texts += [message.text for message in prompt] + sources
            if len(texts) >= count:
                break
        return texts[:count]

    def _load(self) -> Loaded:
        chosen = self._chosen
        with self._lock:
            if self._loaded is None:
                if not chosen.instances:
                    raise ConfigError("instances='' names no file; give one that `turnwise bugs make` wrote")
                library = Path(chosen.library) if chosen.library else default_library()
                cases = load_cases(
                    Path(chosen.instances), library, allow_installed=chosen.allow_installed, max_lines=chosen.max_lines
                )
                splits = FileSplits(split_cases(cases, chosen.heldout), chosen.seed)
                self._loaded = Loaded(cases=cases, splits=splits)
            return self._loaded
