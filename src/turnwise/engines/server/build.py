"""Builds the engine of servers."""

from __future__ import annotations

from transformers import PreTrainedModel

from turnwise.config.engine_kinds.server import ServerOptions
from turnwise.core.protocols import Engine
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.server.engine import ServerEngine
from turnwise.engines.settings import Decode, EngineSettings
from turnwise.hosts.host import Host


def build_server(
    model: PreTrainedModel,
    *,
    common: EngineSettings,
    options: ServerOptions,
    grammars: GrammarCompiler | None,
    decode: Decode | None,
    host: Host | None,
) -> Engine:
    """See `BuildEngine`."""
    return ServerEngine(model, **common.limits, **options.model_dump(), decode=decode)
