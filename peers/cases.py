"""What a peer's function gave for one input: the unit of comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call of one function of a peer."""

    name: str
    """`<peer>/<function>/<variant>`, unique."""
    function: str
    """Import path within the peer."""
    batch: str | None
    """Which of `batches.BATCHES` went in; None where `inputs` say everything."""
    outputs: Mapping[str, NDArray[np.float64]]
    """Numbers the peer returned. `gradient` is that of `value` with respect to the policy's log-probabilities."""
    options: Mapping[str, object] = field(default_factory=dict)
    """As passed, by the peer's names."""
    inputs: Mapping[str, object] = field(default_factory=dict)
    """Further inputs, as JSON."""


def to_torch(array: NDArray[np.generic]) -> torch.Tensor:
    """A tensor of its own memory (peers write into their arguments)."""
    return torch.from_numpy(array.copy())


def to_numpy(tensor: torch.Tensor) -> NDArray[np.float64]:
    """Float64, detached."""
    return tensor.detach().to(torch.float64).numpy().copy()
