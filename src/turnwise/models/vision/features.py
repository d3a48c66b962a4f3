"""What a model's tower makes of a picture: the rows that stand in for the embeddings of its places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Features:
    """One row per place of one or several pictures."""

    rows: torch.Tensor
    """`[n, H]`, in place of the embeddings of the places."""
    deep: tuple[torch.Tensor, ...] = ()
    """`[n, H]` each, added to the hidden states of the places after the first layers, one per layer (DeepStack, arXiv
    2406.04334); empty for models without."""

    def take(self, index: torch.Tensor) -> Features:
        """Return the rows at `index [P]`, which may repeat. Differentiable."""
        return Features(rows=self.rows[index], deep=tuple(layer[index] for layer in self.deep))


def join_features(parts: Sequence[Features]) -> Features:
    """Return the rows of several pictures, one after the other. `parts` is not empty."""
    return Features(
        rows=torch.cat([part.rows for part in parts]),
        deep=tuple(torch.cat(layers) for layers in zip(*(part.deep for part in parts), strict=True)),
    )
