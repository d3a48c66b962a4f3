"""The plan with which ranks are started, and their start."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from turnwise.hosts.host import Host, Program, RunningProgram, import_path
from turnwise.hosts.local import LOOPBACK
from turnwise.models.structure import describe_structure
from turnwise.training.ranks.memory import SharedMemory

HOST_S = 900.0
"""Most seconds until a host has started all ranks or refused."""
Started = tuple[RunningProgram, socket.socket]
"""A rank's process, and our end of its socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """What every rank is started with."""

    source: PreTrainedModel
    """The whole policy in shared memory, on the CPU."""
    memory: SharedMemory
    """The policy's parameters and buffers."""
    build: str
    """"package.module:name" of a function that builds a rank's `LocalTrainer` from `recipe`, the placed policy and its
    `Placement`. Ranks import it as this process would."""
    recipe: Mapping[str, Any]
    """The recipe, as plain data."""
    device: str
    """"cpu" or "cuda"; with "cuda" the i-th rank of a machine uses its GPU i."""
    size: int
    num_threads: int
    """Threads of each rank."""
    offloads: bool
    """Whether rows stay in the CPU's memory, see `Sharded`."""
    deadline_s: float
    """Longest time in seconds that ranks wait for each other."""


async def start_programs(host: Host, plan: RankPlan, folder: Path) -> list[Started]:
    """Start all ranks, with logs in `folder`. Raises EngineError if one cannot be started; then none keeps running."""
    programs = [
        Program(
            name=f"rank {index} of {plan.size}",
            arguments=(sys.executable, "-m", "turnwise.training.ranks.rank"),
            environment=import_path(),
            log=folder / f"rank-{index}.log",
        )
        for index in range(plan.size)
    ]
    started = await asyncio.gather(*map(host.start, programs), return_exceptions=True)
    for problem in started:
        if isinstance(problem, BaseException):
            for each in started:
                if not isinstance(each, BaseException):
                    each[0].kill()
                    each[1].close()
            raise problem
    return [each for each in started if not isinstance(each, BaseException)]


def describe_ranks(plan: RankPlan, addresses: Sequence[str]) -> list[dict[str, Any]]:
    """Return the first message to each rank: plain data. `addresses` are those of their nodes."""
    # Ranks on one machine are reached only from that machine.
    is_one = len(set(addresses)) == 1
    common = {
        "size": plan.size,
        "num_threads": plan.num_threads,
        "deadline_s": plan.deadline_s,
        "offloads": plan.offloads,
        "structure": describe_structure(plan.source),
        "memory": plan.memory.describe(),
        "build": plan.build,
        "recipe": dict(plan.recipe),
    }
    return [
        {
            **common,
            "index": index,
            "address": LOOPBACK if is_one else address,
            "device": f"cuda:{addresses[:index].count(address)}" if plan.device == "cuda" else plan.device,
        }
        for index, address in enumerate(addresses)
    ]
