"""One row of the table of judges, and the parts from which a judge is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turnwise.config.section import Section
from turnwise.core.judging import Judge
from turnwise.core.pictures import Pictures
from turnwise.core.protocols import Engine, Renderer

LoadModel = Callable[[str], tuple[Engine, Renderer]]
"""Opens an engine on a checkpoint with the tokens of the run, and returns it with the renderer. Raises ConfigError
if it does not fit, or if nothing here has a model."""
LoadPolicy = Callable[[], tuple[Engine, Renderer]]
"""Returns the engine that samples the run's episodes, and the renderer. Raises ConfigError if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeParts:
    """The parts of a run that a judge may use."""

    name: str
    """The judge's name in the recipe."""
    options: Any
    """An object of the row's `options`, or the recipe's table if the row has none."""
    max_concurrent: int
    timeout_s: float
    seed: int
    load_model: LoadModel
    load_policy: LoadPolicy
    follows_grammars: bool
    """Whether the run's engine does."""
    pictures: Pictures | None = None
    """The store of the run's pictures; None where there is none, so that only pictures with their pixels can be
    sent."""
    find_judge: Callable[[str], Judge]
    """Returns another judge of the recipe by name. Raises ConfigError if there is none, or if it asks this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeKind:
    """One row of the table of judges, named in `judges.NAME.kind`: built in, offered by an installed package, or at the
    import path "package.module:NAME"."""

    name: str
    summary: str
    options: type[Section] | None = None
    """What `judges.NAME.options` may hold; None leaves the options, unchecked, to `build`."""
    checkpoint: str = ""
    """The option with a checkpoint whose weights the run holds, for the plan of memory; empty if it holds none."""
    build: Callable[[JudgeParts], Judge]
