"""The family "agent": tasks of another family, played by an agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turnwise.core.episodes import RequestRule
from turnwise.core.errors import ConfigError
from turnwise.core.offers import import_object
from turnwise.core.protocols import EnvironmentFamily, ScriptedPolicy, Split
from turnwise.core.types import Task
from turnwise.environments.agents.arguments import SANDBOX, AgentArguments
from turnwise.environments.agents.environment import ROOT_RULES, Agent, AgentEnvironment, ChooseRoots, Score
from turnwise.environments.agents.sandboxed import REQUIRED, SandboxedCommand
from turnwise.environments.arguments import FamilyArguments, read_arguments
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise_sandbox.types import Limits


class AgentTasks:
    """Implements `EnvironmentFamily`: tasks, policies and texts of another family."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `AgentArguments`. Raises ConfigError naming the argument and the remedy."""
        from turnwise.environments.registry import load_family

        self._chosen = chosen = read_arguments(AgentArguments, arguments)
        if bool(chosen.agent) == bool(chosen.command):
            raise ConfigError("environment.args needs either agent or command")
        self._agent = build_agent(chosen)
        self._train_roots = find_roots(chosen.train_roots)
        self._score: Score | None = find_function("environment.args.score", chosen.score) if chosen.score else None
        shared = {key: arguments[key] for key in FamilyArguments.model_fields if key in arguments}
        self._family: EnvironmentFamily = load_family(
            chosen.family, {**shared, **chosen.args}, key="environment.args.family"
        )

    def task(self, split: Split, index: int) -> Task:
        """Return the index-th task of the other family."""
        return self._family.task(split, index)

    def build_environment(self, task: Task) -> AgentEnvironment:
        """Build a fresh, single-use environment."""
        chosen = self._chosen
        return AgentEnvironment(
            self._family.build_environment(task),
            self._agent,
            score=self._score,
            on_error=chosen.on_error,
            train_roots=self._train_roots,
            requests=RequestRule(reasoning=chosen.reasoning, on_rewrite=chosen.on_rewrite, model=chosen.model),
            roles=chosen.roles,
        )

    def policy(self, name: str) -> ScriptedPolicy:
        """Return a policy of the other family."""
        return self._family.policy(name)

    def texts(self, count: int) -> Sequence[str]:
        """Return texts of the other family."""
        return self._family.texts(count)


def build_agent(chosen: AgentArguments) -> Agent | Sequence[str] | SandboxedCommand:
    """Build what plays the tasks. Raises ConfigError for a function that is to run in the sandbox, or arguments of the
    sandbox without it."""
    if chosen.sandbox:
        if not chosen.command:
            raise ConfigError("environment.args.sandbox=true needs command: a function runs in this process")
        limits = Limits(
            wall_s=chosen.wall_s,
            memory_bytes=chosen.memory_mib << 20,
            output_bytes=chosen.output_bytes,
            num_pids=chosen.max_processes,
            disk_bytes=chosen.disk_mib << 20,
        )
        options = {"num_slots": chosen.max_programs, "require": REQUIRED}
        return SandboxedCommand(SharedSandbox(load_sandbox("local", options)), chosen.command, limits)
    unread = sorted({*SANDBOX} & chosen.model_fields_set)
    if unread:
        raise ConfigError(
            f"environment.args.{unread[0]} limits programs in the sandbox; set sandbox=true, or leave it out"
        )
    return chosen.command or find_function("environment.args.agent", chosen.agent)


def find_roots(named: str) -> str | ChooseRoots:
    """Return the rule that chooses the conversations that train. Raises ConfigError if there is none of that name."""
    if named in ROOT_RULES:
        return named
    if ":" not in named:
        raise ConfigError(
            f"environment.args.train_roots={named!r}: use {', '.join(ROOT_RULES)}, or 'package.module:function'"
        )
    return find_function("environment.args.train_roots", named)


def find_function(option: str, path: str) -> Callable[..., Any]:
    """Return what an import path names. Raises ConfigError if it is no function."""
    found = import_object(option, path)
    if not callable(found):
        raise ConfigError(f"{option}={path!r} is no function; name an async function")
    function: Callable[..., Any] = found
    return function
