"""Builds the plain engine."""

from __future__ import annotations

from transformers import PreTrainedModel

from turnwise.config.engine_kinds.local import LocalOptions
from turnwise.core.protocols import Engine
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.local.engine import LocalEngine
from turnwise.engines.settings import Decode, EngineSettings
from turnwise.hosts.host import Host


def build_local(
    model: PreTrainedModel,
    *,
    common: EngineSettings,
    options: LocalOptions,
    grammars: GrammarCompiler | None,
    decode: Decode | None,
    host: Host | None,
) -> Engine:
    """See `BuildEngine`."""
    return LocalEngine(model, **common.limits, **options.model_dump(), num_threads=common.num_threads, decode=decode)
