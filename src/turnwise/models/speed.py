"""How fast a machine computes a model; `models/calibration.py` measures it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What a machine does per second on matrices of a model's sizes."""

    training: float
    """Floating-point operations of forward and backward passes."""
    sampling: float
    """Floating-point operations of forward passes over one token per conversation."""
    optimizer: float
    """Parameters that AdamW changes."""
