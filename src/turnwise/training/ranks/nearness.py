"""What a rank shares with the trainer's process: memory and disk on the same machine, otherwise only the socket."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from transformers import PreTrainedModel

from turnwise.hosts.leftovers import make_folder
from turnwise.models.checksums import find_difference, sum_tensors
from turnwise.store.checkpoint_folder import whole_folder
from turnwise.training.local import LocalTrainer
from turnwise.training.ranks.messages import encode_message
from turnwise.training.ranks.pieces import cut_folder, cut_tensors, put_file
from turnwise.training.ranks.sharding import Sharded
from turnwise.training.shards import FOLDER as SHARDS


class Nearness(Protocol):
    """How weights and checkpoints travel between a rank and the run."""

    def hear(self, message: Mapping[str, Any]) -> None:
        """Receive what the trainer sends before a question."""
        ...

    def send_rows(self, policy: PreTrainedModel) -> None:
        """Send this rank's rows to the trainer's process, which keeps them aside, unless that sees them."""
        ...

    def publish(self, policy: PreTrainedModel) -> None:
        """Write this rank's rows where engines read them, after all ranks have finished; the trainer's process writes
        rows that were sent."""
        ...

    def find_drift(self, policy: PreTrainedModel) -> str | None:
        """Return the first tensor whose rows differ between the trainer's process and this rank; None if all agree."""
        ...

    def save(self, trainer: LocalTrainer, folder: Path, counters: Mapping[str, Any]) -> None:
        """Write this rank's part of a checkpoint to a folder of the run."""
        ...

    def load(self, trainer: LocalTrainer, folder: Path) -> Mapping[str, Any]:
        """Restore a checkpoint of the run."""
        ...


@dataclass(frozen=True, slots=True)
class Near:
    """Implements `Nearness` for a rank that shares memory and disk with the trainer."""

    placement: Sharded

    def hear(self, message: Mapping[str, Any]) -> None:
        """See `Nearness.hear`: nothing is sent."""

    def send_rows(self, policy: PreTrainedModel) -> None:
        """See `Nearness.send_rows`: the trainer's process sees them."""

    def publish(self, policy: PreTrainedModel) -> None:
        """See `Nearness.publish`."""
        self.placement.publish(policy)

    def find_drift(self, policy: PreTrainedModel) -> str | None:
        """See `Nearness.find_drift`."""
        return self.placement.find_drift(policy)

    def save(self, trainer: LocalTrainer, folder: Path, counters: Mapping[str, Any]) -> None:
        """See `Nearness.save`."""
        trainer.save(folder, counters)

    def load(self, trainer: LocalTrainer, folder: Path) -> Mapping[str, Any]:
        """See `Nearness.load`."""
        return trainer.load(folder)


@dataclass(slots=True)
class Far:
    """Implements `Nearness` on another machine."""

    placement: Sharded
    end: socket.socket
    sums: Mapping[str, int] = field(default_factory=dict)
    """Checksums of this rank's rows in the trainer's process."""
    checkpoints: Path | None = None
    """Folder of the checkpoints that the trainer sent; None if it sent none since the last `load`."""

    def hear(self, message: Mapping[str, Any]) -> None:
        """See `Nearness.hear`."""
        if "sums" in message:
            self.sums = message["sums"]
        else:
            self.checkpoints = self.checkpoints or _make_folder()
            put_file(self.checkpoints, message["file"])

    def send_rows(self, policy: PreTrainedModel) -> None:
        """See `Nearness.send_rows`."""
        for pieces in cut_tensors(self.placement.list_rows(policy)):
            self.end.sendall(encode_message({"rows": pieces}))

    def publish(self, policy: PreTrainedModel) -> None:
        """See `Nearness.publish`: the rows were sent."""

    def find_drift(self, policy: PreTrainedModel) -> str | None:
        """See `Nearness.find_drift`."""
        return find_difference(sum_tensors(dict(self.placement.list_rows(policy))), self.sums)

    def save(self, trainer: LocalTrainer, folder: Path, counters: Mapping[str, Any]) -> None:
        """See `Nearness.save`; the files pass through this node's temporary folder."""
        own = _make_folder()
        try:
            trainer.save(own, counters)
            for piece in cut_folder(own, own / SHARDS):
                self.end.sendall(encode_message({"file": piece}))
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def load(self, trainer: LocalTrainer, folder: Path) -> Mapping[str, Any]:
        """See `Nearness.load`; what was sent is named by its path below the run's checkpoint folder."""
        assert self.checkpoints is not None
        try:
            return trainer.load(self.checkpoints / folder.relative_to(whole_folder(folder).parent))
        finally:
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            self.checkpoints = None


def _make_folder() -> Path:
    return make_folder(Path(tempfile.gettempdir()), "turnwise-checkpoint-")
