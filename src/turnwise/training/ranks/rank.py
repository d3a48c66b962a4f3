"""One rank: a trainer of its rows of every model, in a separate process behind a socket.

    PYTHON -m turnwise.training.ranks.rank SOCKET_FD PARENT_PID

The first message says what to build. The process ends when the thread that started it ends, for whatever reason (Linux:
the kernel kills it), and when the socket closes."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from turnwise.core.errors import CheckpointError, TrainingError, TurnwiseError, boundary
from turnwise.models.allocator import keep_freed_memory
from turnwise.models.structure import build_structure, with_tensors, without_weights
from turnwise.training.local import LocalTrainer
from turnwise.training.ranks.communication import JoinedRanks, host_store, join_group, join_store, listen
from turnwise.training.ranks.memory import make_tensors, open_memory
from turnwise.training.ranks.messages import (
    decode_batch,
    decode_samples,
    encode_columns,
    encode_message,
    encode_report,
    read_message,
)
from turnwise.training.ranks.nearness import Far, Near, Nearness
from turnwise.training.ranks.pieces import put_pieces
from turnwise.training.ranks.sharding import Sharded
from turnwise_sandbox.kernel.syscalls import set_pdeathsig


def main() -> None:
    """Run a rank from start to end."""
    number, parent_pid = map(int, sys.argv[1:])
    # The terminal's interrupt goes to the whole foreground group; the trainer's process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        set_pdeathsig()
    end = socket.socket(fileno=number)
    if os.getppid() != parent_pid or (settings := read_message(end)) is None:
        return
    torch.set_num_threads(settings["num_threads"])
    keep_freed_memory()
    try:
        with boundary(TrainingError, f"rank {settings['index']} of {settings['size']}"):
            rank = _build(end, settings)
            if rank is not None:
                rank.serve()
    except TurnwiseError as error:
        with contextlib.suppress(OSError):
            end.sendall(encode_message({"failed": str(error)}))


def _build(end: socket.socket, settings: Mapping[str, Any]) -> _Rank | None:
    """Build the rank that the trainer described; None if the trainer has ended."""
    index, address = settings["index"], settings["address"]
    device = torch.device(settings["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    memory = open_memory(settings["memory"])
    listener = listen(address) if index == 0 else None
    port = None if listener is None else listener.getsockname()[1]
    end.sendall(encode_message({"answer": {"is_near": memory is not None, "port": port}}))
    tensors = make_tensors(settings["memory"]) if memory is None else memory
    while (message := read_message(end)) is not None and message["kind"] == "weights":
        put_pieces(message["pieces"], tensors)
    if message is None:
        return None
    store = join_store(message["address"], message["port"]) if listener is None else host_store(listener)
    join_group(store, index, settings["size"], deadline_s=settings["deadline_s"], device=device, address=address)
    policy = with_tensors(build_structure(settings["structure"], device), tensors)
    alive = encode_message({"alive": True})
    source = policy if memory is not None else without_weights(policy)
    placement = Sharded(
        source,
        JoinedRanks(lambda: end.sendall(alive)),
        device,
        is_shared=message["is_shared"],
        offloads=settings["offloads"],
    )
    module, _, name = settings["build"].partition(":")
    build = getattr(importlib.import_module(module), name)
    trainer = build(settings["recipe"], placement.place(placement.copy(policy)), placement)
    near = Near(placement) if memory is not None else Far(placement, end)
    return _Rank(end=end, trainer=trainer, placement=placement, nearness=near)


@dataclass(slots=True, kw_only=True)
class _Rank:
    end: socket.socket
    trainer: LocalTrainer
    placement: Sharded
    nearness: Nearness
    remembered: dict[int, Callable[[], None]] = field(default_factory=dict)

    def serve(self) -> None:
        """Answer until the other side closes the socket."""
        self.end.sendall(encode_message({"answer": "ready"}))
        while (message := read_message(self.end)) is not None:
            if message["kind"] == "told":
                self.nearness.hear(message)
                continue
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
                self.nearness.send_rows(trainer.model)
                return encode_report(report)
            case "remember":
                self.remembered[message["number"]] = trainer.remember()
            case "put_back":
                self.remembered.pop(message["number"])()
                self.nearness.send_rows(trainer.model)
            case "forget":
                self.remembered.pop(message["number"], None)
            case "save":
                self.nearness.save(trainer, Path(message["folder"]), message["counters"])
            case "load":
                counters = self.nearness.load(trainer, Path(message["folder"]))
                self.nearness.send_rows(trainer.model)
                return dict(counters)
            case "publish":
                self.nearness.publish(trainer.model)
            case kind:
                raise ValueError(f"unknown message kind {kind!r} for a rank")
        return None

    def _check_weights(self) -> None:
        """Raise TrainingError on all ranks if one of them holds other weights than were published."""
        drifted, ranks = self.nearness.find_drift(self.trainer.model), self.placement.ranks
        problem = None
        if drifted is not None:
            problem = (
                f"rank {ranks.index} of {ranks.size} (process {os.getpid()}) holds another {drifted} than the engines "
                "sample with; nothing was trained. Continue from the last checkpoint with --resume"
            )
        if (problem := ranks.agree(problem)) is not None:
            raise TrainingError(problem)


if __name__ == "__main__":
    main()
