"""The sampler."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class EngineSection(Section):
    """The engine that samples replies."""

    kind: str = "paged"
    """"paged": conversations share the cache pages of their common prefix. "workers": the same in several processes on
    the CPU. "local": the plain engine, with a cache slot per conversation. "vllm": vLLM in separate processes with its
    own interpreter. "server": vLLM or SGLang servers that are already running. Any other engine: a name provided by an
    installed package, or the import path "package.module:NAME" of its row or function (docs/extending.md)."""
    max_concurrency: int = Field(256, ge=1)
    """Maximum number of open conversations."""
    max_context: int = Field(1024, ge=2)
    """Maximum number of tokens per conversation."""
    num_threads: int = Field(1, ge=0)
    """Threads for the engine's arithmetic; 0 is one per core. With 1, samples do not depend on timing, bit for bit.
    Every worker uses one."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of this kind of engine, see `config/engine_kinds/`; unknown ones are rejected."""
