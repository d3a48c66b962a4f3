"""API requests as an environment family: where its tasks, environments and policies come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Task
from turnwise.environments.file_splits import DataFile, FromFiles, load_splits
from turnwise.environments.generated import GeneratedFamily
from turnwise.rendering.calls import format_calls
from turnwise_worlds.tool_calls.arguments import ToolCallsArguments
from turnwise_worlds.tool_calls.environment import ToolCallsEnvironment, build_prompt
from turnwise_worlds.tool_calls.policies import NaivePolicy, OraclePolicy, RandomPolicy
from turnwise_worlds.tool_calls.problems import build_problem
from turnwise_worlds.tool_calls.row_environment import RowCallsEnvironment
from turnwise_worlds.tool_calls.row_policies import RowNaive, RowOracle, RowRandom
from turnwise_worlds.tool_calls.rows import CallRow, find_answers, to_call_row


class ToolCalls(FromFiles, GeneratedFamily[ToolCallsArguments]):
    """Requests that require API calls, or none."""

    name = "tool_calls"
    section = ToolCallsArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`. Raises DataError for a file of mode "files"."""
        super().__init__(**arguments)
        chosen = self._chosen
        self._kinds = chosen.weights
        self._answer_files: tuple[DataFile, ...] = ()
        if chosen.mode == "files":
            paths: dict[Split, str] = {"train": chosen.train_path, "heldout": chosen.heldout_path}
            answers, self._answer_files = find_answers(path for path in paths.values() if path)
            self._files = load_splits(
                paths,
                partial(to_call_row, answers=answers),
                chosen.seed,
                max_bad_rows=chosen.max_bad_rows,
                asks=lambda row: row.asks,
            )

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """The files on which tasks depend, including those of the allowed calls."""
        return (*super().data_files, *self._answer_files)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no tool (name with its parameters' names). From files, "train"
        starts over in a new order after each pass and "heldout" ends. Raises IndexError past the end."""
        if self._files is not None:
            row: CallRow = self._files.row(split, index)
            calls = [[name, dict(allowed)] for name, allowed in row.calls]
            given = {"kind": row.kind, "functions": list(map(dict, row.functions)), "calls": calls, "split": split}
            return row.messages, given
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
        return build_prompt(self._chosen.prompt, problem.apis, request), payload

    def build_environment(self, task: Task) -> Environment:
        """Build a fresh, single-use environment: `RowCallsEnvironment` for files, else `ToolCallsEnvironment`."""
        return ToolCallsEnvironment(self._chosen) if self._files is None else RowCallsEnvironment(self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        skill, tact = self._chosen.naive_skill, self._chosen.naive_tact
        if self._files is not None:
            return {"oracle": RowOracle(), "random": RowRandom(), "naive": RowNaive(skill, tact)}
        return {"oracle": OraclePolicy(), "random": RandomPolicy(), "naive": NaivePolicy(skill, tact)}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield prompts and right replies (`rendering.calls`)."""
        task = self.task("train", index)
        reply = self.policy("oracle").reply(task, task.prompt, Random(0))
        yield from (message.text for message in task.prompt)
        yield f" {format_calls(reply.tool_calls)}" if reply.tool_calls else reply.text
