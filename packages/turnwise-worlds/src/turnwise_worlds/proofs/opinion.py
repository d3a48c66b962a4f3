"""The second opinion on an episode: its proof, verified by others than the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from turnwise.core.protocols import Opinion
from turnwise.core.types import Message, Task
from turnwise_worlds.proofs.arguments import ProofsArguments
from turnwise_worlds.proofs.metamath.opinions import ask_program, ask_verifier, export_theorem
from turnwise_worlds.proofs.policies import follow
from turnwise_worlds.proofs.state import ProofState
from turnwise_worlds.proofs.theorem import theorem_of
from turnwise_worlds.proofs.view import View

VERIFIER, PROGRAM = "the Metamath verifier", "metamath"
MAX_REMEMBERED = 20_000
"""How many exported theorems are remembered: members of a group often find the same proof."""


def judge_replies(chosen: ProofsArguments, task: Task, replies: Sequence[Message]) -> Opinion:
    """Put the proof of an episode together again, export it, and let both verifiers judge it. Raises as `ask_metamath`
    does."""
    theorem = theorem_of(task)
    state, _ = follow(View.of(theorem, chosen), ProofState.open(theorem), replies)
    proof = state.build_proof()
    if proof is None:
        return Opinion(by=VERIFIER, problem=f"{len(state.goals)} goals are open after the last reply")
    base, text = export_theorem(theorem.sequent, proof)
    objection = ask_verifier(base, text)
    if objection is not None:
        return Opinion(by=VERIFIER, problem=objection)
    return Opinion(by=PROGRAM, problem=_ask_program(base, text))


_ask_program = lru_cache(maxsize=MAX_REMEMBERED)(ask_program)
