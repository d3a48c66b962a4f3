"""The plain in-process engine: one cache slot per conversation."""

from turnwise.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
