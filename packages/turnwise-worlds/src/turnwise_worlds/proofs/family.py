"""Theorems as an environment family: tasks, environments and policies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.core.faults import Fault
from turnwise.core.protocols import Opinion, ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task, Trajectory
from turnwise.environments.file_splits import FromFiles, load_splits
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.proofs.arguments import ProofsArguments
from turnwise_worlds.proofs.environment import ProofsEnvironment, build_prompt
from turnwise_worlds.proofs.faults import NAMES, find_proof_fault
from turnwise_worlds.proofs.kinds import make_theorem
from turnwise_worlds.proofs.opinion import judge_replies
from turnwise_worlds.proofs.policies import GIVEN_UP, ProvingPolicy, RandomPolicy
from turnwise_worlds.proofs.state import ProofState
from turnwise_worlds.proofs.theorem import Theorem, read_theorem
from turnwise_worlds.proofs.view import View
from turnwise_worlds.proofs.words import REFUSED, TACTICS, Tactic, format_tactic

HELD_OUT = 5
"""One theorem in so many is held out."""


class Proofs(FromFiles, GeneratedFamily[ProofsArguments]):
    """Theorems of propositional logic and about equations."""

    name = "proofs"
    section = ProofsArguments
    fault_names = NAMES

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`. Raises DataError for a file of mode "files"."""
        super().__init__(**arguments)
        chosen = self._chosen
        # A control changes what an episode shows, not which tasks there are.
        self._uncontrolled = chosen.model_copy(update={"shown": "own"})
        if chosen.mode == "files":
            self._files = load_splits(
                {"train": chosen.train_path, "heldout": chosen.heldout_path},
                read_theorem,
                chosen.seed,
                max_bad_rows=chosen.max_bad_rows,
                asks=lambda theorem: (theorem.sequent, theorem.classical),
            )

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no theorem. From files, "train" starts over in a new order
        after each pass and "heldout" ends. Raises IndexError past the end."""
        if self._files is not None:
            theorem = self._files.row(split, index)
            return build_prompt(theorem, self._uncontrolled), {"kind": "own", **theorem.to_json()}
        path = (self._chosen.seed, "proofs", split, index)
        kinds = self._chosen.kinds
        kind = rng(*path, "kind").choices(list(kinds), list(kinds.values()))[0]
        random = rng(*path)
        while (split == "heldout") != _is_held_out(theorem := make_theorem(kind, random)):
            pass
        return build_prompt(theorem, self._uncontrolled), {"kind": kind, **theorem.to_json()}

    def build_environment(self, task: Task) -> ProofsEnvironment:
        """Build a fresh, single-use `ProofsEnvironment`."""
        return ProofsEnvironment(self._chosen, task)

    async def give_opinion(self, task: Task, replies: Sequence[Message]) -> Opinion:
        """See `SecondOpinion`: the proof is put together again, exported, and verified by our own verifier and by
        Debian's `metamath`. Raises as `ask_metamath` does."""
        return await asyncio.to_thread(judge_replies, self._chosen, task, replies)

    def find_fault(self, task: Task, trajectory: Trajectory) -> Fault | None:
        """See `FaultFinder`."""
        return find_proof_fault(self._chosen, task, trajectory)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        chosen = self._chosen
        return {
            "oracle": ProvingPolicy(chosen, 1.0),
            "random": RandomPolicy(chosen),
            "naive": ProvingPolicy(chosen, chosen.naive_skill),
        }

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the opening, then every call of the script and the state after it; sometimes another tactic."""
        task = self.task("train", index)
        theorem = read_theorem(task.payload)
        view, state = View.of(theorem, self._uncontrolled), ProofState.open(theorem)
        yield task.prompt[0].text
        for tactic in theorem.script:
            yield f" {format_tactic(Tactic(tactic.word, view.call(state, tactic.name)))}"
            state = state.apply(tactic)
            yield REFUSED + view.show(state)
        yield f" {list(TACTICS)[index % len(TACTICS)]}"
        yield f" {GIVEN_UP}"


def _is_held_out(theorem: Theorem) -> bool:
    """Whether a statement is held out: whatever kind and index make it, it is in one split only."""
    return derive_seed("held out", str(theorem.sequent)) % HELD_OUT == 0
