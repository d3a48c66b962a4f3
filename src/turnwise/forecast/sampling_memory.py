"""What the engine of a process holds: packed weights, the cache, and the arrays of one step."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.config.engine_kinds.kind import read_count
from turnwise.forecast.held import BYTES
from turnwise.forecast.settings import ForecastSettings
from turnwise.models.shape import ModelShape

PAGE_SIZE = 32
"""Tokens per page of the paged engine."""
PACKED_FAMILIES = ("qwen3", "llama", "qwen2", "mistral")
"""Model families that the paged engine runs fused. On a CPU in float32 it keeps a packed copy of all matrices;
elsewhere a copy in which queries, keys and values are one matrix, and so are gate and up. With
an adapter, which is merged, it is a copy of every matrix but the output layer."""
GATHERED = 1 << 26
"""Most numbers of the cache that the paged engine gathers at once on a GPU; on a CPU they are among
`SAMPLING_BYTES`."""
TABLE_BYTES = 4
"""Size of one entry of the table in which `engine.options.attention = "flex"` finds the place of a page in a sequence;
there is one per sequence and page of the cache."""
SAMPLING_FACTOR = 1.3
"""Resident over live memory while sampling."""
SAMPLING_BYTES = 16 << 20
"""Buffers of the engine whose size does not depend on the model."""
STATES_PER_CONVERSATION = 3
"""Caches of a model that takes the generic path, in units of `engine.max_concurrency`: of its conversations, of the
prompts that siblings go on from, and of the rows that are copied where conversations join."""
MAX_PICTURES, ENCODED_AT_ONCE = 1024, 16
"""Pictures whose features an engine keeps (`engines/paged/runner.py`), and that a tower encodes at once
(`models/vision/eyes.py`)."""
DRAWING_COPIES = 6
"""Arrays of sampled rows by vocabulary that live at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """Bytes of one engine, of all its workers together."""

    packed: int
    """Packed or joined copies of weights, one per worker; 0 if it runs the model's modules."""
    cache: int
    """Keys and values of all tokens, and the states of recurrent layers of all conversations."""
    sampling: int
    """Further, while all workers sample, at most."""


def plan_engine(settings: ForecastSettings, shape: ModelShape, *, device: str) -> EngineMemory:
    """The memory of the recipe's engine on `device`, "cpu" or "cuda"; nothing for engines that are other programs."""
    item, engine, options = BYTES[settings.model.dtype], settings.engine, settings.engine.options
    kind = settings.engine_kind
    if kind.has_weights_outside:
        return EngineMemory(packed=0, cache=0, sampling=SAMPLING_BYTES if device == "cpu" else 0)
    footprint = kind.footprint(options)
    workers = footprint.num_workers
    concurrency = -(-engine.max_concurrency // workers)
    paged = footprint.has_pages and shape.is_packed
    is_flex, has_graphs = options.get("attention") == "flex", bool(options.get("cuda_graphs"))
    pages = concurrency * -(-engine.max_context // PAGE_SIZE) + 1 + has_graphs if paged else 0
    tokens = workers * pages * PAGE_SIZE if paged else engine.max_concurrency * engine.max_context
    if not shape.is_packed:
        tokens *= STATES_PER_CONVERSATION
    # States are kept in float32 at least.
    states = STATES_PER_CONVERSATION * engine.max_concurrency * shape.num_kept * max(item, 4)
    step = min(read_count(options.get("max_batch_tokens"), 1024), concurrency * engine.max_context)
    widest = max(
        2 * shape.hidden_size + 4 * shape.intermediate_size * shape.num_chosen,
        3 * (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim,
    )
    sampling = step * widest * item + concurrency * shape.vocab_size * 4 * DRAWING_COPIES
    if (tower := shape.tower) is not None:
        # Features of the pictures that conversations showed last, and those that are encoded together.
        kept = min(MAX_PICTURES, concurrency * engine.max_context // tower.places)
        sampling += (kept * tower.places * shape.hidden_size + ENCODED_AT_ONCE * tower.num_live) * item
    batch_size = 1 << (concurrency - 1).bit_length()
    if not shape.is_packed:  # the scores of a whole context in one layer, and logits of all its tokens
        sampling += shape.num_heads * engine.max_context**2 * 4 + engine.max_context * shape.vocab_size * 4
    if paged and is_flex:
        sampling += batch_size * pages * TABLE_BYTES
    if paged and has_graphs:  # the logits of every batch size that is a power of two, and the arrays of one step
        sampling += batch_size * (2 * shape.vocab_size + widest) * item
    on_gpu = sampling + GATHERED * item * (paged and not is_flex)
    on_cpu = workers * (int(SAMPLING_FACTOR * sampling) + SAMPLING_BYTES)
    return EngineMemory(
        packed=workers * _count_packed(settings, shape, device) * item if paged else 0,
        cache=tokens * shape.num_cached * item + states,
        sampling=on_cpu if device == "cpu" else on_gpu,
    )


def _count_packed(settings: ForecastSettings, shape: ModelShape, device: str) -> int:
    """Numbers in the engine's copy of weights."""
    if (
        not settings.engine.options.get("fused", True)
        or shape.tower is not None
        or shape.model_type not in PACKED_FAMILIES
    ):
        return 0
    if settings.model.dtype == "float32" and device == "cpu":
        return shape.num_linear
    if settings.model.lora is not None:
        return shape.num_linear - shape.num_head
    return shape.num_joined
