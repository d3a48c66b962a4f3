"""Options of the engine that samples replies."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class EngineSection(Section):
    """The engine, which samples with the trainer's own parameters."""

    kind: Literal["local", "paged"] = "paged"
    """"paged" shares cache pages between conversations that begin alike. "local" is the plain reference, with a cache
    slot per conversation."""
    fused: bool = True
    """"paged" only: run the fused decoder if the model's family has one, which differs from the model's modules by a
    few millionths. False runs the modules."""
    attention: Literal["gather", "flex"] = "gather"
    """"paged" only: "gather" copies the cache pages a step attends to; "flex" reads them in place with kernels that
    torch compiles for a GPU. "flex" is untested on a GPU and slow on a CPU. Both sample the same up to rounding."""
    cuda_graphs: bool = False
    """Record the decoding steps of each batch size and repeat them, so that the GPU does not wait for Python; they are
    recorded again when the weights change. Needs attention = "flex", fused = true and a GPU; untested on a GPU."""
    max_draft_tokens: int = Field(0, ge=0, le=32)
    """"paged" only: most tokens of a reply drafted at once from what the members of its group wrote. Samples stay the
    same."""
    max_concurrency: int = Field(256, ge=1)
    """Most conversations open at once."""
    max_context: int = Field(1024, ge=2)
    """Most tokens of a conversation."""
    max_batch_tokens: int = Field(1024, ge=8)
    """Most tokens of one engine step; longer prompts are computed in chunks. On a CPU more only cost memory; a GPU
    needs about 8192."""
    num_workers: int = Field(1, ge=1)
    """"paged" only: number of processes that sample, each on one thread and with its share of `max_concurrency`, with
    weights in memory shared with the trainer (CPU only). 1 samples in the trainer's process. Samples stay the same."""
    num_threads: int = Field(1, ge=0)
    """Threads while sampling; 0 is all cores. With 1, samples do not depend on timing, bit for bit."""
