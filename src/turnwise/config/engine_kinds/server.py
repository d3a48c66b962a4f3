"""vLLM or SGLang servers that run already, by URL."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.engine_kinds.kind import EngineKind, EngineOptions, Footprint
from turnwise.core.errors import ConfigError


class ServerOptions(EngineOptions):
    """Options of engine.kind = "server"."""

    urls: list[str] = Field(min_length=1)
    """URLs of running servers that only this run uses: `http(s)://host:port`, or `unix:/path/of/socket`."""
    speaks: Literal["vllm", "sglang"] = "vllm"
    """Kind of server."""
    staging: str | None = None
    """Folder to write weights to, at the same path for this process and the servers; None is shared memory on this
    machine."""
    timeout_s: float = Field(600.0, gt=0)
    """Maximum seconds for one answer of a server, and for a request to wait for an unavailable server."""

    def check(self, *, device: str, num_threads: int) -> None:
        """Addresses must be some, each once."""
        for url in self.urls:
            if not url.startswith(("http://", "https://", "unix:/")) or "@" in url:
                raise ConfigError(
                    f"engine.options.urls has {url!r}; it must be http(s)://host:port or unix:/path/of/socket; the key "
                    "is read from OPENAI_API_KEY"
                )
        if len(set(self.urls)) < len(self.urls):
            raise ConfigError(f"engine.options.urls has a server twice: {', '.join(self.urls)}")


SERVER = EngineKind(
    name="server",
    options=ServerOptions,
    records_experts=False,
    follows_grammars=False,
    samples_adapters=False,
    has_weights_outside=True,
    one_policy="servers can serve only one policy",
    predict=lambda options: Footprint(is_staged=options.get("staging") is None),
)
