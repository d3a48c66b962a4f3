"""A model's tensors under the names, and in the pieces, that its checkpoints have: what other programs read.

transformers holds some models otherwise than their checkpoints, the experts of a layer in one tensor for example, and
takes that back when it saves them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from turnwise.models.lora import list_base


def list_hub_tensors(model: PreTrainedModel) -> Mapping[str, torch.Tensor]:
    """Every parameter and every buffer that is saved, by its name in a checkpoint; tied parameters once. Of a model
    with an adapter those of the model without it. What is held as it is saved is not copied."""
    tensors = dict(list_base(model))
    known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    tensors |= {name: value for name, value in model.state_dict().items() if name not in known}
    hub: dict[str, torch.Tensor] = revert_weight_conversion(model, tensors)
    return hub
