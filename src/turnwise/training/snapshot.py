"""A copy of weights, their masters and optimizer moments that can be put back."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from turnwise.training.masters import find_master, round_masters
from turnwise.training.optimizer import Trained, list_trained


class Snapshot:
    """The weights and moments of some models when the snapshot was taken."""

    @torch.no_grad()
    def __init__(self, models: Iterable[Trained]) -> None:
        self._models = list(models)
        self._weights = [
            [find_master(p).detach().clone() for p in list_trained(model.module).values()] for model in self._models
        ]
        self._moments = [
            {
                p: {key: value.clone() if torch.is_tensor(value) else value for key, value in state.items()}
                for p, state in model.optimizer.state.items()
            }
            for model in self._models
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Restore weights and moments in place and drop all gradients. Use it once: the moments are handed over, not
        copied."""
        for model, weights, moments in zip(self._models, self._weights, self._moments, strict=True):
            trained = list_trained(model.module).values()
            for parameter, weight in zip(trained, weights, strict=True):
                find_master(parameter).copy_(weight)
            round_masters(trained)
            model.optimizer.state.clear()
            model.optimizer.state.update(moments)
            model.optimizer.zero_grad(set_to_none=True)
