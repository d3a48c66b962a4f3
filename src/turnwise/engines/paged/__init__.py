"""The in-process engine with paged, shared key-value memory: every token computed once."""

from turnwise.engines.paged.engine import EngineStatistics, PagedEngine

__all__ = ["EngineStatistics", "PagedEngine"]
