"""Theorems for Coq as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from turnwise.core.protocols import Opinion, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.file_splits import FromFiles
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.coq.arguments import CoqArguments
from turnwise_worlds.coq.environment import CoqEnvironment
from turnwise_worlds.coq.files import load_theorems
from turnwise_worlds.coq.kinds import KINDS
from turnwise_worlds.coq.policies import ScriptPolicy
from turnwise_worlds.coq.prover import CoqProver
from turnwise_worlds.coq.theorem import CoqTheorem
from turnwise_worlds.coq.verify import close_statement, state_theorem
from turnwise_worlds.coq.words import WORDS, to_terse
from turnwise_worlds.programs import COQC, COQCHK, COQTOP
from turnwise_worlds.proofs.words import ELEMENTS, NUMBERS
from turnwise_worlds.proving.environment import REFUSED
from turnwise_worlds.proving.logic import is_held_out
from turnwise_worlds.proving.opinion import replay
from turnwise_worlds.proving.show import HIDDEN


class Coq(FromFiles, GeneratedFamily[CoqArguments]):
    """Theorems that are proved in Coq."""

    name = "coq"
    section = CoqArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`. Raises ConfigError if Coq is missing, DataError for a file of mode "files"."""
        super().__init__(**arguments)
        coqtop, _, _ = (program.find() for program in (COQTOP, COQC, COQCHK))
        chosen = self._chosen
        self.prover = CoqProver(
            coqtop,
            num_processes=chosen.num_processes,
            tactic_timeout_s=chosen.tactic_timeout_s,
            memory_mib=chosen.memory_mib,
        )
        if chosen.mode == "files":
            paths: dict[Split, str] = {"train": chosen.train_path, "heldout": chosen.heldout_path}
            self._files = load_theorems(paths, self.prover, chosen.seed, max_bad_rows=chosen.max_bad_rows)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no statement. From files, "train" starts over in a new order
        after each pass and "heldout" ends. Raises IndexError past the end."""
        if self._files is not None:
            given = CoqTheorem(theorem=self._files.row(split, index))
            return (text_message("user", state_theorem(given.theorem)),), {"kind": "own", **given.to_json()}
        path = (self._chosen.seed, "coq", split, index)
        kinds = self._chosen.kinds
        kind = rng(*path, "kind").choices(list(kinds), list(kinds.values()))[0]
        made = draw_theorem(kind, split, path)
        text = state_theorem(made.theorem)
        return (text_message("user", text),), {"kind": kind, **made.to_json()}

    def build_environment(self, task: Task) -> CoqEnvironment:
        """Build a fresh, single-use `CoqEnvironment`."""
        return CoqEnvironment(self._chosen, self.prover, task)

    async def give_opinion(self, task: Task, replies: Sequence[Message]) -> Opinion:
        """See `SecondOpinion`: the episode is played again and its proof is verified by coqc and coqchk. Raises
        ProverLost."""
        return await replay(self.build_environment(task), task, replies, "coqc and coqchk")

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        skills = {"oracle": 1.0, "random": 0.0, "naive": self._chosen.naive_skill}
        return {name: ScriptPolicy(self._chosen, skill) for name, skill in skills.items()}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the words of a theorem, and a call of every tactic with one of the names."""
        given = CoqTheorem.from_json(self.task("train", index).payload)
        names = [f"{ELEMENTS[(index + at) % len(ELEMENTS)]}{number}" for at, number in enumerate(NUMBERS.values())]
        yield f" {to_terse(close_statement(given.theorem))} ; {REFUSED}{HIDDEN} 0 1 2 3"
        yield "".join(f" {name} ;" for name in names) + "".join(f" ){number} ;" for number in NUMBERS.values())
        for at, (word, tactic) in enumerate(WORDS.items()):
            name = names[at] if word != "induction" else ELEMENTS[index % len(ELEMENTS)]
            yield f" {word} name = {name}" if tactic.takes_name else f" {word}"


def draw_theorem(kind: str, split: Split, path: tuple[int | str, ...]) -> CoqTheorem:
    """Draw theorems of a kind until one belongs to a split."""
    for attempt in count():
        made = KINDS[kind](rng(*path, kind, attempt))
        if is_held_out(made.theorem.statement) == (split == "heldout"):
            return made
    raise AssertionError("no theorem was drawn")
