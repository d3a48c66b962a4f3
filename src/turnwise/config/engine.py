"""The sampler."""

from __future__ import annotations

from pydantic import Field

from turnwise.config.section import Section


class EngineSection(Section):
    """The engine that samples replies, in this process, on the trainer's own parameters."""

    max_concurrency: int = Field(256, ge=1)
    """Conversations open at once; each holds a cache slot."""
    max_context: int = Field(1024, ge=2)
    """Tokens a cache slot can hold."""
    max_batch_tokens: int = Field(8192, ge=8)
    """Most tokens of one engine step; longer prompts are computed in chunks."""
    num_threads: int = Field(1, ge=0)
    """Threads while sampling; 0 is all cores. With 1, what is sampled does not depend on timing, bit for bit."""
