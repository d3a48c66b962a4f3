"""The plain engine, the reference for the others: a cache slot per conversation."""

from __future__ import annotations

from pydantic import Field

from turnwise.config.engine_kinds.kind import EngineKind, EngineOptions, Footprint


class LocalOptions(EngineOptions):
    """Options of engine.kind = "local"."""

    max_batch_tokens: int = Field(1024, ge=8)
    """Maximum number of tokens per step; longer prompts are computed in chunks."""


LOCAL = EngineKind(
    name="local",
    options=LocalOptions,
    records_experts=False,
    follows_grammars=False,
    reads_images=True,
    predict=lambda options: Footprint(has_pages=False),
)
