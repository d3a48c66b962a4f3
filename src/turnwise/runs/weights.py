"""How the trainer's weights reach the engine of a run."""

from __future__ import annotations

from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Engine, PausableEngine, WeightSync, WeightTarget
from turnwise.runs.build import System
from turnwise.sync.copied import CopiedParameters
from turnwise.sync.several import SyncOfSeveral
from turnwise.sync.shared import SharedParameters


def build_weight_sync(system: System) -> WeightSync:
    """Shared parameters where sampling and training take turns, a served copy where they overlap.

    Raises ConfigError for an engine whose weights cannot change.
    """
    if system.others:
        engines = {"": system.engine.engine, **{name: other.engine for name, other in system.others.items()}}
        return SyncOfSeveral({name: _share(system.config, engine) for name, engine in engines.items()})
    targets: dict[str, WeightTarget] = {"engine": _check(system.config, system.engine.engine)}
    if system.rollouts is not None:
        targets["rollouts"] = system.rollouts
    if system.served is system.model:
        return SharedParameters(targets)
    return CopiedParameters(system.model, system.served, targets, interrupt=system.config.schedule.interrupt)


def _share(config: RunConfig, engine: Engine) -> SharedParameters:
    return SharedParameters({"engine": _check(config, engine)})


def _check(config: RunConfig, engine: Engine) -> PausableEngine:
    if not isinstance(engine, PausableEngine):
        raise ConfigError(
            f"engine.kind={config.engine.kind!r} cannot train: {type(engine).__name__} lacks one of pause, adopt, "
            "resume (see PausableEngine); evaluate with it, or choose another engine"
        )
    return engine
