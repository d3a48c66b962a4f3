"""Settings from which an engine is built."""

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
    """Settings common to all engines."""

    max_concurrency: int
    """Most conversations open at once."""
    max_context: int
    """Most tokens of a conversation."""
    num_threads: int = 1
    """Threads of the engine's arithmetic; 0 is one per core."""

    @property
    def limits(self) -> dict[str, Any]:
        """The two limits of conversations, by name."""
        return {"max_concurrency": self.max_concurrency, "max_context": self.max_context}


class BuildEngine(Protocol):
    """The function `EngineKind.build`. A bare function named by `engine.kind` gets every argument except `host`."""

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
        """Build an engine that samples from `model`. `options` is an object of `EngineKind.options`, or the recipe's
        table if the kind has none; `host` is where further programs start (None: this machine). Raises ConfigError for
        unknown options."""
        ...


def choose_fused(fused: bool) -> bool | None:
    """Translate the recipe's `fused` for an engine: here True means "if the model's family has packed weights" (None),
    whereas an engine's own True refuses a family without them."""
    return None if fused else False
