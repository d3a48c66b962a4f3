"""The one adapter of an engine: replaced under a new id for every version, and compared with the staged tensors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from turnwise_loader import Loader
from vllm.lora.request import LoRARequest
from vllm.lora.utils import parse_fine_tuned_lora_name


class Adapter:
    """The adapter that requests name. vLLM keys its prefix cache by the name, so nothing that an older version computed
    is read."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._number = 0
        self.request: LoRARequest | None = None
        """None before the first version."""

    def replace(self, folder: str) -> None:
        """Load the adapter of a folder, which is also staged, replacing the previous one.

        Raises RuntimeError if vLLM holds another adapter afterwards, or computes with other tensors.
        """
        if self.request is not None:
            self._engine.remove_lora(self._number)
        self._number += 1
        self.request = LoRARequest(str(self._number), self._number, folder)
        self._engine.add_lora(self.request)
        held = sorted(self._engine.list_loras())
        if held != [self._number]:
            raise RuntimeError(f"vLLM holds the adapters {held} instead of only {self._number}")
        self._engine.collective_rpc("turnwise_check_adapter", args=(folder, self._number))


class AdapterLoader(Loader):
    """Methods that `collective_rpc` calls in the worker if the engine has an adapter."""

    def turnwise_check_adapter(self, folder: str, number: int) -> None:
        """Compare every matrix that the layers compute with, bit for bit, with the staged tensors of a folder, and drop
        these.

        Raises RuntimeError naming a matrix that differs, or a staged one that no layer computes with.
        """
        manager, wanted = self.model_runner.lora_manager._adapter_manager, {}
        for name, tensor in self.take_staged().items():
            layer, is_a = parse_fine_tuned_lora_name(name, find_mapper(manager.model))
            wanted[f"{'A' if is_a else 'B'} of {layer}"] = tensor
        slot, scaling = manager.lora_index_to_id.index(number), read_scaling(Path(folder))
        for path, module in manager.modules.items():
            for index, layer in enumerate(manager.packed_modules.get(path, [path])):
                # vLLM multiplies B by alpha / rank when it loads it.
                for side, stacked, factor in (("A", module.lora_a_stacked, 1), ("B", module.lora_b_stacked, scaling)):
                    name, loaded = f"{side} of {layer}", stacked[index][slot, 0]
                    if not torch.equal(loaded, build_matrix(loaded, wanted.pop(name, None)) * factor):
                        raise RuntimeError(f"the values of {name} in vLLM differ from the staged ones")
        for name in wanted:
            raise RuntimeError(f"vLLM has no module for {name}; leave the layer out of the adapter")


def read_scaling(folder: Path) -> float:
    """Return the factor of the product of B and A."""
    config = json.loads((folder / "adapter_config.json").read_text())
    return float(config["lora_alpha"] / (math.sqrt(config["r"]) if config.get("use_rslora") else config["r"]))


def find_mapper(model: Any) -> Any:
    """Return the mapper from Hugging Face's layer names to vLLM's; None if they are the same."""
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    return None if mapper is None else mapper.get_rename_mapper()


def build_matrix(like: torch.Tensor, tensor: torch.Tensor | None) -> torch.Tensor:
    """Return a matrix of the shape and dtype of `like` with `tensor` in its upper left corner and zeros elsewhere."""
    matrix = torch.zeros_like(like)
    if tensor is not None:
        matrix[: tensor.shape[0], : tensor.shape[1]] = tensor
    return matrix
