"""Checks that a mixture-of-experts policy can repeat how its samples were routed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnwise.core.errors import TrainingError
from turnwise.core.types import Sample
from turnwise.models.routing import find_routing, is_attached


def check_routing(model: torch.nn.Module, samples: Sequence[Sample]) -> None:
    """Raise TrainingError if a sample does not record which of the policy's experts computed it, or if the policy's
    routers cannot repeat them.

    A dense model passes, and so does a mixture whose experts are not recorded.
    """
    shape = find_routing(model)
    if shape is None:
        return
    if not is_attached(model):
        raise TrainingError(
            "the routers of the policy cannot replay recorded experts; build it with models.build, or call "
            "models.experts.prepare_experts"
        )
    wanted = (shape.num_layers, shape.num_chosen)
    for sample in samples:
        given = None if sample.experts is None else sample.experts.shape[1:]
        if given != wanted:
            raise TrainingError(
                f"the policy uses {wanted[1]} experts in each of {wanted[0]} layers, but trajectory "
                f"{sample.origin.trajectory} recorded {given or 'none'}: the step would train other experts than the "
                "sampler used. Use an engine that records them, engine.kind='paged' or 'workers'"
            )
