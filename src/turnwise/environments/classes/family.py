"""A plain class as an environment family: rows become tasks, methods become tools."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, SkipValidation, model_validator

from turnwise.core.errors import ConfigError, RenderError, TurnwiseError
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Task, ToolCall, text_message
from turnwise.environments.arguments import FamilyArguments, Share, check_index, choose_policy, read_arguments
from turnwise.environments.classes.contract import check_row, read_contract, read_messages
from turnwise.environments.classes.environment import ClassEnvironment
from turnwise.environments.classes.policies import NaivePolicy, OraclePolicy, RandomPolicy
from turnwise.environments.classes.rows import PROMPT, Row, check_rows, load_rows, split_rows
from turnwise.environments.data_rows import RowFile
from turnwise.environments.episodes import Played, play_episode, run_apart
from turnwise.environments.file_splits import MAX_BAD_ROWS, FromFiles
from turnwise.pictures.rows import RowPictures, from_plain
from turnwise.rendering.calls import format_calls

MAX_EPISODES = 200
"""Most episodes played to collect texts; further texts repeat these."""
PLAY_S = 120.0
"""Seconds after which no further episode is played to collect texts: a slow class plays fewer."""
MAX_FAILURES = 3
"""Number of failed episodes after which no further one is played for texts: a hanging tool costs its whole limit each
time."""
MAX_SEED = 2**31 - 1
"""Largest seed passed to `reset`: what numpy and C libraries accept."""
MAX_TURNS = 64
_REMEDY = 'give it a method _oracle(self) that returns the right call, ("tool", {arguments})'


class ClassArguments(FamilyArguments):
    """Where the rows come from, and how the scripted policies play."""

    rows: Annotated[Sequence[Mapping[str, Any]] | None, SkipValidation] = None
    """The rows themselves; None reads those of `path`."""
    path: str = ""
    """JSONL, JSON or Parquet file of rows; their columns are the arguments of `reset`. If it is empty and there are no
    `rows`, every task is a row without columns except its seed."""
    heldout_path: str = ""
    """JSONL, JSON or Parquet file of held-out rows; empty holds out a tenth of the rows."""
    max_bad_rows: Share = MAX_BAD_ROWS
    """Largest share of a file's rows that may be bad: these are left out, counted and named by file and line. With
    more, the run does not start."""
    random_calls: int = Field(3, ge=1, le=MAX_TURNS - 1)
    """Number of calls after which the random policy ends its episode, unless the class ends it before."""
    naive_skill: Share = 0.0
    """Probability that the naive policy, the default demonstrator, acts like the oracle; otherwise it makes random
    calls."""

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        if self.rows is not None and self.path:
            raise ConfigError(f"path={self.path!r} and rows are both set; set only one of them")
        if self.heldout_path and not self.path and self.rows is None:
            raise ConfigError(f"heldout_path={self.heldout_path!r} without rows to train on; set path too")
        if self.rows is not None and not isinstance(self.rows, list):
            raise ConfigError(f"rows={self.rows!r:.100} is not a list of tables")
        return self


class ClassFamily(FromFiles):
    """Implements `EnvironmentFamily` for a class that does not know Turnwise; `classes.contract` describes its members.

    Tasks are pure functions of its arguments. A new object is built for every episode.
    """

    def __init__(self, plain: type, **arguments: Any) -> None:
        """`arguments` are the fields of `ClassArguments`.

        Raises ConfigError naming the class and what it lacks, or the argument; DataError for a row with the wrong
        layout.
        """
        self._chosen = chosen = read_arguments(ClassArguments, arguments)
        self._contract = contract = read_contract(plain)
        if chosen.naive_skill and not contract.has_oracle:
            raise ConfigError(f"naive_skill={chosen.naive_skill} but {contract.name} has no _oracle; {_REMEDY}")
        self._pictures = RowPictures()
        rows: list[Row] | RowFile[Row] | None = None
        if chosen.rows is not None:
            rows = check_rows(chosen.rows, contract, self._pictures)
        elif chosen.path:
            rows = load_rows(Path(chosen.path), contract, self._pictures, max_bad_share=chosen.max_bad_rows)
        else:
            check_row(contract, {"seed": 0} if contract.takes_seed else {})
        heldout = None
        if chosen.heldout_path:
            heldout = load_rows(
                Path(chosen.heldout_path), contract, self._pictures, max_bad_share=chosen.max_bad_rows, trains=False
            )
        self._files = self._rows = None if rows is None else split_rows(rows, heldout, contract, chosen.seed)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes, one line each, on what a run lacks because the class lacks it, and on conspicuous rows."""
        name, notes = self._contract.name, [*super().notes]
        if not self._contract.has_oracle:
            notes.append(f"{name} has no _oracle: demonstrations only call at random, and no task is proved solvable")
        if not self._contract.takes_seed:
            notes.append(
                f"{name}.reset takes no seed: what it draws cannot be repeated, and differs within a group of attempts"
            )
        return tuple(notes)

    def task(self, split: Split, index: int) -> Task:
        """Return the index-th task of a split: a row, and a seed if `reset` takes one and the row has none.

        Raises IndexError for a negative index and past the end of the held-out rows.
        """
        check_index(split, index)
        row = dict(self._rows.row(split, index)) if self._rows is not None else {}
        if self._contract.takes_seed and "seed" not in row:
            row["seed"] = derive_seed(self._chosen.seed, "row", split, index) % (MAX_SEED + 1)
        name = self._contract.name
        if row.get(PROMPT) is not None:
            prompt = read_messages(from_plain(row, PROMPT, self._pictures.find)[PROMPT], None, name)
        else:  # the prompt is known only after reset
            columns = ", ".join(f"{key}={value!r}" for key, value in row.items())
            prompt = (text_message("user", f"{name}.reset({columns})"),)
        return Task(environment=name, prompt=prompt, payload={"row": row})

    def build_environment(self, task: Task) -> ClassEnvironment:
        """Build a fresh, single-use environment."""
        return self._build()

    def _build(self) -> ClassEnvironment:
        chosen = self._chosen
        return ClassEnvironment(
            self._contract,
            self._pictures,
            tool_timeout_s=chosen.tool_timeout_s,
            max_observation_chars=chosen.max_observation_chars,
        )

    def policy(self, name: str) -> ScriptedPolicy:
        """Return "random", "naive" (the demonstrator) or, if the class has `_oracle`, "oracle". Raises ConfigError."""
        random = RandomPolicy(contract=self._contract, num_calls=self._chosen.random_calls)
        oracle = OraclePolicy(build=self._build)
        naive = NaivePolicy(skill=self._chosen.naive_skill, oracle=oracle, random=random)
        if name == "oracle" and not self._contract.has_oracle:
            raise ConfigError(f"{self._contract.name} has no _oracle, so there is no policy 'oracle'; {_REMEDY}")
        return choose_policy(name, {"oracle": oracle, "random": random, "naive": naive})

    def texts(self, count: int) -> list[str]:
        """Return `count` texts: the tools' schemas, then messages of episodes played by the random policy.

        Raises what the last episode raised if none can be played.
        """
        texts = [
            json.dumps({"name": spec.name, "description": spec.description, "parameters": spec.parameters})
            for spec in self._contract.tools.values()
        ]
        for played in run_apart(self._play(count)):
            for message in played.messages:
                if message.text:
                    texts.append(f" {message.text}" if message.role in ("tool", "assistant") else message.text)
                for call in message.tool_calls:
                    texts += [_write_call(call), call.arguments]
        return [texts[index % len(texts)] for index in range(count)]

    async def _play(self, count: int) -> list[Played]:
        """Play random episodes of the first training tasks; failed ones are left out, unless all fail."""
        episodes: list[Played] = []
        failures: list[TurnwiseError] = []
        random, deadline = self.policy("random"), time.monotonic() + PLAY_S
        for index in range(min(count, MAX_EPISODES)):
            try:
                task = self.task("train", index)
                episodes.append(await play_episode(self, task, random, seed=index, max_turns=MAX_TURNS))
            except TurnwiseError as error:
                failures.append(error)
            if time.monotonic() > deadline or len(failures) == MAX_FAILURES:
                break
        if failures and not episodes:
            raise failures[-1]
        return episodes


def _write_call(call: ToolCall) -> str:
    """Write the call as the renderer "calls" does, if it can."""
    try:
        return f" {format_calls((call,))}"
    except RenderError:
        return f" {call.name}"
