"""Measures the sizes of a model's attention by running it on two tokens: what a key-value cache has to store."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from turnwise.models.attention import PLAIN, PackedAttention, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """Sizes of one layer's attention; keys and values may differ (multi-head latent attention, arXiv 2405.04434)."""

    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    """Number of keys that a token sees; None: all before it."""
    is_plain: bool = True
    """Whether there is neither a soft cap nor a sink (`models.attention.Rules`)."""

    @property
    def token_size(self) -> int:
        """Numbers stored per token: keys and values of all heads."""
        return self.num_kv_heads * (self.key_dim + self.value_dim)

    @property
    def repeats(self) -> int:
        """Number of query heads that share one key head."""
        return self.num_heads // self.num_kv_heads


class _Measuring(PackedAttention):
    """Attends, and records the sizes of every layer that does."""

    def __init__(self, lengths: list[int]) -> None:
        super().__init__(lengths)
        self.shapes: dict[int, LayerShape] = {}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        rules: Rules = PLAIN,
    ) -> torch.Tensor:
        """See `AttentionPlan`."""
        self.shapes[layer] = LayerShape(
            num_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            key_dim=key.shape[2],
            value_dim=value.shape[2],
            window=rules.window,
            is_plain=rules.is_plain,
        )
        return super().attend(layer, query, key, value, scaling, rules)


@torch.inference_mode()
def measure_layers(model: PreTrainedModel) -> tuple[LayerShape, ...]:
    """Return the shape of each layer of a model that runs with Turnwise's attention, by `layer_idx`; an index without a
    layer repeats the one before it."""
    plan = _Measuring([2])
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    model(input_ids=ids, position_ids=torch.arange(2, device=model.device)[None], use_cache=False, attention_plan=plan)
    shapes = plan.shapes
    found: list[LayerShape] = []
    for index in range(max(shapes) + 1):
        found.append(shapes.get(index) or (found[-1] if found else shapes[min(shapes)]))
    return tuple(found)
