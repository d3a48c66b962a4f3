"""The table of built-in kinds of engines, and what `engine.kind` names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from turnwise.config.engine_kinds.kind import EngineKind, EngineOptions
from turnwise.config.engine_kinds.local import LOCAL
from turnwise.config.engine_kinds.paged import PAGED
from turnwise.config.engine_kinds.server import SERVER
from turnwise.config.engine_kinds.vllm import VLLM
from turnwise.config.engine_kinds.workers import WORKERS
from turnwise.core.errors import ConfigError
from turnwise.core.offers import describe_offers, load_row

ENGINE_KINDS: dict[str, EngineKind] = {kind.name: kind for kind in (PAGED, WORKERS, LOCAL, VLLM, SERVER)}
"""Every built-in kind by name."""
GROUP = "turnwise.engines"
"""Entry-point group in which an installed package names its kinds of engines."""


def find_engine_kind(name: str) -> EngineKind:
    """The row that `engine.kind` = `name` means: built in, offered by an installed package, or at an import path.

    A bare function becomes a row that knows nothing about its engine. Raises ConfigError in one line, with the remedy,
    for a name that leads nowhere or to something else."""
    found = load_row("engine.kind", name, EngineKind, group=GROUP, built_in=ENGINE_KINDS)
    if isinstance(found, EngineKind):
        if found.build is None:
            raise ConfigError(f"engine.kind={name!r} is an engine row without `build`; add the function")
        given: object = found.options
        if given is not None and not (isinstance(given, type) and issubclass(given, EngineOptions)):
            raise ConfigError(f"engine.kind={name!r}: its options are {given!r}; use a subclass of EngineOptions")
        return replace(found, name=name)
    if found is not None:
        return EngineKind(name=name, build=_without_host(found))
    if name in ENGINE_KINDS:
        return ENGINE_KINDS[name]
    raise ConfigError(
        f"engine.kind={name!r} is neither one of {', '.join(ENGINE_KINDS)} nor a path 'package.module:build'"
        + describe_offers(GROUP)
    )


def _without_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """A bare function is not given the host of a run."""

    def build(model: object, *, host: object = None, **given: object) -> Any:
        return function(model, **given)

    return build


def list_kinds(fits: Callable[[EngineKind], bool]) -> str:
    """The names of the built-in kinds that fit, for a remedy."""
    names = [repr(name) for name, kind in ENGINE_KINDS.items() if fits(kind)]
    return " or ".join(names)
