"""The default engine: cache pages shared by what conversations have in common."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.engine_kinds.kind import EngineKind, EngineOptions
from turnwise.core.errors import ConfigError


class PagedBase(EngineOptions):
    """Options of engines with a paged cache."""

    max_batch_tokens: int = Field(1024, ge=8)
    """Most tokens of one step; longer prompts are computed in chunks. On a CPU more only costs memory; a GPU wants 8192
    or so."""
    fused: bool = True
    """Packed weights where the model's family has them, a few millionths off the model's own modules; else the
    modules."""
    attention: Literal["gather", "flex"] = "gather"
    """"gather" copies the cache pages a step attends to; "flex" reads them in place with kernels that torch compiles
    for a GPU. On a CPU "flex" is slow. What is sampled is the same up to rounding."""
    max_draft_tokens: int = Field(0, ge=0, le=32)
    """Most tokens of a reply proposed at once from what the members of its group wrote; what is sampled stays the
    same."""


class PagedOptions(PagedBase):
    """Options of engine.kind = "paged"."""

    cuda_graphs: bool = False
    """With attention = "flex", fused = true and a GPU: steps that only decode are recorded once for every batch size
    and repeated, so that the GPU does not wait for Python; recorded anew when the weights change."""

    def check(self, *, device: str, num_threads: int) -> None:
        """Graphs need "flex", packed weights and a GPU."""
        if self.cuda_graphs and (self.attention != "flex" or not self.fused):
            raise ConfigError(
                "engine.options.cuda_graphs=true records steps of attention='flex' and fused=true; here they are "
                f"{self.attention!r} and {str(self.fused).lower()}"
            )
        if self.cuda_graphs and device != "cuda":
            raise ConfigError(
                f"engine.options.cuda_graphs=true with a model on {device}: graphs are recorded on a GPU; use "
                "engine.options.cuda_graphs=false or model.device='cuda'"
            )


PAGED = EngineKind(name="paged", options=PagedOptions, records_experts=True, has_checked_steps=True)
