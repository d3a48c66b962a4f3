"""The paged engine in several processes on the CPU."""

from __future__ import annotations

from pydantic import Field

from turnwise.config.engine_kinds.kind import EngineKind, Footprint, read_count
from turnwise.config.engine_kinds.paged import PagedBase
from turnwise.core.errors import ConfigError


class WorkersOptions(PagedBase):
    """Options of engine.kind = "workers"."""

    num_workers: int = Field(2, ge=1)
    """Processes that sample, each on one thread and with its share of `engine.max_concurrency`; they read the weights
    from shared memory. What is sampled is what "paged" samples."""

    def check(self, *, device: str, num_threads: int) -> None:
        """Workers are for the CPU and have one thread each."""
        if device != "cpu":
            raise ConfigError(
                f"engine.kind='workers' with a model on {device}: workers read the weights from memory shared between "
                "processes, which only works on the CPU; use engine.kind='paged' or model.device='cpu'"
            )
        if num_threads != 1:
            raise ConfigError(
                f"engine.kind='workers' with engine.num_threads={num_threads}: every worker has one thread; use "
                "engine.num_threads=1 and engine.options.num_workers"
            )


WORKERS = EngineKind(
    name="workers",
    options=WorkersOptions,
    records_experts=True,
    reads_images=True,
    has_checked_steps=True,
    one_learner="it would start its processes once for each",
    predict=lambda options: Footprint(num_workers=read_count(options.get("num_workers"), 2)),
)
