"""What ranks are started with, and how."""

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
"""Most seconds until a host has started all ranks, or says that it cannot."""
Started = tuple[RunningProgram, socket.socket]
"""A rank's process, and our end of the socket to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """What every rank is started with."""

    source: PreTrainedModel
    """The whole policy in shared memory, on the CPU."""
    memory: SharedMemory
    """Its parameters and buffers."""
    build: str
    """"package.module:name" of a function of `recipe`, the placed policy and its `Placement` that gives the
    `LocalTrainer` of a rank. Ranks import it as this process would."""
    recipe: Mapping[str, Any]
    """Plain data."""
    device: str
    """"cpu", or "cuda": then the i-th rank of a machine computes on its GPU i."""
    size: int
    num_threads: int
    """Threads of each rank."""
    offloads: bool
    """Whether rows stay in the memory of the CPU, see `Sharded`."""
    deadline_s: float
    """Longest time that ranks wait for each other."""


async def start_programs(host: Host, plan: RankPlan, folder: Path) -> list[Started]:
    """Start all ranks, with logs in `folder`. Raises EngineError where one cannot be started; then none is left."""
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
    """The first message to each rank: plain data. `addresses` are those of their nodes."""
    # Ranks of one machine are reached from it alone.
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
