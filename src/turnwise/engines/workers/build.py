"""Builds the engine of several processes."""

from __future__ import annotations

from transformers import PreTrainedModel

from turnwise.config.engine_kinds.workers import WorkersOptions
from turnwise.core.protocols import Engine
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.settings import Decode, EngineSettings, choose_fused
from turnwise.engines.workers.engine import WorkerEngine
from turnwise.hosts.host import Host


def build_workers(
    model: PreTrainedModel,
    *,
    common: EngineSettings,
    options: WorkersOptions,
    grammars: GrammarCompiler | None,
    decode: Decode | None,
    host: Host | None,
) -> Engine:
    """See `BuildEngine`."""
    chosen = options.model_dump() | {"fused": choose_fused(options.fused)}
    return WorkerEngine(model, **common.limits, **chosen, grammars=grammars, decode=decode)
