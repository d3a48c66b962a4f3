"""An engine of servers named by URL: vLLM or SGLang, started by somebody else on this machine or in a cluster."""

from turnwise.engines.server.engine import ServerEngine

__all__ = ["ServerEngine"]
