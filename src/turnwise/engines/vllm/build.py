"""Builds the engine of vLLM's processes."""

from __future__ import annotations

from transformers import PreTrainedModel

from turnwise.config.engine_kinds.vllm import VllmOptions
from turnwise.core.protocols import Engine
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.settings import Decode, EngineSettings
from turnwise.engines.vllm.engine import VllmEngine
from turnwise.hosts.host import Host


def build_vllm(
    model: PreTrainedModel,
    *,
    common: EngineSettings,
    options: VllmOptions,
    grammars: GrammarCompiler | None,
    decode: Decode | None,
    host: Host | None,
) -> Engine:
    """See `BuildEngine`."""
    chosen = options.model_dump()
    return VllmEngine(model, **common.limits, **chosen, num_threads=common.num_threads, decode=decode, host=host)
