"""The models of each kind that every test run tries; the others are slow as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

SLICE = {
    "qwen3": "plain",
    "mistral": "sliding window",
    "gemma2": "soft cap and window",
    "gpt_oss": "attention sinks",
    "qwen3_moe": "mixture of experts",
    "deepseek_v3": "multi-head latent attention",
    "lfm2": "convolutions and attention",
    "qwen3_5_text": "linear attention and attention",
    "mamba2": "state space",
    "bloom": "ALiBi",
    "llama dynamic": "rope that depends on the length",
    "phi3 longrope": "rope with two sets of frequencies",
    "bert": "encoder",
}
"""One of each kind, and the kind."""


def mark_names(names: Iterable[str]) -> list[Any]:
    """Parameters of a test: all names, those outside the slice marked slow."""
    return [name if name in SLICE else pytest.param(name, marks=pytest.mark.slow) for name in names]
