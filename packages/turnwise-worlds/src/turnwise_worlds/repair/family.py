"""Repairs as an environment family: where its tasks, environments and policies come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.core.faults import Fault
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Task, Trajectory, text_message
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.repeated_runs import RepeatedRuns
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise.environments.texts import mix_texts
from turnwise_worlds.repair.arguments import Prompt, RepairArguments
from turnwise_worlds.repair.environment import NO_TESTS, OK, PASS, RepairEnvironment, read_modules
from turnwise_worlds.repair.faults import NAMES, find_repair_fault
from turnwise_worlds.repair.policies import CheatPolicy, NaivePolicy, OraclePolicy, RandomPolicy
from turnwise_worlds.repair.problems import build_problem
from turnwise_worlds.repair.programs import LABELS, show_line

PROMPTS: dict[Prompt, str] = {
    "short": "repair\n",
    "shell": (
        "A small program has {bugs}: one of its tests fails. Find {them}, repair {each}, and submit. Give one "
        "command a turn, between <command> and </command>; what it prints comes back between <output> and </output>. "
        "The commands:\nls: list the modules and their functions\ntest: run the tests; names the first function that "
        "fails\nview bal C: open the third line of a function and show what it is meant to do, and its code\n"
        "next: open the line below it\n"
        "set c = a + b: write the code of the open line, without its indentation; {kept}\n"
        "submit: end. The tests must not be changed.\n"
    ),
}
"""The first message; "shell" explains the commands, "short" is for models that learn them from demonstrations."""
BUGS_WORDS = {
    1: {"bugs": "a bug", "them": "the bug", "each": "it", "kept": "this takes back the last set"},
    2: {"bugs": "two bugs", "them": "both", "each": "them", "kept": "it stays until the line is set again"},
}
"""Texts that fill the gaps of a prompt, by the number of bugs."""


class Repair(GeneratedFamily[RepairArguments]):
    """Miniature programs with bugs, and tests that help to locate them."""

    name = "repair"
    section = RepairArguments
    fault_names = NAMES

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        chosen = self._chosen
        self._weights = chosen.weights
        self._prompt = PROMPTS[chosen.prompt].format(**BUGS_WORDS[chosen.bugs])
        self._runs = RepeatedRuns(SharedSandbox(load_sandbox(chosen.sandbox, chosen.sandbox_args)))

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no names of functions with a bug. A payload contains the first
        bug of the program as `bug`, and any others as `other_bugs`."""
        path = (self._chosen.seed, "task", split, index)
        weights = self._weights[split]
        kind = rng(*path, "kind").choices(list(weights), list(weights.values()))[0]
        problem = build_problem(
            kind,
            split,
            rng(*path, "problem"),
            num_functions=(self._chosen.min_functions, self._chosen.max_functions),
            decoys=self._chosen.decoys,
            num_bugs=self._chosen.bugs,
            calls=self._chosen.calls,
        )
        bug, *others = (
            {"function": each.function, "line": each.line, "code": " ".join(each.code), "raises": each.raises}
            for each in problem.bugs
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
            "bug": bug,
            **({"other_bugs": others} if others else {}),
            "split": split,
        }
        return (text_message("user", self._prompt),), payload

    def build_environment(self, task: Task) -> Environment:
        """Build a fresh, single-use `RepairEnvironment`; all environments of a family share one sandbox, opened for the
        first test."""
        return RepairEnvironment(runner=self._runs, chosen=self._chosen)

    def find_fault(self, task: Task, trajectory: Trajectory) -> Fault | None:
        """See `FaultFinder`."""
        return find_repair_fault(task, trajectory)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random", "naive" and "cheat"."""
        oracle = OraclePolicy(num_bugs=self._chosen.bugs)
        return {"oracle": oracle, "random": RandomPolicy(), "naive": NaivePolicy(self._chosen), "cheat": CheatPolicy()}

    def texts(self, count: int) -> list[str]:
        """Return `count` of the training tasks' `sample_texts`, mixed. Runs nothing."""
        return mix_texts(self.sample_texts, count, self._chosen.seed)

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the prompt once, then listings, commands and outputs."""
        if not index:
            yield self._prompt
        task = self.task("train", index)
        bug = task.payload["bug"]
        (_, want), *_ = task.payload["examples"][bug["function"]]
        called = f" fail {bug['function']}"
        test = f"in t{list(task.payload['examples']).index(bug['function']) + 1}"
        functions = [function for each in read_modules(task).values() for function in each]
        yield from (f" {show_line(line)}" for function in functions for line in function.lines)
        yield f"{called} gave {want} want {-want} {test}"
        yield f"{called} raised ZeroDivisionError at {LABELS[bug['line']]} {test}"
        yield from (f" {command}" for command in ("ls", "test", "submit", OK, PASS, NO_TESTS))
        yield f" view {bug['function']} {LABELS[bug['line']]}"
        yield f" set {bug['code']}"
        yield "\n".join(
            f" {module} {' '.join(each['name'] for each in functions)}"
            for module, functions in task.payload["modules"].items()
        )
