"""The paged engine in several processes of one thread each, on the trainer's own parameters in shared memory."""

from turnwise.engines.workers.engine import WorkerEngine

__all__ = ["WorkerEngine"]
