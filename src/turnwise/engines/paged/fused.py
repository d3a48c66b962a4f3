"""Runs the Qwen, Llama and Mistral families without their modules: the same function of the same parameters in fewer,
larger operations.

Query, key and value weights are one matrix, so are gate and up; the rotary embedding is one complex product; residuals
are added by the matrix product itself. On CPU in float32 the matrices are also packed for oneDNN, which on processors
where PyTorch's default library has no wide-vector kernels is about twice as fast, and attention reads pages that
requests share once (`cascade.py`). The packed copy takes as much memory as the weights and is renewed when they change;
an adapter is merged into it. Results agree with the modules to rounding (a few millionths in a log-probability), not in
every bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from turnwise.engines.paged.attention import PagedPlan
from turnwise.models.attention import PLAIN, Rules
from turnwise.models.checksums import compute_checksum
from turnwise.models.lora import compute_merged_weight
from turnwise.models.shapes import LayerShape

FAMILIES = ("qwen3", "llama", "qwen2", "mistral")
PACKED_MODULES = frozenset(
    {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "q_norm", "k_norm", "lm_head"}
)
"""Modules whose parameters are copied; those of other modules (embedding, norms) are read in place."""

Product = Callable[[torch.Tensor], torch.Tensor]
ResidualProduct = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Layer:
    """One decoder layer, packed."""

    norm_in: torch.Tensor
    qkv: Product
    norm_heads: torch.Tensor | None
    """`[heads + kv_heads, D]` weights of the query and key norms; None in families without."""
    out: ResidualProduct
    norm_mlp: torch.Tensor
    gate_up: Product
    down: ResidualProduct


class FusedDecoder:
    """A packed snapshot of one model's weights."""

    def __init__(self, model: PreTrainedModel, layers: Sequence[LayerShape], *, max_context: int) -> None:
        """Pack the weights. `layers` are those of `measure_layers(model)`, and `why_not(model, layers)` must be
        None."""
        config = model.config
        self._shape = layers[0]
        self._rules = [PLAIN if shape.window is None else Rules(window=shape.window) for shape in layers]
        self.packed_checksums = {
            name: compute_checksum(parameter)
            for name, parameter in model.named_parameters()
            if any(part in PACKED_MODULES for part in name.split(".")) or parameter is model.lm_head.weight
        }
        """Checksums of the weights copied below, taken when they were packed, by parameter name."""
        self._epsilon = float(config.rms_norm_eps)
        body: Any = model.model
        with torch.no_grad():
            self._embedding = model.get_input_embeddings().weight
            self._layers = [self._pack_layer(layer) for layer in body.layers]
            self._norm_out = body.norm.weight
            self._head = build_product(compute_merged_weight(model.lm_head), model.lm_head.bias)
            frequencies = body.rotary_emb.inv_freq.float()
            angles = torch.arange(max_context, device=frequencies.device).float()[:, None] * frequencies
            scale = torch.full_like(angles, float(body.rotary_emb.attention_scaling))
            self._rotations = torch.polar(scale, angles)[:, None, :]

    def run(
        self, token_ids: torch.Tensor, positions: torch.Tensor, plan: PagedPlan, rows: torch.Tensor
    ) -> torch.Tensor:
        """Compute the logits `[len(rows), V]` of the flat batch's `rows` from `token_ids [T]` and `positions [T]`."""
        heads, kv_heads, dim = self._shape.num_heads, self._shape.num_kv_heads, self._shape.key_dim
        count = len(token_ids)
        scaling = dim**-0.5
        rotations = self._rotations[positions]
        hidden = functional.embedding(token_ids, self._embedding)
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(self._norm(hidden, layer.norm_in))
            turning = qkv.view(count, heads + 2 * kv_heads, dim)[:, : heads + kv_heads]
            if layer.norm_heads is not None:
                turning = self._norm(turning, layer.norm_heads)
            pairs = torch.view_as_complex(_widen(turning).reshape(count, heads + kv_heads, dim // 2, 2))
            turned = torch.view_as_real(pairs * rotations).view(count, heads + kv_heads, dim).to(hidden.dtype)
            plan.write(
                index, torch.cat([turned[:, heads:].reshape(count, -1), qkv[:, (heads + kv_heads) * dim :]], dim=1)
            )
            attended = plan.read(index, turned[:, :heads], scaling, self._rules[index])
            hidden = layer.out(attended.view(count, -1), hidden)
            gate_up = layer.gate_up(self._norm(hidden, layer.norm_mlp))
            half = gate_up.shape[1] // 2
            hidden = layer.down(functional.silu(gate_up[:, :half]) * gate_up[:, half:], hidden)
        return self._head(self._norm(hidden.index_select(0, rows), self._norm_out))

    def _norm(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Apply the root-mean-square norm over the last dimension."""
        wide = _widen(hidden)
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self._epsilon)).to(hidden.dtype) * weight

    def _pack_layer(self, layer: Any) -> _Layer:
        heads, kv_heads, dim = self._shape.num_heads, self._shape.num_kv_heads, self._shape.key_dim
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        # Rotary pairs (i, i + D/2) become neighbours, so that a pair is one complex number.
        device = self._embedding.device
        order = torch.arange(dim, device=device).view(2, -1).t().reshape(-1)
        turned = heads + kv_heads
        rows = torch.arange((turned + kv_heads) * dim, device=device)
        rows[: turned * dim] = (torch.arange(turned, device=device)[:, None] * dim + order).reshape(-1)
        bias = None if attention.q_proj.bias is None else torch.cat([p.bias for p in projections])[rows]
        norm_heads = None
        if getattr(attention, "q_norm", None) is not None:
            norm_heads = torch.cat(
                [
                    attention.q_norm.weight[order].expand(heads, -1),
                    attention.k_norm.weight[order].expand(kv_heads, -1),
                ]
            )
        return _Layer(
            norm_in=layer.input_layernorm.weight,
            qkv=build_product(torch.cat([compute_merged_weight(p) for p in projections])[rows], bias),
            norm_heads=norm_heads,
            out=build_residual_product(compute_merged_weight(attention.o_proj), attention.o_proj.bias),
            norm_mlp=layer.post_attention_layernorm.weight,
            gate_up=build_product(torch.cat([compute_merged_weight(p) for p in (mlp.gate_proj, mlp.up_proj)]), None),
            down=build_residual_product(compute_merged_weight(mlp.down_proj), None),
        )


def why_not(model: PreTrainedModel, layers: Sequence[LayerShape]) -> str | None:
    """Return why this model with these measured layers cannot run fused, or None if it can."""
    config = model.config
    rope = getattr(config, "rope_parameters", None) or {}
    if config.model_type not in FAMILIES:
        return f"model_type {config.model_type!r} is not one of {', '.join(FAMILIES)}"
    if config.hidden_act != "silu" or getattr(config, "mlp_bias", False):
        return (
            f"hidden_act={config.hidden_act!r}, mlp_bias={getattr(config, 'mlp_bias', False)} are not silu without bias"
        )
    if rope.get("rope_type", "default") not in ("default", "linear", "llama3", "yarn"):
        return f"rope_type {rope.get('rope_type')!r} changes with the length"
    first = layers[0]
    if any(replace(shape, window=None) != replace(first, window=None) or not shape.is_plain for shape in layers):
        return "its layers use several attention shapes, with soft caps or sinks"
    return None


def _widen(values: torch.Tensor) -> torch.Tensor:
    """Widen to float32, as the modules do for norms and rotations; float64 stays."""
    return values if values.dtype == torch.float64 else values.float()


def _packs(weight: torch.Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and torch.backends.mkldnn.is_available()


def build_product(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    """Return the product `x [T, K]` to `x @ weight.T + bias [T, N]`, for `weight [N, K]`. The weight is packed where
    that is faster, else it is the parameter itself."""
    if not _packs(weight):
        return lambda x: functional.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    product = torch.ops.mkldnn._linear_pointwise
    return lambda x: product(x, packed, bias, "none", [], "")


def build_residual_product(weight: torch.Tensor, bias: torch.Tensor | None) -> ResidualProduct:
    """Return the product `x [T, K]`, `residual [T, N]` to `residual + x @ weight.T + bias [T, N]`."""
    if not _packs(weight):
        return lambda x, residual: functional.linear(x, weight, bias) + residual
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    product = torch.ops.mkldnn._linear_pointwise.binary
    return lambda x, residual: product(x, residual, packed, bias, "add")
