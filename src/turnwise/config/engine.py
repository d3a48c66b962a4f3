"""The sampler."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.section import Section


class EngineSection(Section):
    """The engine that samples replies, on the trainer's own parameters."""

    kind: Literal["local", "paged"] = "paged"
    """"paged": cache pages shared by what several conversations have in common. "local": a cache slot per conversation,
    the plain one."""
    fused: bool = True
    """"paged" only: packed weights where the model's family has them, a few millionths off the model's own modules;
    else the modules."""
    attention: Literal["gather", "flex"] = "gather"
    """"paged" only: "gather" copies the cache pages a step attends to; "flex" reads them in place with kernels torch
    compiles for a GPU, on which it has not been tried yet. On a CPU "flex" is slow. What is sampled is the same but for
    rounding."""
    cuda_graphs: bool = False
    """With attention = "flex", fused = true and a GPU, where it has not been tried yet: steps that only decode are
    recorded once for every batch size and repeated, so that the GPU does not wait for Python; recorded anew when the
    weights change."""
    max_draft_tokens: int = Field(0, ge=0, le=32)
    """"paged" only: most tokens of a reply proposed at once from what the members of its group wrote; what is sampled
    stays the same."""
    max_concurrency: int = Field(256, ge=1)
    """Conversations open at once."""
    max_context: int = Field(1024, ge=2)
    """Tokens a conversation can have."""
    max_batch_tokens: int = Field(1024, ge=8)
    """Most tokens of one engine step; longer prompts are computed in chunks. On a CPU more only costs memory; a GPU
    wants 8192 or so."""
    num_workers: int = Field(1, ge=1)
    """"paged" only: processes that sample, each on one thread and with its share of `max_concurrency`; they read the
    weights from memory shared with the trainer (CPU). 1 samples in this process. What is sampled stays the same."""
    num_threads: int = Field(1, ge=0)
    """Threads while sampling; 0 is all cores. With 1, what is sampled does not depend on timing, bit for bit."""
