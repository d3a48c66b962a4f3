"""Writes weights as files for other processes: written, described and summed before any of them is loaded."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, boundary
from turnwise.hosts.leftovers import make_folder
from turnwise.models.checksums import BASE, join_base, sum_tensors
from turnwise.models.hub_tensors import list_hub_tensors
from turnwise.models.lora import list_adapter, name_in_file, save_adapter

PREFIX = "turnwise-weights-"
MEMORY = Path("/dev/shm")
WRITTEN_OUT: Mapping[str, Mapping[str, str]] = {"lfm2": {"conv_dim": "hidden_size", "block_dim": "hidden_size"}}
"""By model type: fields of a checkpoint's config that vLLM reads but transformers' classes leave out, and the field
with the same value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The weights of one version."""

    folder: Path
    """Contains `manifest.json` with dtype and shape of every tensor, and the files named by the method that wrote
    it."""
    sums: Mapping[str, int]
    """`compute_checksums` of the model that the files were written from; only `BASE` for a base."""
    file_sums: Mapping[str, int]
    """`compute_checksum` of every tensor in the file, by its name there."""
    dtype: str
    """The model's dtype."""


class Staging:
    """A folder of this process for weights: in shared memory, or at the place that the recipe names."""

    def __init__(self, parent: Path | None) -> None:
        """`parent` None: shared memory. Folders left there by killed processes are removed.

        Raises EngineError if the folder cannot be written."""
        parent = parent or MEMORY
        with boundary(EngineError, f"cannot stage weights in {parent}; make room there, or name another folder"):
            parent.mkdir(parents=True, exist_ok=True)
            self.root = make_folder(parent, PREFIX)
        self._kept: list[Path] = []
        self._num_written = 0

    def write(self, model: PreTrainedModel, beside: Path | None = None) -> Staged:
        """Write the weights of `model` as a Hugging Face directory, under the names of `list_hub_tensors` (for a model
        with an adapter, only the adapter's parameters), and remove all but the last two versions. Files in `beside`
        become part of it.

        Raises EngineError when they do not fit.
        """
        sums = sum_tensors(dict(model.named_parameters()))
        tensors: Mapping[str, torch.Tensor] = list_adapter(model) or list_hub_tensors(model)
        with self._make_folder() as folder:
            for file in () if beside is None else beside.iterdir():
                shutil.copy(file, folder)
            _write_config(model, folder)
            _write_tensors(tensors, folder)
        self._forget()
        return Staged(folder=folder, sums=join_base(sums), file_sums=sum_tensors(tensors), dtype=_name_dtype(model))

    def write_base(self, model: PreTrainedModel) -> Staged:
        """Write a model without its adapter, as a Hugging Face directory that is kept.

        Raises EngineError when it does not fit.
        """
        sums = sum_tensors(dict(model.named_parameters()))
        tensors = list_hub_tensors(model)
        with self._make_folder() as folder:
            _write_config(model, folder)
            _write_tensors(tensors, folder)
        self._kept.remove(folder)
        return Staged(
            folder=folder,
            sums={BASE: join_base(sums)[BASE]},
            file_sums=sum_tensors(tensors),
            dtype=_name_dtype(model),
        )

    def write_adapter(self, model: PreTrainedModel, base: Staged) -> Staged:
        """Write the adapter of a model in peft's format, and remove all but the last two versions. Its `sums` include
        the `BASE` of `base`, with which it is used.

        Raises EngineError when it does not fit.
        """
        sums = sum_tensors(list_adapter(model))
        with self._make_folder() as folder:
            save_adapter(model, folder)
            _write_manifest(name_in_file(list_adapter(model)), folder)
        self._forget()
        return Staged(folder=folder, sums={**sums, **base.sums}, file_sums=name_in_file(sums), dtype=_name_dtype(model))

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.root, ignore_errors=True)

    @contextmanager
    def _make_folder(self) -> Iterator[Path]:
        self._num_written += 1
        folder = self.root / str(self._num_written)
        with boundary(EngineError, f"cannot stage the weights in {folder}; free space there"):
            folder.mkdir()
            yield folder
        self._kept.append(folder)

    def _forget(self) -> None:
        while len(self._kept) > 2:
            shutil.rmtree(self._kept.pop(0), ignore_errors=True)


def _write_config(model: PreTrainedModel, folder: Path) -> None:
    config = copy.deepcopy(model.config)
    # Only a model that is saved whole names its class; if it is missing, vLLM treats the model as an encoder.
    config.architectures = [type(model).__name__]
    for name, source in WRITTEN_OUT.get(config.model_type, {}).items():
        if not hasattr(config, name):
            setattr(config, name, getattr(config, source))
    config.save_pretrained(folder)


def _write_tensors(tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    _write_manifest(tensors, folder)
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(plain, folder / "model.safetensors", metadata={"format": "pt"})


def _write_manifest(tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    manifest = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _name_dtype(model: PreTrainedModel) -> str:
    return str(model.dtype).removeprefix("torch.")
