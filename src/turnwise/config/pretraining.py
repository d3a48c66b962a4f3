"""Options of continual pre-training, before the warm-up."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class CptSection(Section):
    """Continual pre-training on documents, before the warm-up: every token of a document trains."""

    steps: int = Field(0, ge=0)
    """Optimizer steps; 0 skips the phase."""
    path: str = ""
    """JSONL or Parquet file of documents, one per row: "text", "messages" (with "tools"), or "token_ids" of the run's
    tokenizer; "id" names a row (docs/synthesis.md)."""
    builder: str = ""
    """Import path "package.module:function" of a function that makes the documents, instead of `path`."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of `builder`."""
    batch_tokens: int = Field(4096, ge=2)
    """Most tokens that train in one step. A pass over the documents may end inside a step; the next one has a new
    order."""
    max_tokens: int = Field(512, ge=2)
    """Most tokens of one sequence, at most `engine.max_context`. A longer document goes on in the next sequence, whose
    first token repeats the last one before it: every token but a document's first trains once per pass."""
    packing: Literal["separate", "joined"] = "separate"
    """"separate": a sequence has tokens of one document, which sees nothing of others. "joined": documents are laid end
    to end and cut every `max_tokens` tokens, so that a document sees the end of the one before it."""
    lr: float = Field(3e-3, gt=0)
    """Peak learning rate, which decays to 0 as a cosine. Required with `model.path`."""
    warmup_steps: int = Field(10, ge=0)
    """Optimizer steps over which the learning rate rises linearly."""
    checkpoint_every: int = Field(200, ge=0)
    """Steps between checkpoints inside the phase, from which a stopped run goes on; 0 writes only one at its end. They
    are deleted when RL's first checkpoint is there."""
