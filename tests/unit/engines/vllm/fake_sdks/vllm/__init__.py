"""Stands in for vLLM where a test needs its calls and not its speed: Hugging Face's model, a token a step, no cache.

The variable VLLM_FAULT plants faults, with commas between them; one named `NAME@FILE` happens as long as FILE exists,
which it removes."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def has_fault(name: str) -> bool:
    """Whether this fault is planted."""
    faults = dict(fault.partition("@")[::2] for fault in os.environ.get("VLLM_FAULT", "").split(","))
    if name not in faults:
        return False
    once = faults[name]
    if once and not Path(once).exists():
        return False
    if once:
        Path(once).unlink()
    return True


@dataclass
class SamplingParams:
    """The options that the guest sets."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    output_kind: Any = None


class TokensPrompt(dict[str, Any]):
    """A prompt."""


class EngineArgs:
    """Keeps what it is given."""

    def __init__(self, **args: Any) -> None:
        self.args = args
