"""vLLM or SGLang servers that run already, by URL."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.engine_kinds.kind import EngineKind, EngineOptions, Footprint
from turnwise.core.errors import ConfigError


class ServerOptions(EngineOptions):
    """Options of engine.kind = "server"."""

    urls: list[str] = Field(min_length=1)
    """Of servers that run and are this run's alone: `http(s)://host:port`, or `unix:/path/of/socket`."""
    speaks: Literal["vllm", "sglang"] = "vllm"
    """What they are."""
    staging: str | None = None
    """Folder where weights are written, under one path for this process and the servers; None is shared memory of this
    machine."""
    timeout_s: float = Field(600.0, gt=0)
    """Most seconds that a server takes for one answer, and that a request waits for a server that is away."""

    def check(self, *, device: str, num_threads: int) -> None:
        """Addresses must be some, each once."""
        for url in self.urls:
            if not url.startswith(("http://", "https://", "unix:/")) or "@" in url:
                raise ConfigError(
                    f"engine.options.urls has {url!r}; it must be http(s)://host:port or unix:/path/of/socket, and a "
                    "key is read from OPENAI_API_KEY"
                )
        if len(set(self.urls)) < len(self.urls):
            raise ConfigError(f"engine.options.urls names a server twice: {', '.join(self.urls)}")


SERVER = EngineKind(
    name="server",
    options=ServerOptions,
    records_experts=False,
    follows_grammars=False,
    samples_adapters=False,
    has_weights_outside=True,
    one_policy="servers hold those of one policy",
    predict=lambda options: Footprint(is_staged=options.get("staging") is None),
)
