"""Stands in for vLLM's manager of adapters, with room for one."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from vllm import has_fault
from vllm.lora.request import LoRARequest

JOINED = {
    **dict.fromkeys(["q_proj", "k_proj", "v_proj"], "qkv_proj"),
    **dict.fromkeys(["gate_proj", "up_proj"], "gate_up_proj"),
}
"""The layer that vLLM makes of several; their order in it is that of the modules."""


class Layer:
    """Matrices beside the parts of a layer."""

    def __init__(self) -> None:
        self.lora_a_stacked: list[torch.Tensor] = []
        self.lora_b_stacked: list[torch.Tensor] = []


class Manager:
    """Adds B A x to what linear layers give."""

    def __init__(self, model: torch.nn.Module, *, max_rank: int, layers: list[str]) -> None:
        self.model, self.max_rank = model, max_rank
        self.modules: dict[str, Layer] = {}
        self.packed_modules: dict[str, list[str]] = {}
        self.lora_index_to_id: list[int | None] = [None]
        self.is_used = False
        wrapped = {JOINED.get(name, name) for name in layers} - ({"down_proj"} if has_fault("no_place") else set())
        for path, linear in model.named_modules():
            parent, _, name = path.rpartition(".")
            joined = JOINED.get(name, name)
            if isinstance(linear, torch.nn.Linear) and joined in wrapped:
                layer = self.modules.setdefault(f"{parent}.{joined}", Layer())
                if name in JOINED:
                    self.packed_modules.setdefault(f"{parent}.{joined}", []).append(path)
                self._make_room(layer, linear)

    def _make_room(self, layer: Layer, linear: torch.nn.Linear) -> None:
        dtype, index = linear.weight.dtype, len(layer.lora_a_stacked)
        layer.lora_a_stacked.append(torch.zeros(1, 1, self.max_rank, linear.in_features, dtype=dtype))
        layer.lora_b_stacked.append(torch.zeros(1, 1, linear.out_features, self.max_rank, dtype=dtype))

        def add(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
            if not self.is_used:
                return output
            a, b = layer.lora_a_stacked[index][0, 0], layer.lora_b_stacked[index][0, 0]
            return output + inputs[0] @ a.T @ b.T

        linear.register_forward_hook(add)

    def add(self, request: LoRARequest) -> bool:
        """As vLLM's: read the file, multiply B by alpha / rank, and put it into the one slot."""
        if has_fault("never_arrives"):
            self.lora_index_to_id[0] = request.lora_int_id - 1
            return True
        config = json.loads((Path(request.lora_path) / "adapter_config.json").read_text())
        if config["r"] > self.max_rank:
            raise ValueError(f"LoRA rank {config['r']} is greater than max_lora_rank {self.max_rank}")
        self.lora_index_to_id[0] = request.lora_int_id
        if has_fault("old_matrices"):
            return True
        scaling = 1.0 if has_fault("unscaled") else config["lora_alpha"] / config["r"]
        tensors = load_file(Path(request.lora_path) / "adapter_model.safetensors")
        if has_fault("dropped_matrix"):
            del tensors[next(name for name in tensors if "v_proj.lora_B" in name)]
        for path, layer in self.modules.items():
            for index, name in enumerate(self.packed_modules.get(path, [path])):
                for side, stacked, factor in (("A", layer.lora_a_stacked, 1), ("B", layer.lora_b_stacked, scaling)):
                    stacked[index].zero_()
                    tensor = tensors.get(f"base_model.model.{name}.lora_{side}.weight")
                    if tensor is not None:
                        rows, columns = tensor.shape
                        stacked[index][0, 0, :rows, :columns] = tensor.to(stacked[index].dtype) * factor
        return True

    def remove(self, number: int) -> bool:
        """As vLLM's: the slot is free, and nothing is overwritten."""
        has_it = number in self.lora_index_to_id
        if has_it:
            self.lora_index_to_id[0] = None
        return has_it

    def use(self, request: LoRARequest | None) -> None:
        """What comes next is for this adapter. vLLM would load one that it does not have."""
        self.is_used = request is not None
        if request is not None and self.lora_index_to_id != [request.lora_int_id]:
            self.add(request)
