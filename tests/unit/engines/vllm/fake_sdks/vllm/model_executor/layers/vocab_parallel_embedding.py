"""Stands in for vLLM's module of that name."""

import torch

from vllm import has_fault


class ParallelLMHead(torch.nn.Module):
    """An output layer that keeps a copy of a tied embedding, as vLLM's packed one does on a CPU."""

    def __init__(self, weight: torch.nn.Parameter) -> None:
        super().__init__()
        self.tied = weight
        self.packed = weight.detach().clone()

    @property
    def quant_method(self) -> "ParallelLMHead":
        """What packs."""
        return self

    def process_weights_after_loading(self, layer: "ParallelLMHead") -> None:
        """Copy the weights."""
        if not has_fault("stale_head"):
            layer.packed = layer.tied.detach().clone()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return hidden @ self.packed.T
