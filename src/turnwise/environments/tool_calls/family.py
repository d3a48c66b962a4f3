"""API requests as an environment family: where its tasks, environments and policies come from."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import get_args

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Task
from turnwise.environments.arguments import check_choices, check_number, check_weights
from turnwise.environments.tool_calls.environment import Prompt, Rules, SchemaSwitch, ToolCallsEnvironment, build_prompt
from turnwise.environments.tool_calls.policies import NaivePolicy, OraclePolicy, RandomPolicy
from turnwise.environments.tool_calls.problems import MAX_PARAMETERS, MAX_TOOLS, NUM_CALLS, build_problem
from turnwise.environments.tool_calls.words import MAX_WORDS, MIN_WORDS
from turnwise.rendering.calls import format_calls
from turnwise.rewards.tool_rl import Granularity


class ToolCalls:
    """Requests that take one to three API calls, or none. Implements `EnvironmentFamily`; tasks are pure functions of
    its arguments."""

    def __init__(
        self,
        *,
        seed: int = 0,
        kinds: Mapping[str, float] | None = None,
        num_tools: int = 4,
        max_parameters: int = 2,
        num_words: int = MAX_WORDS,
        shuffle_slots: bool = True,
        prompt: Prompt = "chat",
        schema: SchemaSwitch = "on",
        granularity: Granularity = "fine",
        scale: float = 3.0,
        naive_skill: float = 0.1,
        naive_tact: float = 0.35,
        tool_timeout_s: float = 10.0,
        max_observation_chars: int = 4000,
    ) -> None:
        """
        Args:
            seed: Of all problems.
            kinds: Kind of problem (`NUM_CALLS`) -> weight; None gives all the same weight.
            num_tools: Tools an API shows, 3 or 4.
            max_parameters: Parameters a tool has at most, 2 or 3.
            num_words: Different numbers in names, and different values, `MIN_WORDS` to `MAX_WORDS`; fewer are easier
            for a small model.
            shuffle_slots: Whether a request gives the values in any order, and leaves out any, instead of in the
            schema's and the last.
            prompt: "short" writes the API out in the first message; "chat" leaves that to the chat template and
            explains the task.
            schema: "on", or a control that must fail: "shuffled" or "blanked" (see `Rules`).
            granularity: How partly right calls are paid: "fine" (ToolRL), "refined", "intermediate" or "coarse".
            scale: Correctness lies in [-scale, scale]; ToolRL's is 3.
            naive_skill: Probability that the naive policy makes all calls of a request that takes several.
            naive_tact: Probability that it says the right thing where no call is right.
            tool_timeout_s: Seconds a call may take; the calls here take none.
            max_observation_chars: Longest answer of a tool.

        Raises:
            ConfigError: an argument is out of range; the message names it, its value and the remedy.
        """
        check_choices(prompt=(prompt, Prompt), schema=(schema, SchemaSwitch), granularity=(granularity, Granularity))
        if not isinstance(shuffle_slots, bool):
            raise ConfigError(f"shuffle_slots={shuffle_slots!r} is unknown; use true or false")
        check_number("seed", seed, int, 0, 2**62)
        check_number("num_tools", num_tools, int, 3, MAX_TOOLS)
        check_number("max_parameters", max_parameters, int, 2, MAX_PARAMETERS)
        check_number("num_words", num_words, int, MIN_WORDS, MAX_WORDS)
        check_number("scale", scale, float, 1e-6, 1e6)
        for name, share in (("naive_skill", naive_skill), ("naive_tact", naive_tact)):
            check_number(name, share, float, 0.0, 1.0)
        check_number("tool_timeout_s", tool_timeout_s, float, 1e-3, 86_400.0)
        check_number("max_observation_chars", max_observation_chars, int, 1, 2**40)
        self._seed, self._num_tools, self._max_parameters = seed, num_tools, max_parameters
        self._num_words, self._shuffle_slots = num_words, shuffle_slots
        self._kinds = check_weights("kinds", kinds, tuple(NUM_CALLS))
        self._naive_skill, self._naive_tact = naive_skill, naive_tact
        self._rules = Rules(
            prompt=prompt,
            schema=schema,
            granularity=granularity,
            scale=scale,
            tool_timeout_s=tool_timeout_s,
            max_observation_chars=max_observation_chars,
        )

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end and share no tool (name with its parameters' names).

        Raises IndexError for a negative index, ConfigError for another split.
        """
        if split not in get_args(Split):
            raise ConfigError(f"split {split!r} is unknown; use one of {', '.join(map(repr, get_args(Split)))}")
        if index < 0:
            raise IndexError(f"task {index} of split {split!r}: an index starts at 0")
        path = (self._seed, "task", split, index)
        kind = rng(*path, "kind").choices(list(self._kinds), list(self._kinds.values()))[0]
        problem = build_problem(
            kind,
            split,
            rng(*path, "problem"),
            num_tools=self._num_tools,
            max_parameters=self._max_parameters,
            num_words=self._num_words,
            shuffle_slots=self._shuffle_slots,
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

    def build_environment(self) -> Environment:
        """A fresh, single-use `ToolCallsEnvironment`."""
        return ToolCallsEnvironment(self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        policies: dict[str, ScriptedPolicy] = {
            "oracle": OraclePolicy(),
            "random": RandomPolicy(),
            "naive": NaivePolicy(self._naive_skill, self._naive_tact),
        }
        if name not in policies:
            raise ConfigError(f"policy {name!r} is unknown; use one of {', '.join(policies)}")
        return policies[name]

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts and right replies, in the format of
        `rendering.calls`."""
        found: list[str] = []
        oracle = self.policy("oracle")
        index = 0
        while len(found) < count:
            task = self.task("train", index)
            reply = oracle.reply(task, task.prompt, Random(0))
            found += [task.prompt[0].text, f" {format_calls(reply.tool_calls)}" if reply.tool_calls else reply.text]
            index += 1
        return found[:count]
