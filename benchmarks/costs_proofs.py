"""What a proof costs: the kernel, our own Metamath verifier and Debian's `metamath` on the same theorems, and episodes.

PYTHONPATH=. python benchmarks/costs_proofs.py
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from random import Random

from turnwise.core.types import StopReason
from turnwise_worlds.proofs.family import Proofs
from turnwise_worlds.proofs.kernel.check import check_proof
from turnwise_worlds.proofs.kernel.rules import Proof
from turnwise_worlds.proofs.kinds import KIND_NAMES, make_theorem
from turnwise_worlds.proofs.metamath.opinions import ask_program, ask_verifier, export_theorem
from turnwise_worlds.proofs.state import ProofState
from turnwise_worlds.proofs.theorem import Theorem

NUM_THEOREMS = 20
"""Theorems of each kind."""


def prove(theorem: Theorem) -> Proof:
    """Return the proof of the theorem's script."""
    state = ProofState.open(theorem)
    for tactic in theorem.script:
        state = state.apply(tactic)
    proof = state.build_proof()
    assert proof is not None
    return proof


async def play_oracle(family: Proofs, index: int) -> int:
    """Play one episode; returns the number of replies."""
    task = family.task("train", index)
    environment, oracle = family.build_environment(task), family.policy("oracle")
    messages = [*(await environment.reset(task, 0)).messages]
    count, done = 0, False
    while not done:
        messages.append(oracle.reply(task, messages, Random(index)))
        result = await environment.step(messages[-1])
        messages += result.observations
        count, done = count + 1, result.done
    await environment.score([], StopReason.DONE)
    await environment.close()
    return count


def rate(run: Callable[[], object], seconds: float) -> float:
    """Return how often `run` runs in a processor second, that of programs it starts included, so that other work on the
    machine changes little. It runs for `seconds` by the clock."""
    end, before, count = time.perf_counter() + seconds, sum(os.times()[:4]), 0
    while time.perf_counter() < end:
        run()
        count += 1
    return count / max(0.01, sum(os.times()[:4]) - before)


def measure(seconds: float) -> dict[str, float]:
    """Return proofs and episodes per processor second, one after the other, each measured for `seconds`."""
    theorems = [make_theorem(kind, Random(seed)) for seed in range(NUM_THEOREMS) for kind in KIND_NAMES]
    proofs = [(theorem, prove(theorem)) for theorem in theorems]
    exported = [export_theorem(theorem.sequent, proof) for theorem, proof in proofs]
    ask_verifier(*exported[0])  # the database is read once
    pairs: Iterator[tuple[Theorem, Proof]] = cycle(proofs)
    texts: Iterator[tuple[str, str]] = cycle(exported)
    family, indices = Proofs(), iter(range(10**9))
    asyncio.run(play_oracle(family, next(indices)))  # imports what tools need

    def play() -> None:
        asyncio.run(play_oracle(family, next(indices)))

    def check() -> None:
        theorem, proof = next(pairs)
        check_proof(theorem.sequent, proof, classical=theorem.classical)

    def accept(ask: Callable[[str, str], str | None]) -> None:
        problem = ask(*next(texts))
        if problem is not None:
            raise SystemExit(problem)

    return {
        "proofs per processor second, kernel": rate(check, seconds),
        "proofs per processor second, our own verifier": rate(lambda: accept(ask_verifier), seconds),
        "proofs per processor second, metamath": rate(lambda: accept(ask_program), seconds),
        "theorems made per processor second": rate(lambda: make_theorem("cases", Random(next(indices))), seconds),
        "episodes of the oracle per processor second": rate(play, seconds),
    }


if __name__ == "__main__":
    print(json.dumps({name: round(value, 1) for name, value in measure(3.0).items()}, indent=1))
