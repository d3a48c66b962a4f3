"""What an engine is built from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from transformers import PreTrainedModel

from turnwise.core.protocols import Engine
from turnwise.engines.guided import GrammarCompiler
from turnwise.hosts.host import Host

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

    @property
    def limits(self) -> dict[str, Any]:
        """The two limits of conversations, by name."""
        return {"max_concurrency": self.max_concurrency, "max_context": self.max_context}


class BuildEngine(Protocol):
    """The function `EngineKind.build`. A bare function that `engine.kind` names is given all but `host`."""

    def __call__(
        self,
        model: PreTrainedModel,
        *,
        common: EngineSettings,
        options: Any,
        grammars: GrammarCompiler | None,
        decode: Decode | None,
        host: Host | None,
    ) -> Engine:
        """An engine that samples from `model`. `options` are an object of `EngineKind.options`, the recipe's table
        where the kind has none; `host` is where further programs start, None is this machine. Raises ConfigError for
        options that it does not have."""
        ...


def choose_fused(fused: bool) -> bool | None:
    """What an engine is told about packed weights: True is what the model's family has, while the engines' own True
    refuses a family without."""
    return None if fused else False
