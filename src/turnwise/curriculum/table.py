"""The table of built-in samplers, and what `curriculum.sampler` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnwise.config.engine_kinds.kind import read_options
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.offers import find_row
from turnwise.curriculum.own_function import FunctionSampler
from turnwise.curriculum.pools import DIFFICULTY
from turnwise.curriculum.progress import PROGRESS
from turnwise.curriculum.replay import PLR
from turnwise.curriculum.sampler import Sampler, SamplerKind
from turnwise.curriculum.uniform import UNIFORM
from turnwise.curriculum.value import VALUE

GROUP = "turnwise.samplers"
"""Entry-point group in which an installed package names its samplers."""

ORDER = SamplerKind(name="order", summary="the tasks in the order of the split, each once", build=None)

SAMPLERS: dict[str, SamplerKind] = {kind.name: kind for kind in (ORDER, UNIFORM, DIFFICULTY, VALUE, PROGRESS, PLR)}
"""Every built-in sampler by name."""


def find_sampler(name: str) -> SamplerKind:
    """Return the row that `curriculum.sampler` names; a function becomes a row. Raises ConfigError, with the remedy,
    for a name that leads nowhere or to something else."""

    def wrap(function: Callable[..., Any]) -> SamplerKind:
        return SamplerKind(name=name, summary="", build=lambda options: FunctionSampler(function))

    return find_row("curriculum.sampler", name, SamplerKind, group=GROUP, built_in=SAMPLERS, wrap=wrap)


def build_sampler(name: str, options: Mapping[str, Any]) -> Sampler | None:
    """Build the sampler of that name; None for one that draws the tasks in order. Raises ConfigError, with the remedy,
    for an unknown name or option, or a wrong value."""
    kind = find_sampler(name)
    chosen = read_options(name, kind.options, options, where="curriculum", named_by="sampler")
    if kind.build is None:
        return None
    with boundary(ConfigError, f"curriculum.sampler={name!r} cannot be built"):
        return kind.build(chosen)
