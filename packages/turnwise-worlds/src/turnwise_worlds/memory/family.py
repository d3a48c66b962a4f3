"""Reading what does not fit into the context as one environment family: each memory style is a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily
from turnwise_worlds.memory.arguments import MemoryArguments, Style
from turnwise_worlds.memory.chunks.family import Chunks
from turnwise_worlds.memory.fold.family import Fold
from turnwise_worlds.memory.operations.family import Operations
from turnwise_worlds.memory.rolling.family import Rolling

STYLES: Mapping[Style, Callable[..., EnvironmentFamily]] = {
    "chunks": Chunks,
    "operations": Operations,
    "rolling": Rolling,
    "fold": Fold,
}


def build_family(**arguments: Any) -> EnvironmentFamily:
    """Build the family of `style` ("chunks" if it is omitted), which takes the arguments of its section.

    Raises ConfigError naming the argument and the remedy.
    """
    style = arguments.get("style", MemoryArguments.model_fields["style"].default)
    if style not in STYLES:
        raise ConfigError(f"style={style!r} is not a memory style; use one of {', '.join(STYLES)}")
    return STYLES[style](**arguments)
