"""What went wrong in a proof, in attempts whose mistakes are known."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from turnwise.badcases.divergence import Divergence
from turnwise.badcases.naming import name_fault
from turnwise.badcases.planned import find_by_oracle
from turnwise.core.faults import Fault
from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.proofs.family import Proofs
from turnwise_worlds.proofs.policies import tactic_message
from turnwise_worlds.proofs.words import Tactic


def attempt(kind: str, said: Sequence[str]) -> tuple[Fault, Divergence]:
    """What is said of an attempt at the first held-out theorem of a kind, and where the oracle says that it diverges;
    "*" is what the oracle does."""
    sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))  # a benchmark imports its neighbours
    script = importlib.import_module("planted_faults.script")
    family = Proofs(kinds={kind: 1.0})
    task: Task = family.task("heldout", 0)
    oracle = family.policy("oracle")

    def write(text: str, number: int) -> Message:
        word, _, name = text.partition(" ")
        return answer_message("stuck") if word == "stuck" else tactic_message(number, Tactic(word, name))

    replies = [script.follow(oracle, task) if text == "*" else write(text, n) for n, text in enumerate(said)]
    planted = script.Planted(name="", turn=None, family=family, task=task, index=0, replies=replies, loop=replies[-1:])
    trajectory = asyncio.run(script.play(planted))
    found = asyncio.run(find_by_oracle(family, oracle, task, trajectory, seed=0, max_turns=8))
    assert isinstance(found, Divergence)
    return name_fault(family, task, trajectory), found


def test_the_first_tactic_that_loses_the_proof_is_named() -> None:
    # One of two sides can be proved; the oracle takes the other one than this.
    theorem = Proofs(kinds={"either": 1.0}).task("heldout", 0).payload
    side = {"left": "right", "right": "left"}[theorem["script"][0][0]]
    fault, found = attempt("either", [side, "intro"])
    assert (fault.name, fault.turn, found.turn) == ("wrong side", 0, 0)


def test_calls_that_do_not_apply_and_giving_up() -> None:
    fault, found = attempt("chain2", ["*", "split"])
    assert (fault.name, fault.turn, found.turn) == ("tactics that do not apply", 1, 1)
    fault, found = attempt("chain2", ["*", "stuck"])
    assert (fault.name, fault.turn, found.turn) == ("gave up", 1, 1)
