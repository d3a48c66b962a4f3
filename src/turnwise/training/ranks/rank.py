"""One rank: a trainer on its rows of every model, in a process of its own, behind a socket.

It ends when the thread that started it ends, however that happens (Linux: the kernel kills it), and when the socket
closes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.core.errors import CheckpointError, TrainingError, TurnwiseError, boundary
from turnwise.models.allocator import keep_freed_memory
from turnwise.models.attention import register_attention
from turnwise.models.experts import register_experts
from turnwise.training.local import LocalTrainer
from turnwise.training.placement import Placement
from turnwise.training.ranks.communication import JoinedRanks, join_group
from turnwise.training.ranks.messages import (
    decode_batch,
    decode_samples,
    encode_columns,
    encode_message,
    encode_report,
    read_message,
)
from turnwise.training.ranks.sharding import Sharded
from turnwise_sandbox.kernel.syscalls import set_pdeathsig

REFUSALS = {error.__name__: error for error in (TrainingError, CheckpointError)}
"""Errors that all ranks raise together and survive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """What every rank is started with."""

    source: PreTrainedModel
    """The whole policy in shared memory."""
    build: Callable[[PreTrainedModel, Placement], LocalTrainer]
    """The trainer of the policy that is given, placed. It can be sent to another process."""
    device: str
    """"cpu", or "cuda": then rank i computes on GPU i."""
    size: int
    num_threads: int
    """Threads of each rank."""
    deadline_s: float
    """Longest time that ranks wait for each other."""
    folder: str
    """A private one, where ranks meet."""


def run_rank(end: socket.socket, parent_pid: int, index: int, plan: RankPlan) -> None:
    """The whole life of a rank."""
    # The terminal's interrupt goes to the whole foreground group; the trainer's process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        set_pdeathsig()
    if os.getppid() != parent_pid:
        return
    torch.set_num_threads(plan.num_threads)
    keep_freed_memory()
    register_attention()
    register_experts()
    try:
        with boundary(TrainingError, f"rank {index} of {plan.size}"):
            _build(end, index, plan).serve()
    except TurnwiseError as error:
        with contextlib.suppress(OSError):
            end.sendall(encode_message({"failed": str(error)}))


def _build(end: socket.socket, index: int, plan: RankPlan) -> _Rank:
    device = torch.device(plan.device, index) if plan.device == "cuda" else torch.device(plan.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    join_group(Path(plan.folder), index, plan.size, deadline_s=plan.deadline_s, device=device)
    alive = encode_message({"alive": True})
    placement = Sharded(plan.source, JoinedRanks(lambda: end.sendall(alive)), device)
    trainer = plan.build(placement.place(placement.copy(plan.source)), placement)
    return _Rank(end=end, trainer=trainer, placement=placement)


@dataclass(slots=True, kw_only=True)
class _Rank:
    end: socket.socket
    trainer: LocalTrainer
    placement: Sharded
    remembered: dict[int, Callable[[], None]] = field(default_factory=dict)

    def serve(self) -> None:
        """Answer until the other side is gone."""
        self.end.sendall(encode_message({"answer": "ready"}))
        while (message := read_message(self.end)) is not None:
            try:
                answer = {"answer": self._handle(message)}
            except (TrainingError, CheckpointError) as error:
                answer = {"refused": [type(error).__name__, str(error)]}
            self.end.sendall(encode_message(answer))

    def _handle(self, message: Mapping[str, Any]) -> Any:
        trainer = self.trainer
        match message["kind"]:
            case "score":
                self._check_weights()
                samples, wanted = decode_samples(message["samples"]), frozenset(message["wanted"])
                columns = trainer.score(samples, wanted, outcomes=message["outcomes"])
                return encode_columns(columns) if self.placement.ranks.index == 0 else None
            case "step":
                self._check_weights()
                report = trainer.step(decode_batch(message["batch"]))
                self._publish()
                return encode_report(report)
            case "remember":
                self.remembered[message["number"]] = trainer.remember()
            case "put_back":
                self.remembered.pop(message["number"])()
                self._publish()
            case "forget":
                self.remembered.pop(message["number"], None)
            case "save":
                trainer.save(Path(message["folder"]), message["counters"])
            case "load":
                counters = trainer.load(Path(message["folder"]))
                self._publish()
                return dict(counters)
            case kind:
                raise ValueError(f"a rank does not know messages of kind {kind!r}")
        return None

    def _check_weights(self) -> None:
        """Raise TrainingError on all ranks where one of them holds other weights than were published."""
        drifted, ranks = self.placement.find_drift(self.trainer.model), self.placement.ranks
        problem = None
        if drifted is not None:
            problem = (
                f"rank {ranks.index} of {ranks.size} (process {os.getpid()}) holds another {drifted} than the engines "
                "sample with; nothing was trained. Continue from the last checkpoint with turnwise train --resume RUN"
            )
        if (problem := ranks.agree(problem)) is not None:
            raise TrainingError(problem)

    def _publish(self) -> None:
        """Write the weights where engines read them, once every rank has finished."""
        self.placement.ranks.agree(None)
        self.placement.publish(self.trainer.model)
