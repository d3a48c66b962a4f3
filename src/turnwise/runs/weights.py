"""How the trainer's weights reach the engine of a run."""

from __future__ import annotations

from turnwise.core.protocols import WeightSync
from turnwise.runs.build import System
from turnwise.sync.copied import CopiedParameters
from turnwise.sync.shared import SharedParameters


def build_weight_sync(system: System) -> WeightSync:
    """Shared parameters where sampling and training take turns, a served copy where they overlap."""
    engines = {"engine": system.engine.engine}
    if system.served is system.model:
        return SharedParameters(engines)
    return CopiedParameters(system.model, system.served, engines, interrupt=system.config.schedule.interrupt)
