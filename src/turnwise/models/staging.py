"""Weights as files that other processes read: written, described and summed before any is loaded."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, boundary
from turnwise.hosts.leftovers import make_folder
from turnwise.models.checksums import compute_checksums
from turnwise.models.lora import is_adapter_name

PREFIX = "turnwise-weights-"
MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The weights of one version."""

    folder: Path
    """A Hugging Face directory with `manifest.json`: dtype and shape of every tensor. Of a model with an adapter it
    holds the adapter's parameters alone: the others never change."""
    sums: Mapping[str, int]
    """`compute_checksums` of the model that they were written from."""
    dtype: str


class Staging:
    """A folder of this process for weights: in shared memory, or where the recipe says."""

    def __init__(self, parent: Path | None) -> None:
        """`parent` None is shared memory. Folders that processes left there when they were killed are removed.

        Raises EngineError if the folder cannot be written."""
        parent = parent or MEMORY
        with boundary(EngineError, f"weights cannot be staged in {parent}; make room there, or name another folder"):
            parent.mkdir(parents=True, exist_ok=True)
            self.root = make_folder(parent, PREFIX)
        self._kept: list[Path] = []
        self._num_written = 0

    def write(self, model: PreTrainedModel) -> Staged:
        """Write the weights of `model`, and forget all but the last two versions.

        Raises EngineError when they do not fit.
        """
        tensors = {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}
        tensors = {name: tensor for name, tensor in tensors.items() if is_adapter_name(name)} or tensors
        self._num_written += 1
        folder = self.root / str(self._num_written)
        with boundary(EngineError, f"the weights cannot be staged in {folder}; free space there"):
            folder.mkdir()
            config = copy.deepcopy(model.config)
            # Only a model that is saved whole names its class; without one vLLM takes it for an encoder.
            config.architectures = [type(model).__name__]
            config.save_pretrained(folder)
            manifest = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()}
            (folder / "manifest.json").write_text(json.dumps(manifest))
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        self._kept.append(folder)
        while len(self._kept) > 2:
            shutil.rmtree(self._kept.pop(0), ignore_errors=True)
        dtype = str(model.dtype).removeprefix("torch.")
        return Staged(folder=folder, sums=compute_checksums(model), dtype=dtype)

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.root, ignore_errors=True)
