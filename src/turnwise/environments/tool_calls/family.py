"""API requests as an environment family: where its tasks, environments and policies come from."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.file_splits import DataFile, FromFiles, load_splits
from turnwise.environments.tool_calls.arguments import ToolCallsArguments
from turnwise.environments.tool_calls.environment import Rules, ToolCallsEnvironment, build_prompt
from turnwise.environments.tool_calls.policies import NaivePolicy, OraclePolicy, RandomPolicy
from turnwise.environments.tool_calls.problems import build_problem
from turnwise.environments.tool_calls.row_environment import RowCallsEnvironment
from turnwise.environments.tool_calls.row_policies import RowNaive, RowOracle, RowRandom
from turnwise.environments.tool_calls.rows import CallRow, find_answers, to_call_row
from turnwise.rendering.calls import format_calls


class ToolCalls(FromFiles):
    """Requests that take API calls, or none.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `ToolCallsArguments`.

        Raises ConfigError naming the argument and the remedy, DataError for a file of mode "files".
        """
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
        """The files that tasks depend on, those of the allowed calls among them."""
        return (*super().data_files, *self._answer_files)

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split.

        Generated splits have no end and share no tool (name with its parameters' names). Of files, "train" starts over
        in a new order after each pass and "heldout" ends. Raises IndexError for a negative index or one past the end,
        ConfigError for another split.
        """
        check_index(split, index)
        if self._files is not None:
            row: CallRow = self._files.row(split, index)
            calls = [[name, dict(allowed)] for name, allowed in row.calls]
            given = {"kind": row.kind, "functions": list(map(dict, row.functions)), "calls": calls, "split": split}
            return Task(environment="tool_calls", prompt=row.messages, payload=given)
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
        """A fresh, single-use environment: `RowCallsEnvironment` over files, else `ToolCallsEnvironment`."""
        if self._files is not None:
            rules = self._rules
            return RowCallsEnvironment(
                tool_timeout_s=rules.tool_timeout_s, max_observation_chars=rules.max_observation_chars
            )
        return ToolCallsEnvironment(self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        skill, tact = self._chosen.naive_skill, self._chosen.naive_tact
        policies: dict[str, ScriptedPolicy] = {
            "oracle": OraclePolicy(),
            "random": RandomPolicy(),
            "naive": NaivePolicy(skill, tact),
        }
        if self._files is not None:
            policies = {"oracle": RowOracle(), "random": RowRandom(), "naive": RowNaive(skill, tact)}
        return choose_policy(name, policies)

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts and right replies (`rendering.calls`)."""
        texts: list[str] = []
        oracle = self.policy("oracle")
        index = 0
        while len(texts) < count:
            task = self.task("train", index)
            reply = oracle.reply(task, task.prompt, Random(0))
            written = f" {format_calls(reply.tool_calls)}" if reply.tool_calls else reply.text
            texts += [*(message.text for message in task.prompt), written]
            index += 1
        return texts[:count]
