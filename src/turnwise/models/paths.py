"""The two paths by which a model can compute, and which of them a model uses.

**fast**: Turnwise's attention. Tokens of many sequences are laid end to end or as a prefix tree, and engines read
shared pages. For decoders whose layers mix tokens by attention alone.

**generic**: the model's own attention and mixers, in rows padded on the right, without a mask: later tokens cannot
change what a causal model computed before. For recurrent, convolutional, linear-attention and hybrid models, for
position biases, and for any other unusual attention.

`models.check` chooses by measurement. The choice is stored on the model and its copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

from transformers import PreTrainedModel

from turnwise.models.attention import register_attention
from turnwise.models.routing import ATTENTION_NAME

OWN_ATTENTION = "eager"
"""The attention that defines a model in transformers; its other implementations are faster but drop arguments."""
_ATTRIBUTE = "_turnwise_path"
Model = TypeVar("Model", bound=PreTrainedModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPath:
    """How a model computes."""

    kind: Literal["fast", "generic"] = "fast"
    reason: str = ""
    """Why it is not the fast path; empty for the fast path."""
    pads: bool = True
    """Whether rows of different lengths compute together, padded on the right; else only rows of one length."""
    steps: bool = True
    """Whether the model's own cache accepts one token at a time; else every token is computed from the whole
    sequence."""
    extends: bool = True
    """Whether the cache accepts several tokens at once; else one at a time."""
    merges: bool = True
    """Whether caches of different lengths step together, padded on the left under a mask; else only those of one
    length."""
    batches: bool = True
    """Whether caches of one length step together; else each conversation by itself."""
    gaps: Mapping[str, float] = field(default_factory=dict)
    """Largest difference of a token's log-probability from the model's value alone, in nats, by trial; inf for a trial
    that failed."""
    seconds: float = 0.0
    """Duration of the check."""

    def describe(self) -> str:
        """Describe the path in one line for people."""
        largest = max(self.gaps.values(), default=0.0)
        if self.kind == "fast":
            return f"fast path, at most {largest:.1g} nats from the model's own attention ({self.seconds:.1f} s)"
        return f"generic path: {self.reason}; sampled from {self.describe_sampling()} ({self.seconds:.1f} s)"

    def describe_sampling(self) -> str:
        """Describe how the generic path samples."""
        if not self.steps:
            return "the whole sequence, read again for every token: slow, and slower with every turn"
        again = "" if self.extends else ", which is read again after every observation"
        if not self.batches:
            return f"the model's own cache{again}, one conversation at a time: slow"
        return f"the model's own cache{again}, " + (
            "all conversations together" if self.merges else "conversations of the same length together"
        )


def find_path(model: PreTrainedModel) -> ModelPath:
    """Return the path of `model`; the one that its attention implies if nothing was measured."""
    path: ModelPath | None = getattr(model, _ATTRIBUTE, None)
    is_fast = model.config.get_text_config()._attn_implementation == ATTENTION_NAME
    if path is not None and is_fast == (path.kind == "fast"):
        return path
    return ModelPath(kind="fast" if is_fast else "generic", reason="" if is_fast else "built with its own attention")


def is_fast(model: PreTrainedModel) -> bool:
    """Whether `model` takes the fast path."""
    return find_path(model).kind == "fast"


def set_path(model: Model, path: ModelPath) -> Model:
    """Make `model`, and its later copies, compute by `path`; returns it."""
    attention = ATTENTION_NAME if path.kind == "fast" else OWN_ATTENTION
    register_attention()
    config = model.config.get_text_config()
    if config._attn_implementation != attention:
        # The tower of a vision-language model keeps its own.
        model.set_attn_implementation(attention if config is model.config else {"text_config": attention})
        # Models with their own attention keep what they were built with, and read here how masks are made.
        config._attn_implementation = attention
    setattr(model, _ATTRIBUTE, path)
    return model


def describe_path(model: PreTrainedModel) -> dict[str, Any]:
    """Return the path as plain data, for `read_path`."""
    return {**asdict(find_path(model)), "gaps": dict(find_path(model).gaps)}


def read_path(data: Mapping[str, Any]) -> ModelPath:
    """Read the path from plain data."""
    return ModelPath(**data)
