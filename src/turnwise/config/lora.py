"""Options of an adapter: LoRA (arXiv 2106.09685) instead of training all weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.section import Section

VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM can make room for; an adapter of another rank has the room of the next one."""


class LoraSection(Section):
    """Low-rank matrices beside the model's linear layers are trained; the model's own weights stay as they are."""

    rank: int = Field(16, ge=1)
    """Rows of the matrix A and columns of B; a layer of `K` inputs and `N` outputs trains `rank * (K + N)` numbers."""
    alpha: float = Field(32.0, gt=0)
    """Scale: the adapter adds `alpha / rank * B A x`."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the adapter's inputs that supervised steps set to 0. Reinforcement learning and preferences compare
    log-probabilities with those of the sampling policy, so they train without dropout."""
    target_modules: Literal["all-linear"] | list[str] = "all-linear"
    """Last parts of the names of the linear layers that get an adapter; "all-linear" means all except the output
    layer."""
    path: str = ""
    """Folder of an adapter in peft's format to start from, with its own rank, alpha and layers; if empty, training
    starts from an adapter that adds nothing."""
