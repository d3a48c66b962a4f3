"""Programs from examples as an environment family: where its tasks, environments and policies come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.file_splits import FileSplits, FromFiles, load_splits
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.repeated_runs import RepeatedRuns
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise.environments.texts import mix_texts
from turnwise_worlds.coding.arguments import CodingArguments, Prompt
from turnwise_worlds.coding.datasets import CodingRow, choose_hidden, to_coding_row, trim_tests
from turnwise_worlds.coding.environment import (
    NO_TESTS,
    PASS,
    CodingEnvironment,
    Style,
    describe,
    read_tests,
    show_input,
    show_value,
)
from turnwise_worlds.coding.functions import Example, Kind, readings
from turnwise_worlds.coding.judge import Form, Outcome, Test
from turnwise_worlds.coding.policies import NaivePolicy, OraclePolicy, RandomPolicy, numbers_of, write_program
from turnwise_worlds.coding.problems import build_problem

ENTRY = "solve"
"""Name of the function in generated problems."""
CHAT = (
    "Write a Python program for the task below. You may run a program with the tool `python` first: it is tried on the "
    "visible examples, and the first that fails comes back. Then submit: end with the whole program in one ```python "
    "fence. It counts if it passes the hidden tests, too.\n\n{task}\n"
)
ASKS: dict[Form, str] = {
    "functional": "The program must define the function `{entry}`.",
    "stdin": "The program must read standard input and print the result.",
}
STARTER = "Start from this code:"


class Coding(FromFiles, GeneratedFamily[CodingArguments]):
    """Programs judged by hidden tests."""

    name = "coding"
    section = CodingArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`. Also raises ConfigError if a package is missing, DataError if a file of mode "files"
        is missing or malformed."""
        super().__init__(**arguments)
        chosen = self._chosen
        self._kinds = chosen.weights
        self._style: Style = "words" if chosen.prompt == "short" else "code"
        self._runs = RepeatedRuns(SharedSandbox(load_sandbox(chosen.sandbox, chosen.sandbox_args)))
        if chosen.mode == "files":
            paths: dict[Split, str] = {"train": chosen.train_path, "heldout": chosen.heldout_path}
            self._files = load_splits(
                paths,
                lambda row: trim_tests(to_coding_row(row), chosen.visible_tests, chosen.hidden_tests),
                chosen.seed,
                max_bad_rows=chosen.max_bad_rows,
                asks=lambda row: (row.problem, row.form, row.entry),
            )

    # ------------------------------------------------------------------------------------------- tasks

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no function. From files, "train" starts over in a new order
        after each pass and "heldout" ends. Raises IndexError past the end."""
        payload = self._generated(split, index) if self._files is None else self._row(self._files, split, index)
        prompt = text_message("user", payload.pop("statement"))
        return (prompt,), {**payload, "split": split}

    def _generated(self, split: Split, index: int) -> dict[str, Any]:
        chosen = self._chosen
        path = (chosen.seed, "task", split, index)
        kind: Kind = rng(*path, "kind").choices(list(self._kinds), list(self._kinds.values()))[0]
        form: Form = "stdin" if rng(*path, "form").random() < chosen.stdin else "functional"
        problem, other = (
            build_problem(kind, split, rng(*path, what), num_hidden=chosen.hidden_tests)
            for what in ("problem", "other")
        )
        visible = [_to_test(example, kind, form) for example in problem.visible]
        num_shown = min(chosen.shown, len(visible))
        return {
            "statement": self._state("", form, ENTRY, visible[:num_shown]),
            "kind": kind,
            "form": form,
            "entry": ENTRY,
            "num_shown": num_shown,
            "examples": [[list(x), value] for x, value in problem.visible],
            "parts": list(problem.function.parts),
            "visible": _to_rows(visible),
            "hidden": _to_rows([_to_test(example, kind, form) for example in problem.hidden]),
            "other": _to_rows([_to_test(example, kind, form) for example in other.visible]),
        }

    def _row(self, files: FileSplits[CodingRow], split: Split, index: int) -> dict[str, Any]:
        chosen, row = self._chosen, files.row(split, index)
        visible, hidden = choose_hidden(row.tests, chosen.visible_tests, chosen.hidden_tests)
        other = files.row(split, (index + 1) % files.count(split))
        return {
            "statement": self._state(row.problem, row.form, row.entry, visible[: chosen.shown], row.starter),
            "form": row.form,
            "entry": row.entry,
            "call_rules": list(row.rules),
            "solution": row.solution,
            "visible": _to_rows(visible),
            "hidden": _to_rows(hidden),
            "other": _to_rows(choose_hidden(other.tests, chosen.visible_tests, 1)[0]) if other.form == row.form else [],
        }

    def _state(self, problem: str, form: Form, entry: str, shown: list[Test], starter: str = "") -> str:
        """Write the first message; the starter code is shown unless the problem contains it."""
        prompt: Prompt = self._chosen.prompt
        if prompt == "short":
            head = entry if form == "functional" else "stdin"
            return "".join(f"{head} {_show_test(test, form, self._style)}\n" for test in shown)
        examples = [f"Example: {_show_test(test, form, self._style)}" for test in shown]
        code = f"{STARTER}\n```python\n{starter}\n```" if starter and starter not in problem else ""
        return CHAT.format(task="\n".join(filter(None, (problem, *examples, ASKS[form].format(entry=entry), code))))

    # ------------------------------------------------------------------------------------------- episodes

    def build_environment(self, task: Task) -> CodingEnvironment:
        """Build a fresh, single-use `CodingEnvironment`; all environments of a family share one sandbox, opened for the
        first program."""
        return CodingEnvironment(runner=self._runs, chosen=self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        naive = NaivePolicy(self._chosen.naive_test, self._chosen.naive_fix)
        return {"oracle": OraclePolicy(), "random": RandomPolicy(), "naive": naive}

    def texts(self, count: int) -> list[str]:
        """Return `count` of the training tasks' `sample_texts`, mixed. Runs nothing."""
        return mix_texts(self.sample_texts, count, self._chosen.seed)

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield statements, programs and outputs."""
        task = self.task("train", index)
        yield from (task.prompt[0].text, f" {PASS}", f" {NO_TESTS}")
        if "kind" in task.payload:
            yield from self._programs(task)

    def _programs(self, task: Task) -> list[str]:
        """Return the programs that fit a statement, and the tool's answers to the wrong ones."""
        payload, texts = task.payload, []
        kind: Kind = payload["kind"]
        form: Form = payload["form"]
        examples = [(tuple(x), value) for x, value in payload["examples"]]
        for function in readings(kind, examples[: payload["num_shown"]]):
            texts.append(f" {write_program(function, form, payload['entry'])}")
            gave = _to_test((examples[1][0], function.compute(examples[1][0])), kind, form).output
            test = read_tests(task, "visible")[1]
            texts.append(f" {describe(test, Outcome(how='gave', what=gave), form, self._style)}")
        return texts


def _to_test(example: Example, kind: Kind, form: Form) -> Test:
    x, value = example
    if form == "functional":
        return Test(input=list(x) if kind == "arithmetic" else [list(x)], output=value)
    return Test(input=f"{' '.join(map(str, x))}\n", output=" ".join(map(str, numbers_of(value))))


def _to_rows(tests: list[Test]) -> list[list[Any]]:
    return [[test.input, test.output] for test in tests]


def _show_test(test: Test, form: Form, style: Style) -> str:
    """Show an example in a statement: `3 1 5 gives 5 3`."""
    wanted = test.output if form == "stdin" and style == "words" else show_value(test.output, style)
    return f"{show_input(test.input, form, style)} gives {wanted}"
