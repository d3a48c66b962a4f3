"""The sampler."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class EngineSection(Section):
    """The engine that samples replies."""

    kind: str = "paged"
    """"paged": cache pages shared by what several conversations have in common. "workers": the same in several
    processes on the CPU. "local": the plain one, with a cache slot per conversation. "vllm": vLLM in processes of an
    interpreter of its own. "server": vLLM or SGLang servers that run already. Any other engine: a name that an
    installed package offers, or the import path "package.module:NAME" of its row or function (docs/extending.md)."""
    max_concurrency: int = Field(256, ge=1)
    """Conversations open at once."""
    max_context: int = Field(1024, ge=2)
    """Tokens a conversation can have."""
    num_threads: int = Field(1, ge=0)
    """Threads of the engine's arithmetic; 0 is one per core. With 1, what is sampled does not depend on timing, bit for
    bit. Every worker has one."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of this kind of engine, see `config/engine_kinds/`; it refuses those that it does not have."""
