"""A copy of weights and optimizer moments that can be put back."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from turnwise.training.optimizer import Trained, list_trained


class Snapshot:
    """The weights and moments of some models at the time it was made."""

    @torch.no_grad()
    def __init__(self, models: Iterable[Trained]) -> None:
        self._models = list(models)
        self._weights = [[p.detach().clone() for p in list_trained(model.module).values()] for model in self._models]
        self._moments = [
            {
                p: {key: value.clone() if torch.is_tensor(value) else value for key, value in state.items()}
                for p, state in model.optimizer.state.items()
            }
            for model in self._models
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Restore weights and moments in place and drop all gradients. Use it once: it gives the moments away."""
        for model, weights, moments in zip(self._models, self._weights, self._moments, strict=True):
            for parameter, weight in zip(list_trained(model.module).values(), weights, strict=True):
                parameter.copy_(weight)
            model.optimizer.state.clear()
            model.optimizer.state.update(moments)
            model.optimizer.zero_grad(set_to_none=True)
