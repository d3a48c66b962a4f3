"""Options of the policy: model, tokenizer, renderer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.config.lora import LoraSection
from turnwise.config.section import Section


class ModelSection(Section):
    """The policy network."""

    path: str = ""
    """Local Hugging Face directory to start from, or a name from `turnwise models list`; if empty, training starts from
    random weights, defined by `model_type` and `config`."""
    model_type: str = "qwen3"
    """Name of the architecture in transformers; read only if `path` is empty."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments for transformers' config class; read only if `path` is empty. `vocab_size` defaults to one row for each
    id of the tokenizer; more rows are padding. Empty means a small model that learns on a laptop
    (`config/small_model.py`). Otherwise the values override the architecture's defaults and must contain at least
    hidden_size, intermediate_size, num_hidden_layers and num_attention_heads."""
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    """Number format of weights and cache. Weights that train in "bfloat16" or "float16" have float32 masters, which the
    optimizer updates; "float16" also has a loss scale (docs/models.md)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of every model and of the engine's cache; "auto" is the GPU if torch sees one, else the CPU. Results are
    exact in every bit (same seed, same tokens; a resumed run; exact scoring) only on "cpu", which engine workers
    need."""
    trust_remote_code: bool = False
    """Whether code inside `path` may run; allow only code that you have read."""
    freeze_vision: bool | None = None
    """Whether the tower of a vision-language model, and what fits its rows to the text part, stay as they are; None
    freezes them in a model from `path`, and trains them from random weights. Allowed for such models only."""
    lora: LoraSection | None = None
    """The adapter that is trained; None trains all weights. An empty table takes every default."""

    @property
    def freezes_vision(self) -> bool:
        """Whether the tower of a vision-language model stays as it is."""
        return bool(self.path) if self.freeze_vision is None else self.freeze_vision


class TokenizerSection(Section):
    """How text becomes token ids."""

    path: str = ""
    """Local Hugging Face directory; if empty, the one of `model.path` is used, or one is trained on the environment's
    texts."""
    vocab_size: int = Field(1024, ge=1)
    """Maximum number of tokens of a trained tokenizer, including special tokens."""
    num_texts: int = Field(2000, ge=1)
    """Number of texts to train it on."""
    split: Literal["subwords", "words"] = "subwords"
    """Where a trained tokenizer cuts text before it merges: at letters, digits and punctuation, as GPT-2's does, or at
    spaces alone, so that a frequent word is one token whatever its characters are (`<x+2>`)."""


class RendererSection(Section):
    """How messages become token ids."""

    kind: Literal["auto", "tags", "calls", "chat", "template"] = "auto"
    """"tags" writes tags in running text. "calls" writes several tool calls with named arguments, for randomly
    initialized models. "chat" writes a chat model's own format, through the `renderers` package. "template" uses the
    tokenizer's own chat template, with tools as text. "auto" chooses one; the run reports which and why."""
    format: Literal["search_r1", "retool", "shell"] = "search_r1"
    """For "tags": the tags of Search-R1 (think, search, information, answer), of ReTool (think, code, interpreter,
    boxed answer) or of a shell (think, command, output)."""
    name: str = "qwen3"
    """For "chat": name of the renderer, or "auto" to choose it by `model.path`."""
    calls: Literal[
        "auto", "hermes", "fenced", "react", "llama", "mistral", "qwen_coder", "deepseek_v3", "deepseek_v31"
    ] = "auto"
    """For "template": how calls are written. "hermes" is JSON in `<tool_call>` tags, "fenced" JSON in a block after
    three backticks, "react" the lines `Action:` and `Action Input:`. "llama", "mistral", "qwen_coder", "deepseek_v3"
    and "deepseek_v31" are the formats that these models were trained on. "auto" is hermes, or react where the tokenizer
    has no chat template."""
    max_observation_tokens: int = Field(512, ge=8)
    """Maximum number of tokens of an observation; a longer one is cut, keeping its closing tag. "chat" cuts nothing."""
