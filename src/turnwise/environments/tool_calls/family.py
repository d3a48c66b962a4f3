"""API requests as an environment family: where its tasks, environments and policies come from."""

from __future__ import annotations

from random import Random
from typing import Any

from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.tool_calls.arguments import ToolCallsArguments
from turnwise.environments.tool_calls.environment import Rules, ToolCallsEnvironment, build_prompt
from turnwise.environments.tool_calls.policies import NaivePolicy, OraclePolicy, RandomPolicy
from turnwise.environments.tool_calls.problems import build_problem
from turnwise.rendering.calls import format_calls


class ToolCalls:
    """Requests that take one to three API calls, or none.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `ToolCallsArguments`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = chosen = read_arguments(ToolCallsArguments, arguments)
        self._kinds = chosen.weights
        self._rules = Rules(
            prompt=chosen.prompt,
            schema=chosen.schema_,
            granularity=chosen.granularity,
            scale=chosen.scale,
            tool_timeout_s=chosen.tool_timeout_s,
            max_observation_chars=chosen.max_observation_chars,
        )

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end and share no tool (name with its parameters' names).

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        path = (self._chosen.seed, "task", split, index)
        kind = rng(*path, "kind").choices(list(self._kinds), list(self._kinds.values()))[0]
        problem = build_problem(
            kind,
            split,
            rng(*path, "problem"),
            num_tools=self._chosen.num_tools,
            max_parameters=self._chosen.max_parameters,
            num_words=self._chosen.num_words,
            shuffle_slots=self._chosen.shuffle_slots,
        )
        request = " then ".join(wish.text for wish in problem.wishes)
        payload = {
            "kind": kind,
            "apis": [
                {"name": api.name, "capability": api.capability, "parameters": [list(pair) for pair in api.parameters]}
                for api in problem.apis
            ],
            "request": request,
            "calls": [[name, dict(arguments)] for name, arguments in problem.calls],
            "missing": problem.missing,
            "split": split,
        }
        return Task(
            environment="tool_calls", prompt=build_prompt(self._rules.prompt, problem.apis, request), payload=payload
        )

    def build_environment(self, task: Task) -> Environment:
        """A fresh, single-use `ToolCallsEnvironment`."""
        return ToolCallsEnvironment(self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        return choose_policy(
            name,
            {
                "oracle": OraclePolicy(),
                "random": RandomPolicy(),
                "naive": NaivePolicy(self._chosen.naive_skill, self._chosen.naive_tact),
            },
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts and right replies (`rendering.calls`)."""
        texts: list[str] = []
        oracle = self.policy("oracle")
        index = 0
        while len(texts) < count:
            task = self.task("train", index)
            reply = oracle.reply(task, task.prompt, Random(0))
            texts += [task.prompt[0].text, f" {format_calls(reply.tool_calls)}" if reply.tool_calls else reply.text]
            index += 1
        return texts[:count]
