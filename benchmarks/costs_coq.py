"""What Coq costs: starts, tactics and theorems per second, episodes, and what coqc and coqchk take for a proof.

python benchmarks/costs_coq.py
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from random import Random

from soak_coq import list_coqtops, prove, read_mib

from turnwise.core.types import StopReason
from turnwise_worlds.coq.family import Coq
from turnwise_worlds.coq.kinds import KINDS
from turnwise_worlds.coq.prover import CoqProver
from turnwise_worlds.coq.theorem import CoqTheorem
from turnwise_worlds.coq.verify import CoqVerifier
from turnwise_worlds.coq.words import write_sentence
from turnwise_worlds.programs import COQTOP
from turnwise_worlds.proving.prover import ProofState, Theorem


def read_processor_s(pids: list[int]) -> float:
    """Return the processor time of processes."""
    ticks = [sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) for pid in pids]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


async def play(family: Coq, index: int) -> int:
    """Play an episode of the oracle; returns the number of its replies."""
    task = family.task("train", index)
    environment, oracle = family.build_environment(task), family.policy("oracle")
    messages, count, is_done = [*(await environment.reset(task, 0)).messages], 0, False
    while not is_done:
        messages.append(oracle.reply(task, messages, Random(index)))
        result = await environment.step(messages[-1])
        messages += result.observations
        count, is_done = count + 1, result.done
    await environment.score([], StopReason.DONE)
    await environment.close()
    return count


def measure(seconds: float) -> dict[str, float]:
    """Measure each cost for about `seconds`; rates are per second of real time, waiting included."""
    prover, costs = CoqProver(COQTOP.find(), num_processes=1), dict[str, float]()
    begun = time.perf_counter()
    prover.start(Theorem(name="t", statement=": True"))
    costs["first_start_s"] = time.perf_counter() - begun
    kinds = list(KINDS)
    [pid] = list_coqtops()
    begun, used, num_theorems, num_tactics = time.perf_counter(), read_processor_s([pid]), 0, 0
    proofs: list[tuple[Theorem, tuple[str, ...]]] = []
    while time.perf_counter() < begun + seconds:
        given: CoqTheorem = KINDS[kinds[num_theorems % len(kinds)]](Random(num_theorems))
        proofs.append((given.theorem, prove(prover, given)))
        num_theorems, num_tactics = num_theorems + 1, num_tactics + len(given.script)
    passed = time.perf_counter() - begun
    costs |= {"theorems_per_s": num_theorems / passed, "tactics_per_s": num_tactics / passed}
    costs["coqtop_ms_per_tactic"] = (read_processor_s([pid]) - used) / num_tactics * 1000
    costs["coqtop_mib"] = read_mib(pid)
    costs["forks_per_s"] = _rate_forks(prover, seconds)
    for size in (1, 64):
        verifier = CoqVerifier(prover._sandbox, COQTOP.find())
        begun, count = time.perf_counter(), 0
        while time.perf_counter() < begun + seconds:
            verdicts = verifier.check_all([proofs[(count + at) % len(proofs)] for at in range(size)])
            assert all(verdict.accepted for verdict in verdicts)
            count += size
        costs[f"verified_per_s_in_files_of_{size}"] = count / (time.perf_counter() - begun)
    prover.close()
    family = Coq(style="terse")
    begun, num_episodes, num_replies = time.perf_counter(), 0, 0
    while time.perf_counter() < begun + seconds:
        indices = range(num_episodes, num_episodes + 64)
        num_replies += sum(asyncio.run(_play_all(family, indices)))
        num_episodes += 64
    passed = time.perf_counter() - begun
    costs |= {"episodes_per_s": num_episodes / passed, "steps_per_s": num_replies / passed}
    family.prover.close()
    return costs


async def _play_all(family: Coq, indices: range) -> list[int]:
    return await asyncio.gather(*(play(family, index) for index in indices))


def _rate_forks(prover: CoqProver, seconds: float) -> float:
    """Tactics per second that are applied to the states of two proofs in turn: the tactics before are run again."""
    states: list[tuple[ProofState, str]] = []
    for seed in (0, 1):
        given = KINDS["chain3"](Random(seed))
        state = prover.start(given.theorem)
        for tactic in given.script[:2]:
            state = prover.apply(state, write_sentence(tactic, state.goals[0], given.names))
        states.append((state, write_sentence(given.script[2], state.goals[0], given.names)))
    begun, count = time.perf_counter(), 0
    while time.perf_counter() < begun + seconds:
        prover.apply(*states[count % 2])
        count += 1
    return count / (time.perf_counter() - begun)


if __name__ == "__main__":
    for name, value in measure(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0).items():
        print(f"{name:32} {value:10.2f}")
