"""How the trainer's weights reach the engine of a run."""

from __future__ import annotations

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import PausableEngine, WeightSync
from turnwise.runs.build import System
from turnwise.sync.copied import CopiedParameters
from turnwise.sync.shared import SharedParameters


def build_weight_sync(system: System) -> WeightSync:
    """Shared parameters where sampling and training take turns, a served copy where they overlap.

    Raises ConfigError for an engine whose weights cannot change.
    """
    config, engine = system.config, system.engine.engine
    if not isinstance(engine, PausableEngine):
        raise ConfigError(
            f"engine.kind={config.engine.kind!r} cannot train: {type(engine).__name__} lacks one of pause, adopt, "
            "resume (see PausableEngine); evaluate with it, or choose another engine"
        )
    if system.served is system.model:
        return SharedParameters({"engine": engine})
    return CopiedParameters(system.model, system.served, {"engine": engine}, interrupt=config.schedule.interrupt)
