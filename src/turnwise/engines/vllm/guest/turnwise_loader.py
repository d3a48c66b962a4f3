"""Loads weights into a vLLM worker in two phases: all of them are read and checksummed before any is loaded.

vLLM makes this a base class of its worker (`worker_extension_cls`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from turnwise_pictures import NEVER
from turnwise_receive import receive
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

MODEL_FILE, ADAPTER_FILE = "model.safetensors", "adapter_model.safetensors"
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def compute_checksum(tensor: torch.Tensor) -> int:
    """Return the trainer's sum of bit patterns, see `turnwise.models.checksums`."""
    return int(tensor.contiguous().view(-1).view(INTEGERS[tensor.element_size()]).sum(dtype=torch.int64))


def read_staged(folder: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a folder's manifest, by name.

    Raises ValueError if one is missing or has another dtype or shape, and what safetensors raises.
    """
    manifest = json.loads((folder / "manifest.json").read_text())
    path = next(path for path in (folder / ADAPTER_FILE, folder / MODEL_FILE) if path.exists())
    staged = {}
    with safe_open(str(path), framework="pt") as file:
        names = set(file.keys())
        for name, (dtype, shape) in manifest.items():
            if name not in names:
                raise ValueError(f"the staged weights lack {name}")
            tensor = file.get_tensor(name)
            if str(tensor.dtype) != dtype or list(tensor.shape) != shape:
                raise ValueError(
                    f"{name} is {tensor.dtype} {list(tensor.shape)}, but the manifest says {dtype} {shape}"
                )
            staged[name] = tensor
    return staged


class Loader:
    """Methods that `collective_rpc` calls in the worker."""

    model_runner: Any
    model_config: Any

    def turnwise_sum(self, folder: str) -> dict[str, int]:
        """Return the checksum of each tensor of a folder, read as by `read_staged`."""
        return {name: compute_checksum(tensor) for name, tensor in read_staged(Path(folder)).items()}

    def turnwise_stage(self, folder: str) -> dict[str, int]:
        """Read the weights of a folder as `read_staged` does, and hold them without loading. Returns the checksum of
        each."""
        self._staged = read_staged(Path(folder))
        return {name: compute_checksum(tensor) for name, tensor in self._staged.items()}

    def turnwise_receive(self, **fields: Any) -> dict[str, int]:
        """Receive weights from the trainer's broadcast (see `receive`) and hold them without loading. Returns the
        checksum of each."""
        self._staged = {}
        self._staged = receive(**fields)
        return {name: compute_checksum(tensor) for name, tensor in self._staged.items()}

    def turnwise_commit(self) -> None:
        """Load the staged weights. After an error the model is half loaded and must not be sampled from."""
        model, staged = self.model_runner.model, self.take_staged()
        initialize_layerwise_reload(model)
        model.load_weights(staged.items())
        finalize_layerwise_reload(model, self.model_config)
        for layer in model.modules():
            # A reload passes no weights to a tied output layer; on a CPU vLLM 0.32 would keep the packed copy that it
            # made of the old ones.
            if isinstance(layer, ParallelLMHead):
                layer.quant_method.process_weights_after_loading(layer)

    def turnwise_silence(self, token: int) -> None:
        """Never sample a token, and give it the probability that the trainer gives it."""
        model = self.model_runner.model
        compute = model.compute_logits

        def compute_silenced(*args: Any, **options: Any) -> Any:
            logits = compute(*args, **options)
            if logits is not None:
                logits[..., token] = NEVER
            return logits

        model.compute_logits = compute_silenced

    def take_staged(self) -> dict[str, torch.Tensor]:
        """Return the staged tensors and drop them here. Raises ValueError if nothing is staged."""
        staged, self._staged = self._staged, {}
        if not staged:
            raise ValueError("no weights are staged")
        return staged
