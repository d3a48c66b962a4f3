"""How much memory a recipe's engine and trainer take at their peak, from its numbers alone.

Counted are the tensors that live at the same time in the two phases of a step, by the shapes of Llama-like decoders on
one CPU: what stays (weights, optimizer moments, packed weights, key-value cache) and the larger of what sampling and a
training step add. Smaller arrays of a training step count `HELD` times: the C library keeps freed blocks of a backward
pass for the next one. `benchmarks/memory.py` compares with what a process takes; the interpreter and its libraries
(about 400 MiB) are not counted. Knows nothing about torch.

On "cuda" the same tensors are counted in the GPU's memory, without `HELD`, which is about glibc; nothing is packed, but
the engine joins some matrices and gathers larger pieces of the cache. Not known there, and not counted: what torch's
allocator rounds up and keeps, work space of kernels (attention without a fused kernel holds a matrix of tokens by
tokens), and the CUDA context, usually some hundred MiB."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.config.run import RunConfig

BYTES = {"float32": 4, "float64": 8, "bfloat16": 2}
PAGE_SIZE = 32
"""Tokens per page of the paged engine."""
PACKED_FAMILIES = ("qwen3", "llama", "qwen2")
"""Models the paged engine runs fused: on a CPU in float32 all their matrices are packed, which costs them once more;
elsewhere those of queries, keys and values are joined to one and so are gate and up, which costs these once more."""
GATHERED = 1 << 26
"""Most numbers of the cache that the paged engine gathers at once on a GPU; on the CPU its buffers are among
`SAMPLING_BYTES`."""
TABLE_BYTES = 4
"""Per sequence and page of the whole cache: what `engine.attention = "flex"` looks up the place of a page in a sequence
with."""
HELD = 1.85
"""Resident over live memory of a training step's smaller arrays: measured 1.6 to 1.9 with glibc."""
LARGE = 32 << 20
"""Bytes from which glibc gives an array back at once, so that it is not held."""
SAMPLING_HELD = 1.3
"""The same while sampling."""
SAMPLING_BYTES = 16 << 20
"""Buffers of the engine whose size does not depend on the model."""
LOGIT_COPIES = 3.2
"""Arrays of trained tokens by vocabulary that live at once: log-probabilities, their exponentials, gradients."""
WORKER_BYTES = 260 << 20
"""Interpreter and libraries of an engine worker, as far as it shares them with nobody: measured."""
DRAWING_COPIES = 6
"""Arrays of sampled rows by vocabulary that live at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What memory depends on."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    tied: bool
    """The output layer is the embedding."""

    @property
    def num_linear(self) -> int:
        """Numbers in all matrices but the embedding."""
        attention = self.hidden_size * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        return (
            self.num_layers * (attention + 3 * self.hidden_size * self.intermediate_size)
            + self.vocab_size * self.hidden_size
        )

    @property
    def num_joined(self) -> int:
        """Numbers in the matrices of queries, keys and values, and of gate and up."""
        heads = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        return self.num_layers * self.hidden_size * (heads + 2 * self.intermediate_size)

    @property
    def num_parameters(self) -> int:
        """Distinct parameters; norms of queries and keys are left out."""
        norms = (2 * self.num_layers + 1) * self.hidden_size
        return self.num_linear + norms + (0 if self.tied else self.vocab_size * self.hidden_size)

    @property
    def num_cached(self) -> int:
        """Numbers in the key-value cache per token."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    def saved(self, repeats: float) -> tuple[tuple[float, int], ...]:
        """What a forward pass keeps for the backward pass: how many arrays, and their numbers per token.

        `repeats`: keys attended to per computed token, more than 1 where branches share what they begin with.

        A layer: both norms' inputs, normalised rows and results (6 hidden); queries before and after their norm,
        turned, and the attended values twice (5 heads); keys likewise and values (4 kv heads); gate, up, the activated
        gate and the product."""
        return (
            (6 * self.num_layers, self.hidden_size),
            (5 * self.num_layers, self.num_heads * self.head_dim),
            ((2 + 2 * repeats) * self.num_layers, self.num_kv_heads * self.head_dim),
            (4 * self.num_layers, self.intermediate_size),
        )


def read_model_shape(config: RunConfig) -> ModelShape | None:
    """From `model.config`, or from the config.json of `model.path`; None where it does not name the usual sizes."""
    table: dict[str, Any] = {**config.model.config, "vocab_size": config.tokenizer.vocab_size}
    if config.model.path:
        try:
            table = json.loads((Path(config.model.path) / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
    try:
        heads, hidden = table["num_attention_heads"], table["hidden_size"]
        return ModelShape(
            vocab_size=table["vocab_size"],
            hidden_size=hidden,
            intermediate_size=table["intermediate_size"],
            num_layers=table["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=table.get("num_key_value_heads") or heads,
            head_dim=table.get("head_dim") or hidden // heads,
            tied=bool(table.get("tie_word_embeddings")),
        )
    except (KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Bytes."""

    weights: int
    """The policy, and beside it a reference copy and a separate critic where the recipe has them."""
    optimizer: int
    """Gradients and two AdamW moments of what is trained."""
    packed: int
    """The engine's packed or joined copies of weights, one per worker; 0 where it runs the model's modules."""
    cache: int
    """Keys and values, of all workers."""
    libraries: int
    """Of engine workers in processes of their own; 0 where the engine is in the trainer's."""
    sampling: int
    """At most, beside these, while sampling, of all workers."""
    training: int
    """At most, beside these, in a training step."""
    gradients: int
    """Of `optimizer`, what only a training step holds."""

    @property
    def peak(self) -> int:
        """Of engine and trainer together."""
        stays = self.weights + self.optimizer - self.gradients + self.packed + self.cache + self.libraries
        # What another process took for sampling, a training step cannot use again.
        return stays + (sum if self.libraries else max)((self.sampling, self.gradients + self.training))


def plan_memory(config: RunConfig, *, device: str = "cpu") -> MemoryPlan | None:
    """Peak memory of a recipe on `device`, "cpu" or "cuda"; None where the model's sizes are unknown."""
    shape = read_model_shape(config)
    if shape is None:
        return None
    item, engine, rollout = BYTES[config.model.dtype], config.engine, config.rollout
    parameters = shape.num_parameters * item
    needs_reference = bool(config.loss.kl.coefficient) or config.train.algorithm in ("dpo", "step_dpo")
    num_trained = 1 + (config.critic.kind == "separate")
    options = engine.options
    paged = engine.kind != "local"
    is_flex, has_graphs = options.get("attention") == "flex", bool(options.get("cuda_graphs"))
    gathers = paged and not is_flex
    copied = 0
    if paged and options.get("fused", True) and config.model.model_type in PACKED_FAMILIES:
        copied = shape.num_linear if config.model.dtype == "float32" and device == "cpu" else shape.num_joined
    workers = _count(options.get("num_workers", 2)) if engine.kind == "workers" else 1
    concurrency = -(-engine.max_concurrency // workers)
    tokens, pages = engine.max_concurrency * engine.max_context, 0
    if paged:
        pages = concurrency * -(-engine.max_context // PAGE_SIZE) + 1 + has_graphs
        tokens = workers * pages * PAGE_SIZE
    step = min(_count(options.get("max_batch_tokens", 1024)), concurrency * engine.max_context)
    widest = max(
        2 * shape.hidden_size + 4 * shape.intermediate_size,
        3 * (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim,
    )
    drawn = concurrency * shape.vocab_size * 4 * DRAWING_COPIES
    batch = max(config.train.micro_batch_tokens, rollout.max_tokens)
    sampled = min(rollout.max_tokens - 1, rollout.max_turns * rollout.max_turn_tokens)
    members = rollout.group_size if config.train.shared_prefix else 1
    computed = rollout.max_tokens - sampled + members * sampled  # of a group, were all that is not sampled shared
    share, repeats = members * sampled / computed, members * rollout.max_tokens / computed
    held = _held if device == "cpu" else float
    logits = LOGIT_COPIES * held(batch * share * shape.vocab_size * 4)
    sampling = step * widest * item + drawn
    batch_size = 1 << (concurrency - 1).bit_length()
    if is_flex:
        sampling += batch_size * pages * TABLE_BYTES
    if has_graphs:  # the logits of every batch size that is a power of two, and what one step needs
        sampling += batch_size * (2 * shape.vocab_size + widest) * item
    return MemoryPlan(
        weights=parameters * (num_trained + needs_reference),
        optimizer=3 * parameters * num_trained,
        packed=workers * copied * item,
        cache=tokens * shape.num_cached * item,
        libraries=workers * WORKER_BYTES if engine.kind == "workers" else 0,
        sampling=workers * (int(SAMPLING_HELD * sampling) + SAMPLING_BYTES)
        if device == "cpu"
        else sampling + GATHERED * item * gathers,
        training=int(sum(count * held(batch * width * item) for count, width in shape.saved(repeats)) + logits),
        gradients=parameters * num_trained,
    )


def _count(value: object) -> int:
    """An engine's option where it must be a number of 1 or more; the engine itself refuses any other."""
    return value if isinstance(value, int) and value > 0 else 1


def _held(num_bytes: float) -> float:
    """Resident bytes of one array of a training step."""
    return num_bytes if num_bytes >= LARGE else HELD * num_bytes
