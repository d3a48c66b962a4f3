"""What the policy is made of: model, tokenizer, renderer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class ModelSection(Section):
    """The policy network."""

    path: str = ""
    """Local Hugging Face directory to start from. Empty: random weights from `model_type` and `config`."""
    model_type: str = "qwen3"
    """transformers' name of the architecture; read only when `path` is empty."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """Free table handed to transformers' config class (hidden_size, num_hidden_layers, ...); read only when `path` is
    empty."""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    """Of weights and cache."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where every model and the engine's cache live. "auto" is the GPU where torch sees one, else the CPU. What is
    exact in every bit (same seed, same tokens; a resumed run; exact scoring) is so on "cpu" only, and engine workers
    need it."""
    trust_remote_code: bool = False
    """Whether code inside `path` may run. Off unless you wrote it or read it."""


class TokenizerSection(Section):
    """Text to token ids."""

    path: str = ""
    """Local Hugging Face directory. Empty: that of `model.path`, or one trained on the environment's texts."""
    vocab_size: int = Field(1024, ge=1)
    """Largest vocabulary of a trained tokenizer, special tokens included."""
    num_texts: int = Field(2000, ge=1)
    """Texts it is trained on."""


class RendererSection(Section):
    """Messages to token ids."""

    kind: Literal["tags", "calls", "chat"] = "tags"
    """"tags": tags in running text. "calls": several tool calls with named arguments, for models from scratch.
    "chat": a chat model's own format through the `renderers` package."""
    format: Literal["search_r1", "retool"] = "search_r1"
    """For "tags": Search-R1's (think, search, information, answer) or ReTool's (think, code, interpreter, boxed
    answer)."""
    name: str = "qwen3"
    """For "chat": the renderer's name, or "auto" to choose by `model.path`."""
    max_observation_tokens: int = Field(512, ge=8)
    """An observation longer than this is cut, its closing tag kept."""
