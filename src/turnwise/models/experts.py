"""Computes the experts of a mixture, as batch-invariantly as attention (`models.invariant`).

An expert computes the tokens that chose it, however few. Matrix kernels may round the rows of very small products
differently, so each product is padded to `MIN_BATCH_ROWS` rows: on a CPU in float32 with one thread a token has the
same bits in any batch. Elsewhere transformers' own kernels run."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from turnwise.models.invariant import MIN_BATCH_ROWS
from turnwise.models.routing import attach_routing, find_routing, is_mixture

EXPERTS_NAME = "turnwise"
OTHER_EXPERTS = ("gpt_oss",)
"""Architectures whose experts have biases and clamps, which only their own code computes."""


def compute_experts(experts: Any, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Compute the sum `[T, H]` of the outputs of experts `chosen [T, k]` for `hidden [T, H]`, weighted by gate `weights
    [T, k]`.

    `experts` is a transformers module with `gate_up_proj [experts, 2 I, H]` and `down_proj [experts, H, I]`.
    """
    num_tokens, num_chosen = chosen.shape
    flat = chosen.reshape(-1)
    order = flat.argsort(stable=True)
    counts = flat.bincount(minlength=experts.num_experts).tolist()
    parts = hidden[order // num_chosen].split(counts)
    done = torch.cat([_compute_expert(experts, index, rows) for index, rows in enumerate(parts) if len(rows)])
    weighted = done[order.argsort()] * weights.reshape(-1, 1)
    return weighted.view(num_tokens, num_chosen, -1).sum(1).to(hidden.dtype)


def _compute_expert(experts: Any, index: int, rows: torch.Tensor) -> torch.Tensor:
    filled = functional.pad(rows, (0, 0, 0, max(0, MIN_BATCH_ROWS - len(rows))))
    gate, up = functional.linear(filled, experts.gate_up_proj[index]).chunk(2, dim=-1)
    return functional.linear(experts.act_fn(gate) * up, experts.down_proj[index])[: len(rows)]


def prepare_experts(model: PreTrainedModel, device: torch.device) -> None:
    """Let the routers of a model that will be on `device` follow the keyword `routing`, and, on a CPU, its experts
    compute each token with the same bits in any batch. Called wherever a model is built; dense models are left
    unchanged."""
    attach_routing(model)
    kind = model.config.get_text_config().model_type
    if find_routing(model) is not None and device.type == "cpu" and kind not in OTHER_EXPERTS:
        register_experts()
        model.set_experts_implementation(EXPERTS_NAME)
    elif is_mixture(model) and model.dtype == torch.float64:
        model.set_experts_implementation("eager")  # the grouped kernels support shorter formats


def register_experts() -> None:
    """Register `experts_implementation="turnwise"` with transformers. Idempotent."""
    ALL_EXPERTS_FUNCTIONS.register(EXPERTS_NAME, compute_experts)
