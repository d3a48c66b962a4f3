"""Repairs as an environment family: where its tasks, environments and policies come from."""

from __future__ import annotations

from random import Random
from typing import Any

from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Task, text_message
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.repair.arguments import Prompt, RepairArguments
from turnwise.environments.repair.environment import NO_TESTS, OK, PASS, RepairEnvironment, Rules, read_modules
from turnwise.environments.repair.policies import Habits, NaivePolicy, OraclePolicy, RandomPolicy
from turnwise.environments.repair.problems import build_problem
from turnwise.environments.repair.programs import LABELS, show_line
from turnwise.environments.repeated_runs import RepeatedRuns
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise_sandbox.types import Limits

PROMPTS: dict[Prompt, str] = {
    "short": "repair\n",
    "shell": (
        "A small program has a bug: one of its tests fails. Find the bug, repair it, and submit. Give one command a "
        "turn, between <command> and </command>; what it prints comes back between <output> and </output>. The "
        "commands:\nls: list the modules and their functions\ntest: run the tests; names the first function that "
        "fails\nview bal C: open the third line of a function and show what it is meant to do, and its code\n"
        "next: open the line below it\n"
        "set c = a + b: write the code of the open line, without its indentation; this takes back the last set\n"
        "submit: end. The tests must not be changed.\n"
    ),
}
"""The first message; "shell" explains the commands, "short" is for models that learn them from demonstrations."""


class Repair:
    """Miniature programs with one bug and tests that tell where.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `RepairArguments`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = chosen = read_arguments(RepairArguments, arguments)
        self._weights = chosen.weights
        self._rules = Rules(
            tests=chosen.tests,
            tests_graded=chosen.tests_graded,
            limits=Limits(wall_s=chosen.wall_s, memory_bytes=256 << 20, output_bytes=16_384),
            tool_timeout_s=chosen.tool_timeout_s,
            max_observation_chars=chosen.max_observation_chars,
        )
        self._runs = RepeatedRuns(SharedSandbox(load_sandbox(chosen.sandbox, chosen.sandbox_args)))

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end and share no name of a function with a bug.

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        path = (self._chosen.seed, "task", split, index)
        weights = self._weights[split]
        kind = rng(*path, "kind").choices(list(weights), list(weights.values()))[0]
        problem = build_problem(
            kind,
            split,
            rng(*path, "problem"),
            num_functions=(self._chosen.min_functions, self._chosen.max_functions),
            decoys=self._chosen.decoys,
        )
        payload = {
            "kind": kind,
            "modules": {
                module: [
                    {
                        "name": function.name,
                        "parameters": list(function.parameters),
                        "lines": [[line.depth, " ".join(line.code), line.intent] for line in function.lines],
                    }
                    for function in functions
                ]
                for module, functions in problem.modules.items()
            },
            "examples": {
                name: [[list(arguments), want] for arguments, want in examples]
                for name, examples in problem.examples.items()
            },
            "bug": {
                "function": problem.function,
                "line": problem.line,
                "code": " ".join(problem.code),
                "raises": problem.raises,
            },
            "split": split,
        }
        prompt = (text_message("user", PROMPTS[self._chosen.prompt]),)
        return Task(environment="repair", prompt=prompt, payload=payload)

    def build_environment(self, task: Task) -> Environment:
        """A fresh, single-use `RepairEnvironment`; all of a family share one sandbox, opened for the first test."""
        return RepairEnvironment(runner=self._runs, rules=self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        chosen = self._chosen
        habits = Habits(
            test=chosen.naive_test,
            retest=chosen.naive_retest,
            again=chosen.naive_again,
            retry=chosen.naive_retry,
            eye=chosen.naive_eye,
            cheat=chosen.naive_cheat,
        )
        return choose_policy(name, {"oracle": OraclePolicy(), "random": RandomPolicy(), "naive": NaivePolicy(habits)})

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: listings, commands and outputs. Nothing is run."""
        texts: list[str] = [PROMPTS[self._chosen.prompt]]
        index = 0
        while len(texts) < count:
            task = self.task("train", index)
            bug = task.payload["bug"]
            (_, want), *_ = task.payload["examples"][bug["function"]]
            called = f" fail {bug['function']}"
            test = f"in t{list(task.payload['examples']).index(bug['function']) + 1}"
            functions = [function for each in read_modules(task).values() for function in each]
            texts += [f" {show_line(line)}" for function in functions for line in function.lines]
            texts += [
                f"{called} gave {want} want {-want} {test}",
                f"{called} raised ZeroDivisionError at {LABELS[bug['line']]} {test}",
                *(f" {command}" for command in ("ls", "test", "submit", OK, PASS, NO_TESTS)),
                f" view {bug['function']} {LABELS[bug['line']]}",
                f" set {bug['code']}",
                "\n".join(
                    f" {module} {' '.join(each['name'] for each in functions)}"
                    for module, functions in task.payload["modules"].items()
                ),
            ]
            index += 1
        return Random(self._chosen.seed).sample(texts, len(texts))[:count]
