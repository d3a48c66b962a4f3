"""The paged engine in several processes of one thread each, with the weights in shared memory."""

from turnwise.engines.workers.engine import WorkerEngine

__all__ = ["WorkerEngine"]
