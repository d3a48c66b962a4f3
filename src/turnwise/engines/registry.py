"""Engines by name or import path."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from transformers import PreTrainedModel

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.protocols import Engine
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.local import LocalEngine
from turnwise.engines.options import (
    EngineOptions,
    LocalOptions,
    PagedOptions,
    ServerOptions,
    VllmOptions,
    WorkersOptions,
    read_options,
)
from turnwise.engines.paged import PagedEngine
from turnwise.engines.server import ServerEngine
from turnwise.engines.vllm import VllmEngine
from turnwise.engines.workers import WorkerEngine
from turnwise.hosts.host import Host
from turnwise.models.routing import find_routing

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What every engine is told."""

    max_concurrency: int
    """Conversations open at once."""
    max_context: int
    """Tokens a conversation can have."""
    num_threads: int = 1
    """Threads of the engine's arithmetic; 0 is one per core."""


class BuildEngine(Protocol):
    """What an import path "package.module:build" names."""

    def __call__(
        self,
        model: PreTrainedModel,
        *,
        common: EngineSettings,
        options: Mapping[str, Any],
        grammars: GrammarCompiler | None,
        decode: Decode | None,
    ) -> Engine:
        """An engine that samples from `model`. Raises ConfigError for options that it does not have."""
        ...


OPTIONS: Mapping[str, type[EngineOptions]] = {
    "paged": PagedOptions,
    "workers": WorkersOptions,
    "local": LocalOptions,
    "vllm": VllmOptions,
    "server": ServerOptions,
}
"""Options of the engines that have a name; any other kind is an import path."""
RECORDING = ("paged", "workers")
"""Of these, the engines whose completions say which experts of a mixture computed them."""


def check_engine(kind: str, *, common: EngineSettings, options: Mapping[str, Any], device: str) -> None:
    """Raise ConfigError for what can be told wrong before a model is there; `device` is "cpu" or "cuda".

    Options of an engine with an import path are checked when it is built.
    """
    if kind in OPTIONS:
        read_options(kind, OPTIONS[kind], options).check(device=device, num_threads=common.num_threads)
    else:
        _find(kind)


def check_recording(kind: str, model: PreTrainedModel) -> None:
    """Raise ConfigError where a policy is a mixture of experts and the engine of this name does not record which of
    them it took, so that training could not repeat it. An engine with an import path is judged by its completions."""
    if find_routing(model) is not None and kind in OPTIONS and kind not in RECORDING:
        raise ConfigError(
            f"the policy is a mixture of experts, and engine.kind={kind!r} does not record which experts a token took: "
            f"training would take others unseen. Use {' or '.join(RECORDING)}"
        )


def build_engine(
    kind: str,
    model: PreTrainedModel,
    *,
    common: EngineSettings,
    options: Mapping[str, Any],
    grammars: GrammarCompiler | None = None,
    decode: Decode | None = None,
    host: Host | None = None,
) -> Engine:
    """An engine that samples from the parameters of `model`. Workers start with the first request; vLLM's on `host`,
    None is this machine.

    Raises ConfigError when there is no such kind or the options are wrong, EngineError when the engine refuses the
    model.
    """
    check_engine(kind, common=common, options=options, device=model.device.type)
    limits: dict[str, Any] = {"max_concurrency": common.max_concurrency, "max_context": common.max_context}
    if kind not in OPTIONS:
        with boundary(ConfigError, f"engine.kind={kind!r} cannot be built"):
            return _find(kind)(model, common=common, options=options, grammars=grammars, decode=decode)
    chosen: dict[str, Any] = read_options(kind, OPTIONS[kind], options).model_dump()
    if "fused" in chosen:
        # True is what the model's family has; the engines' own True refuses a family without.
        chosen["fused"] = None if chosen["fused"] else False
    if kind == "local":
        return LocalEngine(model, **limits, **chosen, num_threads=common.num_threads, decode=decode)
    if kind == "vllm":
        return VllmEngine(model, **limits, **chosen, num_threads=common.num_threads, decode=decode, host=host)
    if kind == "server":
        return ServerEngine(model, **limits, **chosen, decode=decode)
    if kind == "workers":
        return WorkerEngine(model, **limits, **chosen, grammars=grammars, decode=decode)
    return PagedEngine(model, **limits, **chosen, num_threads=common.num_threads, grammars=grammars, decode=decode)


def _find(kind: str) -> BuildEngine:
    module_name, _, name = kind.partition(":")
    if not name:
        raise ConfigError(f"engine.kind={kind!r} is none of {', '.join(OPTIONS)} nor a path 'package.module:build'")
    with boundary(ConfigError, f"engine.kind={kind!r} cannot be imported"):
        build: BuildEngine = getattr(importlib.import_module(module_name), name)
    if not callable(build):
        raise ConfigError(f"engine.kind={kind!r} names no function that builds an engine")
    return build
