"""The default engine: cache pages shared by what conversations have in common."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.engine_kinds.kind import EngineKind, EngineOptions
from turnwise.core.errors import ConfigError


class PagedBase(EngineOptions):
    """Options of engines with a paged cache."""

    max_batch_tokens: int = Field(1024, ge=8)
    """Maximum number of tokens per step; longer prompts are computed in chunks. On a CPU a higher value only costs
    memory; on a GPU use about 8192."""
    fused: bool = True
    """Use packed weights if the model's family has them, which differ from the model's own modules by a few millionths;
    otherwise the modules."""
    attention: Literal["gather", "flex"] = "gather"
    """"gather" copies the cache pages that a step attends to; "flex" reads them in place with kernels that torch
    compiles for a GPU. On a CPU "flex" is slow. Samples are the same up to rounding."""
    max_draft_tokens: int = Field(0, ge=0, le=32)
    """Maximum number of tokens proposed at once from other replies of the group; samples stay the same."""


class PagedOptions(PagedBase):
    """Options of engine.kind = "paged"."""

    cuda_graphs: bool = False
    """With attention = "flex", fused = true and a GPU: record steps that only decode once for every batch size and
    replay them, so that the GPU does not wait for Python; recorded again when the weights change."""

    encode_ahead: bool = False
    """Encode the pictures of arriving requests in a thread of its own while steps are computed. Pays where a core is
    idle and most pictures are shown once; samples stay the same."""

    def check(self, *, device: str, num_threads: int) -> None:
        """Graphs need "flex", packed weights and a GPU."""
        if self.cuda_graphs and (self.attention != "flex" or not self.fused):
            raise ConfigError(
                "engine.options.cuda_graphs=true needs attention='flex' and fused=true; here they are "
                f"{self.attention!r} and {str(self.fused).lower()}"
            )
        if self.cuda_graphs and device != "cuda":
            raise ConfigError(
                f"engine.options.cuda_graphs=true with a model on {device}: graphs need a GPU; use "
                "engine.options.cuda_graphs=false or model.device='cuda'"
            )


PAGED = EngineKind(name="paged", options=PagedOptions, records_experts=True, reads_images=True, has_checked_steps=True)
