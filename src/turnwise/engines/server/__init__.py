"""Servers by URL as an engine: vLLM or SGLang that somebody else started, on this machine or in a cluster."""

from turnwise.engines.server.engine import ServerEngine

__all__ = ["ServerEngine"]
