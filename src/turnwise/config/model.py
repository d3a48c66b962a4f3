"""Options of the policy: model, tokenizer, renderer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.config.lora import LoraSection
from turnwise.config.section import Section


class ModelSection(Section):
    """The policy network."""

    path: str = ""
    """Local Hugging Face directory to start from, or a name that `turnwise models list` shows; empty starts from random
    weights, by `model_type` and `config`."""
    model_type: str = "qwen3"
    """Name of the architecture in transformers; read only if `path` is empty."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of transformers' config class; read only if `path` is empty. `vocab_size` is one row for each id of the
    tokenizer where it is not given; more are padding. Empty is a small model that learns on a
    laptop (`config/small_model.py`). What is given is used as it is, over the architecture's defaults, and holds at
    least hidden_size, intermediate_size, num_hidden_layers and num_attention_heads."""
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    """Number format of weights and cache. Weights that train in "bfloat16" or "float16" have float32 masters, on which
    the optimizer steps; "float16" has a loss scale too (docs/models.md)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of every model and of the engine's cache; "auto" is the GPU if torch sees one, else the CPU. Results are
    exact in every bit (same seed, same tokens; a resumed run; exact scoring) on "cpu" only, and engine workers need
    it."""
    trust_remote_code: bool = False
    """Whether code inside `path` may run; allow only code that you have read."""
    lora: LoraSection | None = None
    """The adapter that is trained; None trains all weights. An empty table takes every default."""


class TokenizerSection(Section):
    """How text becomes token ids."""

    path: str = ""
    """Local Hugging Face directory; empty takes that of `model.path`, or trains one on the environment's texts."""
    vocab_size: int = Field(1024, ge=1)
    """Most tokens of a trained tokenizer, special tokens included."""
    num_texts: int = Field(2000, ge=1)
    """Number of texts it is trained on."""


class RendererSection(Section):
    """How messages become token ids."""

    kind: Literal["auto", "tags", "calls", "chat", "template"] = "auto"
    """"tags" writes tags in running text. "calls" writes several tool calls with named arguments, for models from
    random weights. "chat" writes a chat model's own format, through the `renderers` package. "template" uses the
    tokenizer's own chat template, with tools as text. "auto" chooses, and the run says which and why."""
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
    """Most tokens of an observation; a longer one is cut, with its closing tag kept. "chat" cuts nothing."""
