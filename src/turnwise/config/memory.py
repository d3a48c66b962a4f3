"""Predict the peak memory of a recipe's engine and trainer from its numbers alone, without torch.

Counted are the tensors that live at the same time in the two phases of a step, with the shapes of Llama-like decoders:
what stays (weights, optimizer moments, packed weights, key-value cache) and the larger of what sampling and a training
step add. On a CPU the small arrays of a training step count `SMALL_ARRAY_FACTOR` times, because the C library keeps the
freed blocks of a backward pass for the next one. `benchmarks/memory.py` compares the prediction with a process.

On a GPU ("cuda") nothing is packed, but the engine joins some matrices and gathers larger pieces of the cache. Not
counted: what torch's allocator rounds up and keeps, the work space of kernels (attention without a fused kernel holds a
matrix of tokens by tokens), and the CUDA context, usually some hundred MiB."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnwise.config.catalog import find_model
from turnwise.config.roles import list_learners
from turnwise.config.run import RunConfig

BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
MAX_MICRO_BATCH_TOKENS = 16384
"""What `train.micro_batch_tokens` = 0 counts as, and the most it becomes."""
PAGE_SIZE = 32
"""Tokens per page of the paged engine."""
PACKED_FAMILIES = ("qwen3", "llama", "qwen2")
"""Model families that the paged engine runs fused. On a CPU in float32 it keeps a packed copy of all matrices;
elsewhere a copy in which queries, keys and values are one matrix, and so are gate and up. With
an adapter, which is merged, it is a copy of every matrix but the output layer."""
GATHERED = 1 << 26
"""Most numbers of the cache that the paged engine gathers at once on a GPU; on a CPU they are among
`SAMPLING_BYTES`."""
TABLE_BYTES = 4
"""Size of one entry of the table in which `engine.options.attention = "flex"` finds the place of a page in a sequence;
there is one per sequence and page of the cache."""
SMALL_ARRAY_FACTOR = 1.85
"""Resident over live memory of a training step's small arrays: measured 1.6 to 1.9 with glibc."""
LARGE_ARRAY_BYTES = 32 << 20
"""Size from which glibc returns an array to the kernel at once."""
SAMPLING_FACTOR = 1.3
"""Resident over live memory while sampling."""
SAMPLING_BYTES = 16 << 20
"""Buffers of the engine whose size does not depend on the model."""
LOGIT_COPIES = 3.2
"""Arrays of trained tokens by vocabulary that live at once: log-probabilities, their exponentials, gradients."""
DRAWING_COPIES = 6
"""Arrays of sampled rows by vocabulary that live at once."""
WORKER_BYTES = 260 << 20
"""Interpreter and libraries of one engine worker or rank, without what it shares with other processes: measured."""
GUEST_BYTES = 600 << 20
"""Interpreter and libraries of one process of vLLM, without weights and cache: measured."""
PLAYER_BYTES = 950 << 20
"""Interpreter, libraries and environments of one rollout process, without weights, cache and sampling: measured with
the search recipe."""
LIBRARY_BYTES = 400 << 20
"""Interpreter and libraries of the trainer's process; not part of a `MemoryPlan`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of a model that its memory depends on."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    tied: bool
    """Whether the output layer is the embedding."""
    model_type: str = "llama"
    """Name of the architecture in transformers."""
    num_experts: int = 1
    """Of a mixture, each of `intermediate_size`; 1 for a dense model."""
    num_chosen: int = 1
    """Experts that compute a token."""

    @property
    def num_linear(self) -> int:
        """Numbers in all matrices that a token is multiplied by, except the embedding."""
        attention = self.hidden_size * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        router = self.hidden_size * self.num_experts if self.num_experts > 1 else 0
        expert = 3 * self.hidden_size * self.intermediate_size
        return self.num_layers * (attention + router + self.num_chosen * expert) + self.vocab_size * self.hidden_size

    @property
    def num_joined(self) -> int:
        """Numbers in the matrices of queries, keys, values, gate and up."""
        heads = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        return self.num_layers * self.hidden_size * (heads + 2 * self.intermediate_size)

    @property
    def num_parameters(self) -> int:
        """Distinct parameters, without the norms of queries and keys."""
        norms = (2 * self.num_layers + 1) * self.hidden_size
        others = self.num_layers * (self.num_experts - self.num_chosen) * 3 * self.hidden_size * self.intermediate_size
        return self.num_linear + others + norms + (0 if self.tied else self.vocab_size * self.hidden_size)

    @property
    def num_cached(self) -> int:
        """Numbers in the key-value cache per token."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    def count_adapter(self, rank: int, target_modules: Sequence[str] | None) -> int:
        """Parameters of an adapter of `rank` on the layers of these names; None is all layers but the output layer."""
        attended, cached = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        sizes = {
            "q_proj": (self.hidden_size, attended),
            "k_proj": (self.hidden_size, cached),
            "v_proj": (self.hidden_size, cached),
            "o_proj": (attended, self.hidden_size),
            "gate_proj": (self.hidden_size, self.intermediate_size),
            "up_proj": (self.hidden_size, self.intermediate_size),
            "down_proj": (self.intermediate_size, self.hidden_size),
        }
        names = sizes if target_modules is None else sizes.keys() & target_modules
        output = "lm_head" in (target_modules or ()) and self.hidden_size + self.vocab_size
        return rank * (self.num_layers * sum(sum(sizes[name]) for name in names) + output)

    def list_saved_arrays(self, repeats: float) -> tuple[tuple[float, int], ...]:
        """Pairs of a number of arrays that a forward pass keeps for the backward pass, and their numbers per token.

        `repeats` is the keys attended to per computed token: above 1 if trajectories share a prefix.

        A layer: both norms' inputs, normalised rows and results (6 hidden); queries before and after their norm,
        turned, and the attended values twice (5 heads); keys likewise and values (4 kv heads); gate, up, the activated
        gate and the product, of every expert that computes a token."""
        return (
            (6 * self.num_layers, self.hidden_size),
            (5 * self.num_layers, self.num_heads * self.head_dim),
            ((2 + 2 * repeats) * self.num_layers, self.num_kv_heads * self.head_dim),
            (4 * self.num_layers * self.num_chosen, self.intermediate_size),
        )


def read_model_shape(config: RunConfig) -> ModelShape | None:
    """Read the sizes in `model.config`, or in the config.json of `model.path`; None if one of the usual sizes is
    missing."""
    table: dict[str, Any] = {"vocab_size": config.tokenizer.vocab_size, **config.model.config}
    if config.model.path:
        folder = find_model(config.model.path)
        try:
            table = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
    try:
        heads, hidden = table["num_attention_heads"], table["hidden_size"]
        num_experts = table.get("num_experts") or table.get("num_local_experts") or 1
        return ModelShape(
            vocab_size=table["vocab_size"],
            hidden_size=hidden,
            intermediate_size=table.get("moe_intermediate_size") or table["intermediate_size"],
            num_layers=table["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=table.get("num_key_value_heads") or heads,
            head_dim=table.get("head_dim") or hidden // heads,
            tied=bool(table.get("tie_word_embeddings")),
            model_type=table.get("model_type", config.model.model_type),
            num_experts=num_experts,
            num_chosen=table["num_experts_per_tok"] if num_experts > 1 else 1,
        )
    except (KeyError, TypeError):
        return None


def count_trained(config: RunConfig, shape: ModelShape) -> int:
    """Parameters of the policy that are trained: all, or those of its adapter. Layers of an adapter that Llama-like
    decoders lack are not counted, and an adapter that cannot be read counts as the default one."""
    lora = config.model.lora
    if lora is None:
        return shape.num_parameters
    rank, targets = lora.rank, lora.target_modules
    if lora.path:
        try:
            stored = json.loads((Path(lora.path) / "adapter_config.json").read_text(encoding="utf-8"))
            rank, targets = int(stored["r"]), [str(name).split(".")[-1] for name in stored["target_modules"]]
        except (OSError, ValueError, KeyError, TypeError):
            pass
    return shape.count_adapter(rank, None if isinstance(targets, str) else targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Predicted memory in bytes."""

    weights: int
    """Of the policy, and of a reference copy and a separate critic if the recipe has them; with `model.lora` these
    copy the adapter only. With `train.ranks` above 1 ranks hold a part each, and the trainer's process the policy; each
    rollout process and each of vLLM holds the policy too."""
    optimizer: int
    """Gradients and two AdamW moments of the trained parameters, an adapter's where there is one."""
    packed: int
    """The engine's packed or joined copies of weights, one per worker; 0 if it runs the model's modules."""
    cache: int
    """Keys and values of all workers."""
    libraries: int
    """Interpreters and libraries of engine workers, ranks and rollout processes; 0 if all share a process."""
    sampling: int
    """Further memory while all workers sample, at most."""
    training: int
    """Further memory in a training step, at most."""
    gradients: int
    """The part of `optimizer` that only a training step holds."""

    @property
    def peak(self) -> int:
        """The most that engine and trainer take together."""
        stays = self.weights + self.optimizer - self.gradients + self.packed + self.cache + self.libraries
        # A training step cannot reuse what worker processes took for sampling.
        return stays + (sum if self.libraries else max)((self.sampling, self.gradients + self.training))


def plan_memory(config: RunConfig, *, device: str = "cpu") -> MemoryPlan | None:
    """Predict the memory of a recipe on `device`, "cpu" or "cuda"; None if the model's sizes are unknown.

    `train.micro_batch_tokens` = 0 counts as 16384, the most it may become.
    """
    shape, players = read_model_shape(config), config.rollout.num_workers
    if shape is None:
        return None
    plan = _plan_run(config, shape, device)
    if not players:
        return plan
    each = _plan_run(_strip(config), shape, device)
    return replace(
        plan,
        weights=plan.weights + players * each.weights,
        packed=plan.packed + players * each.packed,
        cache=plan.cache + players * each.cache,
        libraries=plan.libraries + players * (PLAYER_BYTES + each.libraries),
        sampling=plan.sampling + players * each.sampling,
    )


def _plan_run(config: RunConfig, shape: ModelShape, device: str) -> MemoryPlan:
    """Everything but rollout processes."""
    item, engine, rollout = BYTES[config.model.dtype], config.engine, config.rollout
    parameters = shape.num_parameters * item
    # What is trained, and copied for another policy. An adapter has at least float32.
    is_adapted = config.model.lora is not None
    trained = count_trained(config, shape) * (max(item, 4) if is_adapted else item)
    kept = parameters + trained if is_adapted else parameters
    needs_reference = bool(config.loss.kl.coefficient) or config.train.algorithm in ("dpo", "step_dpo")
    num_trained = 1 + (config.critic.kind == "separate")
    num_copies = num_trained - 1 + needs_reference
    options = engine.options
    is_outside = engine.kind in ("vllm", "server")
    paged = engine.kind != "local" and not is_outside
    is_flex, has_graphs = options.get("attention") == "flex", bool(options.get("cuda_graphs"))
    gathers = paged and not is_flex
    copied = 0
    if paged and options.get("fused", True) and shape.model_type in PACKED_FAMILIES:
        copied = shape.num_joined
        if config.model.dtype == "float32" and device == "cpu":
            copied = shape.num_linear
        elif is_adapted:
            copied = shape.num_linear - shape.vocab_size * shape.hidden_size
    workers = _count(options.get("num_workers", 2)) if engine.kind == "workers" else 1
    concurrency = -(-engine.max_concurrency // workers)
    tokens, pages = 0 if is_outside else engine.max_concurrency * engine.max_context, 0
    if paged:
        pages = concurrency * -(-engine.max_context // PAGE_SIZE) + 1 + has_graphs
        tokens = workers * pages * PAGE_SIZE
    step = min(_count(options.get("max_batch_tokens", 1024)), concurrency * engine.max_context)
    widest = max(
        2 * shape.hidden_size + 4 * shape.intermediate_size,
        3 * (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim,
    )
    drawn = concurrency * shape.vocab_size * 4 * DRAWING_COPIES
    batch = max(config.train.micro_batch_tokens or MAX_MICRO_BATCH_TOKENS, rollout.max_tokens)
    sampled = min(rollout.max_tokens - 1, rollout.max_turns * rollout.max_turn_tokens)
    members = rollout.group_size if config.train.shared_prefix else 1
    computed = rollout.max_tokens - sampled + members * sampled  # of a group that shares all it did not sample
    share, repeats = members * sampled / computed, members * rollout.max_tokens / computed
    to_resident = _to_resident if device == "cpu" else float
    saved = sum(count * to_resident(batch * width * item) for count, width in shape.list_saved_arrays(repeats))
    if config.train.recompute_activations:  # the inputs of all layers, and one whole layer at a time
        saved = saved / shape.num_layers + shape.num_layers * to_resident(batch * shape.hidden_size * item)
    logits = LOGIT_COPIES * to_resident(batch * share * shape.vocab_size * 4)
    sampling = 0 if is_outside else step * widest * item + drawn
    batch_size = 1 << (concurrency - 1).bit_length()
    if is_flex:
        sampling += batch_size * pages * TABLE_BYTES
    if has_graphs:  # the logits of every batch size that is a power of two, and the arrays of one step
        sampling += batch_size * (2 * shape.vocab_size + widest) * item
    learners = 1 + len(list_learners(config))  # each with weights, moments and an engine of its own
    ranks = config.train.ranks
    # Rows that ranks keep in the memory of the CPU take none of a GPU's, but for the layer that computes.
    is_away = config.train.offload_to_cpu and device != "cpu"
    held = 0 if is_away else kept * (ranks > 1) + trained * num_copies
    processes = (workers if workers > 1 else 0) + (learners * ranks if ranks > 1 else 0)
    guests = learners * _count(options.get("num_workers", 1)) if engine.kind == "vllm" else 0
    return MemoryPlan(
        weights=learners * (kept + held) + guests * parameters,
        optimizer=0 if is_away else (2 * learners + 1) * trained * num_trained,
        packed=learners * workers * copied * item,
        cache=learners * tokens * shape.num_cached * item + guests * (_count(options.get("cache_mib", 512)) << 20),
        libraries=processes * WORKER_BYTES + guests * GUEST_BYTES,
        sampling=workers * (int(SAMPLING_FACTOR * sampling) + SAMPLING_BYTES)
        if device == "cpu"
        else sampling + GATHERED * item * gathers,
        # With copies to take a step back.
        training=ranks * int(saved + logits) + (0 if is_away else (learners - 1) * 3 * trained * num_trained),
        gradients=0 if is_away else trained * num_trained,
    )


def _strip(config: RunConfig) -> RunConfig:
    """What one rollout process runs: the policy, and an engine for its share of the conversations."""
    engine, rollout, loss = config.engine, config.rollout, config.loss
    share = -(-engine.max_concurrency // rollout.num_workers)
    sections = {
        "engine": engine.model_copy(update={"max_concurrency": share}),
        "rollout": rollout.model_copy(update={"num_workers": 0}),
        "train": config.train.model_copy(update={"ranks": 1, "algorithm": "policy_gradient"}),
        "critic": config.critic.model_copy(update={"kind": "none"}),
        "loss": loss.model_copy(update={"kl": loss.kl.model_copy(update={"coefficient": 0.0})}),
    }
    return config.model_copy(update=sections)


def _to_resident(num_bytes: float) -> float:
    """Resident bytes that one array of a training step costs with glibc."""
    return num_bytes if num_bytes >= LARGE_ARRAY_BYTES else SMALL_ARRAY_FACTOR * num_bytes


def _count(value: object) -> int:
    """A free option that should be a count, for a plan that comes before it is checked."""
    return value if isinstance(value, int) and value > 0 else 1
