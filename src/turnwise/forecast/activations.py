"""What a training step holds for a moment: arrays of a micro-batch's tokens by the sizes of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from turnwise.forecast.held import BYTES
from turnwise.forecast.settings import ForecastSettings
from turnwise.models.shape import ModelShape, Tower

MAX_MICRO_BATCH_TOKENS = 16384
"""What `train.micro_batch_tokens` = 0 counts as, and the most it becomes."""
LOGIT_COPIES = 3.2
"""Arrays of logits that live at once: log-probabilities, their exponentials, gradients."""
CHUNK_NUMBERS = 1 << 26
"""Most logits that exist at once (`models/head.py`)."""
REFERENCE_COPIES, TEACHER_COPIES = 1, 3
"""Further ones while a reference scores the same tokens beside the policy, and where the divergence from a teacher is
computed over the vocabulary."""
LARGE_ARRAY_BYTES = 32 << 20
"""Size from which glibc asks the kernel for an array's memory and gives it back at once."""
WASTE, ADAPTER_WASTE, RECOMPUTED_WASTE = 0.75, 1.5, 2.25
"""Of a training step's small arrays, the share that the C library holds besides: gradients and moments settle in what
the first backward passes free, and leave holes that no later array fits into. Measured 0.6 to 0.8. A layer with an
adapter computes three arrays for the one that it keeps (its own result, the adapter's, the sum), and leaves twice the
holes. Layers that are computed again are freed one after the other, each with the gradients of the one before settled
in its place: measured on one case."""
SCORE_BYTES = 4
"""Of one attention score: softmax computes in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of a full micro-batch: trajectories at their whole budget."""

    computed: int
    """At most: a whole trajectory is computed even if it is longer than `train.micro_batch_tokens`."""
    share: float
    """Of these, the share that was sampled and trains, and so has logits."""
    repeats: float
    """Keys attended to per computed token: above 1 if trajectories share a prefix."""
    row: int
    """Tokens of a trajectory."""


def count_micro_batch(settings: ForecastSettings, *, is_packed: bool = True) -> Tokens:
    """The micro-batch of a recipe; rows that are padded share nothing."""
    rollout, limit = settings.rollout, settings.train.micro_batch_tokens or MAX_MICRO_BATCH_TOKENS
    sampled = min(rollout.max_tokens - 1, rollout.max_turns * rollout.max_turn_tokens)
    members = rollout.group_size if settings.train.shared_prefix and is_packed else 1
    computed = rollout.max_tokens - sampled + members * sampled  # of a group that shares all it did not sample
    longest = max(rollout.max_tokens, settings.longest_document)
    return Tokens(
        computed=max(limit, longest),
        share=1.0 if settings.longest_document else members * sampled / computed,  # every token of a document trains
        repeats=members * rollout.max_tokens / computed,
        row=longest,
    )


def count_training(settings: ForecastSettings, shape: ModelShape, *, device: str, has_logits: bool = True) -> int:
    """Bytes that one process adds in a forward and backward pass over a full micro-batch: what the pass keeps, and
    logits unless `has_logits` is False (a critic has none)."""
    tokens = count_micro_batch(settings, is_packed=shape.is_packed)
    arrays = list(_list_saved(settings, shape, tokens))
    if settings.train.recompute_activations:  # the inputs of all layers, and one whole layer at a time
        inputs = tokens.computed * shape.hidden_size * BYTES[settings.model.dtype]
        arrays = [(count / shape.num_layers, size) for count, size in arrays] + [(shape.num_layers, inputs)]
    if has_logits:
        arrays += _list_logits(settings, shape, tokens)
    live = sum(count * size for count, size in arrays)
    # A tower's arrays are freed last, and its gradients settle in what the text's left.
    pictures = 0 if shape.tower is None else _count_pictures(settings, shape, tokens, shape.tower)
    if device != "cpu":
        return int(live + pictures)
    small = sum(count * size for count, size in arrays if size < LARGE_ARRAY_BYTES)
    # A large array takes what small ones left free, where there is that much, and is cut up with it.
    waste = WASTE if settings.model.lora is None else ADAPTER_WASTE
    if settings.train.recompute_activations:
        waste = RECOMPUTED_WASTE
    return int(live + pictures + waste * (small + min(small, live - small)))


def _count_pictures(settings: ForecastSettings, shape: ModelShape, tokens: Tokens, tower: Tower) -> float:
    """Bytes that the pictures of a micro-batch keep for the backward pass: their features, and unless the tower is
    frozen its activations. At most, everything that was not sampled shows pictures, each shown once."""
    pictures = tokens.computed * (1 - tokens.share) / tower.places
    kept = 0 if settings.model.freezes_vision else tower.num_saved
    return pictures * (kept + tower.places * shape.hidden_size) * BYTES[settings.model.dtype]


def _list_logits(settings: ForecastSettings, shape: ModelShape, tokens: Tokens) -> Iterable[tuple[float, float]]:
    """Numbers of arrays of logits in float32 that live at once, and the bytes of one: of all trained tokens of a
    micro-batch where these are few or the loss reads the whole distribution, else of one chunk of them, and the output
    layer's gradient of a chunk and of those before."""
    loss, item = settings.loss, BYTES[settings.model.dtype]
    by_gradient = settings.has_credit
    rows = tokens.computed * tokens.share
    chunks = -(-int(rows * shape.vocab_size) // CHUNK_NUMBERS)
    exact = by_gradient and bool(loss.teacher.path) and loss.teacher.kind == "exact"
    if chunks > 1 and not exact:
        yield LOGIT_COPIES, rows / chunks * shape.vocab_size * 4
        if settings.model.lora is None:
            yield 1, shape.num_head * max(item, 4)
            yield 1, shape.num_head * item
        return
    beside = by_gradient and loss.kl.coefficient > 0 and loss.kl.place == "loss"
    yield LOGIT_COPIES + REFERENCE_COPIES * beside + TEACHER_COPIES * exact, rows * shape.vocab_size * 4


def _list_saved(settings: ForecastSettings, shape: ModelShape, tokens: Tokens) -> Iterable[tuple[float, float]]:
    """Numbers of arrays that a forward pass keeps for the backward pass, and the bytes of one."""
    item = BYTES[settings.model.dtype]
    if shape.is_packed:
        is_adapted = settings.model.lora is not None
        for count, width, size in shape.list_saved_arrays(tokens.repeats, item, is_adapted=is_adapted):
            yield count, tokens.computed * width * size
        return
    rows = max(1, tokens.computed // tokens.row)
    pairs = rows * tokens.row**2
    if shape.measured is not None and shape.measured.saved is not None:
        per_token, per_pair = shape.measured.saved
        # As many arrays as a decoder has.
        count = sum(count for count, _, _ in shape.list_saved_arrays(1.0, item))
        yield count, rows * tokens.row * per_token / count
        if shape.num_attending:
            yield shape.num_attending, pairs * per_pair / shape.num_attending
        return
    for count, width, size in shape.list_saved_arrays(1.0, item):
        yield count, rows * tokens.row * width * size
    yield shape.num_attending, pairs * shape.num_heads * (SCORE_BYTES + (item if item < SCORE_BYTES else 0))
