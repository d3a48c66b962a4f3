"""Lists a model's tensors under the names, and in the pieces, of its checkpoints, which other programs read.

transformers represents some models differently from their checkpoints, for example all experts of a layer in one
tensor, and reverses that when it saves them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from turnwise.models.lora import list_base


def list_hub_tensors(model: PreTrainedModel) -> Mapping[str, torch.Tensor]:
    """Return every parameter and every saved buffer, by its name in a checkpoint; tied parameters once. For a model
    with an adapter, those of the model without it. Tensors that are saved unchanged are not copied."""
    tensors = dict(list_base(model))
    known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    tensors |= {name: value for name, value in model.state_dict().items() if name not in known}
    hub: dict[str, torch.Tensor] = revert_weight_conversion(model, tensors)
    return hub
