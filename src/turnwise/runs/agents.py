"""Rollouts in which somebody's own agent plays the tasks of a family."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnwise.core.errors import ConfigError
from turnwise.core.types import Task
from turnwise.environments.agents.environment import Agent, AgentEnvironment
from turnwise.environments.agents.family import find_function
from turnwise.rollout.workers import RolloutWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAgent:
    """An agent and how it was named."""

    name: str
    agent: Agent | Sequence[str]


def find_agent(function: str | None, command: str | None) -> NamedAgent | None:
    """Return the agent of an import path or of a command line; None if neither is given. Raises ConfigError if both
    are, or if it is no function."""
    if function is not None and command is not None:
        raise ConfigError("--agent and --command each name an agent; give one of them")
    if function is not None:
        return NamedAgent(name=function, agent=find_function("--agent", function))
    if command is not None:
        words = shlex.split(command)
        if not words:
            raise ConfigError("--command is empty; name a program")
        return NamedAgent(name=command, agent=words)
    return None


def play_by(worker: RolloutWorker, agent: Agent | Sequence[str]) -> RolloutWorker:
    """Return a worker whose episodes are played by an agent: its outcome counts if it is a number or was posted, else
    the environment judges its replies."""

    def build(task: Task) -> AgentEnvironment:
        environment = worker.build_environment(task)
        if not isinstance(environment, AgentEnvironment):
            return AgentEnvironment(environment, agent, train_roots="all")
        return AgentEnvironment(environment.base, agent, train_roots="all", requests=environment.spec.requests)

    return replace(worker, build_environment=build)
