"""The in-process engine with paged, shared key-value memory: every token computed once, on the trainer's very parameters."""

from turnwise.engines.paged.engine import EngineStatistics, PagedEngine, VersionedCompletion
from turnwise.engines.paged.sampler import TruncatedSampling

__all__ = ["EngineStatistics", "PagedEngine", "TruncatedSampling", "VersionedCompletion"]
