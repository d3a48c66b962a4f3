"""Builds the paged engine."""

from __future__ import annotations

from transformers import PreTrainedModel

from turnwise.config.engine_kinds.paged import PagedOptions
from turnwise.core.protocols import Engine
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.paged.engine import PagedEngine
from turnwise.engines.settings import Decode, EngineSettings, choose_fused
from turnwise.hosts.host import Host


def build_paged(
    model: PreTrainedModel,
    *,
    common: EngineSettings,
    options: PagedOptions,
    grammars: GrammarCompiler | None,
    decode: Decode | None,
    host: Host | None,
) -> Engine:
    """See `BuildEngine`."""
    chosen = options.model_dump() | {"fused": choose_fused(options.fused)}
    return PagedEngine(
        model, **common.limits, **chosen, num_threads=common.num_threads, grammars=grammars, decode=decode
    )
