"""Deep research as one environment family: generated worlds, or the user's own corpus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily
from turnwise_synthesis.research.arguments import Mode, ResearchArguments
from turnwise_synthesis.research.files.family import FileResearch
from turnwise_synthesis.research.world.family import WorldResearch

MODES: Mapping[Mode, Callable[..., EnvironmentFamily]] = {"world": WorldResearch, "files": FileResearch}


def build_family(**arguments: Any) -> EnvironmentFamily:
    """Build the family of `mode` ("world" if it is omitted), which takes the arguments of its section.

    Raises ConfigError naming the argument and the remedy.
    """
    mode = arguments.get("mode", ResearchArguments.model_fields["mode"].default)
    if mode not in MODES:
        raise ConfigError(f"mode={mode!r} is not a mode of research; use one of {', '.join(MODES)}")
    return MODES[mode](**arguments)
