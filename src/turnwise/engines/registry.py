"""Builds engines: joins the rows of `config/engine_kinds/` to their builders by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel

from turnwise.config.engine_kinds.kind import EngineKind, read_options
from turnwise.config.engine_kinds.table import ENGINE_KINDS, find_engine_kind, list_kinds
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.protocols import Engine
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.local.build import build_local
from turnwise.engines.paged.build import build_paged
from turnwise.engines.server.build import build_server
from turnwise.engines.settings import BuildEngine, Decode, EngineSettings
from turnwise.engines.vllm.build import build_vllm
from turnwise.engines.workers.build import build_workers
from turnwise.hosts.host import Host
from turnwise.models.routing import find_routing
from turnwise.models.vision.eyes import find_eyes

BUILDERS: Mapping[str, BuildEngine] = {
    "paged": build_paged,
    "workers": build_workers,
    "local": build_local,
    "vllm": build_vllm,
    "server": build_server,
}
"""Builders of the kinds in `ENGINE_KINDS`, by name."""


def check_engine(kind: EngineKind | str, *, common: EngineSettings, options: Mapping[str, Any], device: str) -> None:
    """Raise ConfigError for options that are wrong whatever the model; `device` is "cpu" or "cuda".

    Options of a kind without a table of them are checked when the engine is built.
    """
    row = _find(kind)
    if row.options is not None:
        read_options(row.name, row.options, options).check(device=device, num_threads=common.num_threads)


def check_recording(kind: EngineKind | str, model: PreTrainedModel) -> None:
    """Raise ConfigError if the policy is a mixture of experts and the engine does not record the chosen experts, so
    that training could not repeat the choice. A kind that does not declare this is judged by its completions."""
    row = _find(kind)
    if find_routing(model) is not None and row.records_experts is False:
        recording = [name for name, each in ENGINE_KINDS.items() if each.records_experts]
        raise ConfigError(
            f"the policy is a mixture of experts, but engine.kind={row.name!r} does not record which experts processed "
            f"a token, so training might silently use others. Use {' or '.join(recording)}"
        )


def check_seeing(kind: EngineKind | str, model: PreTrainedModel) -> None:
    """Raise ConfigError if the policy sees and the engine reads text only."""
    row = _find(kind)
    if find_eyes(model) is not None and not row.reads_images:
        raise ConfigError(
            f"{type(model).__name__} reads pictures, but engine.kind={row.name!r} reads text only; use "
            f"{list_kinds(lambda each: each.reads_images)}, or a model that reads text"
        )


def build_engine(
    kind: EngineKind | str,
    model: PreTrainedModel,
    *,
    common: EngineSettings,
    options: Mapping[str, Any],
    grammars: GrammarCompiler | None = None,
    decode: Decode | None = None,
    host: Host | None = None,
) -> Engine:
    """Build an engine of a kind, or of the import path in `engine.kind`, that samples from the parameters of `model`.
    Workers start with the first request; further programs start on `host` (None: this machine).

    Raises ConfigError when there is no such kind, the options are wrong, or the model sees and the engine does not,
    EngineError when the engine refuses the model.
    """
    row = _find(kind)
    check_engine(row, common=common, options=options, device=model.device.type)
    check_seeing(row, model)
    chosen = options if row.options is None else read_options(row.name, row.options, options)
    if row.build is None:
        return BUILDERS[row.name](model, common=common, options=chosen, grammars=grammars, decode=decode, host=host)
    with boundary(ConfigError, f"engine.kind={row.name!r} cannot be built"):
        return row.build(model, common=common, options=chosen, grammars=grammars, decode=decode, host=host)


def _find(kind: EngineKind | str) -> EngineKind:
    return kind if isinstance(kind, EngineKind) else find_engine_kind(kind)
