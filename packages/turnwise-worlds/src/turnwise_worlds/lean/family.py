"""Theorems for Lean as an environment family."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from turnwise.core.protocols import Opinion, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Task, ToolCall, text_message
from turnwise.environments.file_splits import FromFiles, load_splits
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.lean.arguments import LeanArguments
from turnwise_worlds.lean.prover import LeanProver
from turnwise_worlds.proofs.kinds import make_theorem
from turnwise_worlds.proving.environment import ProvingEnvironment
from turnwise_worlds.proving.logic import PROPOSITIONAL_KINDS, is_held_out, write_statement
from turnwise_worlds.proving.opinion import replay
from turnwise_worlds.proving.prover import Theorem
from turnwise_worlds.proving.theorem_files import read_theorem

GUESSES = ("rfl", "simp", "intro h", "assumption", "constructor", "exact h", "omega")


class LeanEnvironment(ProvingEnvironment):
    """An episode in Lean."""

    prover_name = "Lean 4"


class Lean(FromFiles, GeneratedFamily[LeanArguments]):
    """Theorems that are proved in Lean."""

    name = "lean"
    section = LeanArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`. Raises DataError for files that cannot be read. Lean is started by the first
        episode."""
        super().__init__(**arguments)
        chosen = self._chosen
        self.prover = LeanProver(
            chosen.command,
            visible=[Path(folder) for folder in chosen.visible],
            tactic_timeout_s=chosen.tactic_timeout_s,
            memory_mib=chosen.memory_mib,
        )
        if chosen.mode == "files":
            paths: dict[Split, str] = {"train": chosen.train_path, "heldout": chosen.heldout_path}
            self._files = load_splits(paths, read_theorem, chosen.seed, max_bad_rows=chosen.max_bad_rows)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a theorem; splits are endless and share no statement. From files, "train" starts over in a new
        order after each pass and "heldout" ends. Raises IndexError past the end."""
        theorem = draw_theorem(split, (self._chosen.seed, "lean", split, index))
        if self._files is not None:
            theorem = self._files.row(split, index)
        payload = {"name": theorem.name, "statement": theorem.statement, "imports": list(theorem.imports)}
        return (text_message("user", f"theorem {theorem.name} {theorem.statement}"),), payload

    def build_environment(self, task: Task) -> LeanEnvironment:
        """Build a fresh, single-use `LeanEnvironment`."""
        given = task.payload
        theorem = Theorem(name=given["name"], statement=given["statement"], imports=tuple(given["imports"]))
        return LeanEnvironment(self._chosen, self.prover, task, theorem, self._chosen.budget)

    async def give_opinion(self, task: Task, replies: Sequence[Message]) -> Opinion:
        """See `SecondOpinion`: the episode is played again and its proof is verified by a fresh REPL of Lean. Raises
        ProverLost."""
        return await replay(self.build_environment(task), task, replies, "a fresh REPL of Lean")

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "random" and "naive", which guess; no proof is known."""
        return {"random": GuessingPolicy(), "naive": GuessingPolicy()}

    def sample_texts(self, index: int) -> Iterable[str]:
        """Return a theorem and the guesses."""
        return [self.task("train", index).prompt[0].text, *GUESSES]


def draw_theorem(split: Split, path: tuple[int | str, ...]) -> Theorem:
    """Draw theorems until one belongs to a split."""
    for attempt in count():
        random = rng(*path, attempt)
        statement = write_statement(make_theorem(random.choice(PROPOSITIONAL_KINDS), random))
        if is_held_out(statement) == (split == "heldout"):
            return Theorem(name="t", statement=statement)
    raise AssertionError("no theorem was drawn")


class GuessingPolicy:
    """Tries tactics that often help."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        call = ToolCall(id=f"call_{len(messages)}", name="tactic", arguments=json.dumps({"text": rng.choice(GUESSES)}))
        return Message(role="assistant", content=(), tool_calls=(call,))
