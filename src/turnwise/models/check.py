"""Chooses a model's path by running it: on two short sequences together, compared with each alone.

"Alone" means the model's own attention (`eager`) on one sequence. The fast path is tried with the sequences laid end to
end and as a prefix tree; `engines.check` adds the engine's steps. A model that differs there takes the generic path,
which is tried with padded rows and with the model's own cache. A model that is not causal is refused. All checks run in
the model's dtype; a model in a short format that is not large is checked in float32 first, and in its own format only
for gross differences.

A difference is the largest, over tokens, of the root mean square over the vocabulary of the difference of
log-probabilities, in units of their standard deviation: this does not depend on how peaked a model's distributions are.
(The median over tokens for a mixture of experts in a short format.) Sliding windows, soft caps and the lengths at which
a rope changes are lowered while the check runs, so that short sequences cross them, and matrices of random weights are
scaled up, so that their effect is visible."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from turnwise.core.errors import ConfigError, EngineError, boundary
from turnwise.models.caches import Caches
from turnwise.models.forward import Runs, compute_logits
from turnwise.models.paths import ModelPath, find_path, set_path
from turnwise.models.rope import as_long_as, attach_rope, depends_on_length
from turnwise.models.routing import follow, is_mixture
from turnwise.models.vision.table import looks_ahead

SHARED, FIRST, SECOND, BEGINNING = 7, 29, 21, 16
"""Number of tokens: in the common prefix, in each sequence, and in a prefix of the second."""
SHORT = 5
"""Length to which windows are lowered."""
LIMIT = 24
"""The length at which a rope changes during the check: between the lengths of the sequences."""
BOUNDS = {torch.float64: 5e-4, torch.float32: 5e-4, torch.bfloat16: 0.08, torch.float16: 0.02}
"""Largest difference attributed to rounding, by dtype; transformers computes the softmax of float64 in float32."""
HALF = (torch.bfloat16, torch.float16)
MAX_WIDENED = 500_000_000
"""Parameters up to which a model in a short format is checked in float32 as well, in a copy."""
GROSS = 0.3
"""A difference too large for rounding."""
LOOK_AHEAD = 5e-3
"""Largest allowed effect of later tokens on earlier ones, in any format."""
NOISE = 4.0
"""Differences up to this multiple of that between a sequence and its own prefix also count as rounding: a format with
few digits rounds some models more than others."""
Distributions = Sequence[torch.Tensor]
"""Log-probabilities `[N, V]` after every token of each sequence."""


def choose_path(model: PreTrainedModel) -> PreTrainedModel:
    """Set `model` to the fast path if it computes the same there as alone, else to the generic one; returns it.

    Raises ConfigError, naming the layer that differs, for a model that neither path computes correctly.
    """
    attach_rope(model)
    started = time.perf_counter()
    wide: ModelPath | None = None
    if is_widened(model):
        # In a format with few digits, rounding hides a weak cap or a neighbour of little weight, and sends tokens to
        # other experts; then the model only has to run.
        wide = _find_path(copy.deepcopy(model).float())
    path = _find_path(model, wide)
    set_path(model, replace(path, seconds=time.perf_counter() - started))
    if looks_ahead(model.config.model_type):
        return fall_back(model, "the places of a picture see each other in both directions")
    return model


def is_widened(model: PreTrainedModel) -> bool:
    """Whether a model is in a short format and small enough to be checked in float32 as well."""
    return model.dtype in HALF and sum(p.numel() for p in model.parameters()) <= MAX_WIDENED


def _find_path(model: PreTrainedModel, wide: ModelPath | None = None) -> ModelPath:
    """Return the path found for a model in its dtype; `wide` is the one found in float32."""
    with lower_limits(model), raise_weights(model):
        set_path(model, ModelPath(kind="generic", reason="checking"))
        reference = Reference(model, is_known=wide is not None)
        if wide is not None and wide.kind == "generic":
            return _both(_try_generic(model, reference, wide.reason), wide)
        gaps, reason = _try_fast(model, reference)
        return ModelPath(gaps=gaps) if reason is None else _try_generic(model, reference, reason)


def _both(path: ModelPath, wide: ModelPath) -> ModelPath:
    """Return the generic path with the cache uses that are allowed both in the model's format and in float32."""
    return replace(
        path,
        pads=path.pads and wide.pads,
        steps=path.steps and wide.steps,
        extends=path.extends and wide.extends,
        merges=path.merges and wide.merges,
        batches=path.batches and wide.batches,
    )


class Reference:
    """A model's results alone, and the differences from them that count as rounding. The model's own attention must be
    on."""

    def __init__(self, model: PreTrainedModel, *, is_known: bool = False) -> None:
        """`is_known`: whether the check passed in float32, so that only differences too large for rounding count.

        Raises ConfigError if the model cannot be run, or its results depend on later tokens."""
        self.sequences = draw_sequences(model)
        # In a short format, rounding sends some tokens to other experts, even alone.
        self.quantile = 0.5 if is_known or (is_mixture(model) and model.dtype in HALF) else 1.0
        name = type(model).__name__
        with boundary(ConfigError, f"{name} cannot be run by transformers here"), torch.inference_mode():
            self.alone = [run_alone(model, ids) for ids in self.sequences]
            with as_long_as(model, FIRST):  # else a prefix is turned according to its own length
                second = self.sequences[1]
                whole, beginning = run_alone(model, second), run_alone(model, second[:BEGINNING])
                # Of equal length, so that kernels round alike and only looking ahead makes a difference.
                other = run_alone(model, torch.cat([second[:BEGINNING], second[: SECOND - BEGINNING]]))
        self._spread = max(float(one.float().std(-1).mean()) for one in self.alone)
        noise, _ = self.compare([beginning], [whole[:BEGINNING]])
        ahead, _ = self.compare([other[:BEGINNING]], [whole[:BEGINNING]])
        if not all(torch.isfinite(one).all() for one in self.alone):
            raise ConfigError(
                f"{name} computes numbers that are not finite; its weights are damaged, or its dtype has too small a "
                "range for them"
            )
        if ahead > LOOK_AHEAD:
            raise ConfigError(
                f"{name} is not causal: its predictions depend on later tokens ({ahead:.2g} of their spread). Use a "
                "decoder; if an encoder's class supports it, set is_decoder=true in its config"
            )
        if noise > (GROSS if model.dtype in HALF else BOUNDS[model.dtype]):
            raise ConfigError(
                f"{name} computes the start of a sequence differently when it is alone ({noise:.2g} of its spread): "
                "its predictions depend on the final length of the sequence, so it cannot be sampled token by token"
            )
        self.bound = max(GROSS if is_known else BOUNDS[model.dtype], NOISE * min(noise, GROSS))

    def compare(self, computed: Distributions, expected: Distributions | None = None) -> tuple[float, float]:
        """Return the difference in units of the spread, and the largest difference of a predicted token's
        log-probability in nats.

        `expected` None: what the model computes alone."""
        relative, nats = 0.0, 0.0
        for one, other, ids in zip(computed, expected or self.alone, self.sequences, strict=False):
            if not torch.isfinite(one).all():
                return float("inf"), float("inf")
            gap = (one - other).double()
            by_token = gap.square().mean(-1).sqrt() / max(self._spread, 1e-9)
            relative = max(relative, float(by_token.quantile(self.quantile)))
            targets = ids[1 : len(one)][:, None].to(gap.device)
            nats = max(nats, float(gap[: len(targets)].gather(1, targets).abs().max()))
        return relative, nats

    def compare_row(self, row: torch.Tensor, index: int, at: int) -> tuple[float, float]:
        """Return the same for the log-probabilities `row [V]` after token `at` of one sequence."""
        gap = (row - self.alone[index][at]).double()
        if not torch.isfinite(row).all():
            return float("inf"), float("inf")
        following = int(self.sequences[index][min(at + 1, len(self.sequences[index]) - 1)])
        return float(gap.square().mean().sqrt()) / max(self._spread, 1e-9), float(gap[following].abs())


def draw_sequences(model: PreTrainedModel) -> list[torch.Tensor]:
    """Draw two sequences of token ids with a common prefix, always the same for a vocabulary."""
    config = model.config.get_text_config()
    size = min(model.get_input_embeddings().weight.shape[0], getattr(config, "vocab_size", None) or 1 << 60)
    draw = torch.Generator().manual_seed(0)
    # Ids at the end of a vocabulary may be padding, images or other special tokens of the model.
    ids = torch.randint(min(3, size - 1), max(min(size, 4), int(0.9 * size)), (FIRST + SECOND,), generator=draw)
    first, second = ids.to(model.device).split([FIRST, SECOND])
    second[:SHARED] = first[:SHARED]
    return [first, second]


def run_alone(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """Compute log-probabilities `[N, V]` after every token, with the model's own attention."""
    follow(None)
    return to_logprobs(model(input_ids=ids[None], use_cache=False).logits[0])


def to_logprobs(logits: torch.Tensor) -> torch.Tensor:
    """Compute log-probabilities in float32, or in float64 if the model is."""
    return (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)


# ------------------------------------------------------------------------------------------------------ the fast path


def _try_fast(model: PreTrainedModel, reference: Reference) -> tuple[dict[str, float], str | None]:
    """Return the gap of each trial by name, and why the fast path is not taken; None if it is."""
    set_path(model, ModelPath())
    gaps: dict[str, float] = {}
    ways = {"packed": lay_packed(reference.sequences)}
    if not depends_on_length(model):  # else sequences of several lengths share no tokens
        ways["shared"] = lay_shared(reference.sequences)
    for name, runs in ways.items():
        try:
            with boundary(EngineError, "its attention"), torch.inference_mode():
                logits, _ = compute_logits(model, runs[0], torch.arange(len(runs[0].token_ids), device=model.device))
        except EngineError as error:
            return gaps | {name: float("inf")}, str(error)
        everything = to_logprobs(logits)
        relative, gaps[name] = reference.compare([everything[path] for path in runs[1]])
        if relative > reference.bound:
            layer = name_layer(model, reference.sequences)
            return gaps, f"{layer} mixes tokens of {name} sequences ({gaps[name]:.2g} nats)"
    return gaps, None


def lay_packed(sequences: Sequence[torch.Tensor]) -> tuple[Runs, list[torch.Tensor]]:
    """Lay the sequences end to end; returns the runs and the places of each sequence."""
    lengths = [len(ids) for ids in sequences]
    places = torch.arange(sum(lengths), device=sequences[0].device).split(lengths)
    positions = torch.cat([place - place[0] for place in places])
    runs = Runs(token_ids=torch.cat(list(sequences)), positions=positions, lengths=lengths, seen=None, num_seen=lengths)
    return runs, list(places)


def lay_shared(sequences: Sequence[torch.Tensor]) -> tuple[Runs, list[torch.Tensor]]:
    """Lay the sequences out as a prefix tree; returns the runs and the places of each sequence."""
    first, second = sequences
    ids = torch.cat([first, second[SHARED:]])
    everywhere = torch.arange(len(ids), device=ids.device)
    paths = [everywhere[:FIRST], torch.cat([everywhere[:SHARED], everywhere[FIRST:]])]
    positions = torch.cat([everywhere[:FIRST], everywhere[SHARED:SECOND]])
    runs = Runs(
        token_ids=ids,
        positions=positions,
        lengths=[FIRST, SECOND - SHARED],
        seen=torch.cat(paths),
        num_seen=[FIRST, SECOND],
    )
    return runs, paths


@torch.inference_mode()
def name_layer(model: PreTrainedModel, sequences: Sequence[torch.Tensor]) -> str:
    """Return the class and name of the first part of a layer whose output for the second sequence, after the first one
    on the fast path, differs from the model's own."""
    second, (packed, places) = sequences[1], lay_packed(sequences)
    everything = torch.arange(len(packed.token_ids), device=model.device)
    fast = find_path(model)
    set_path(model, ModelPath(kind="generic", reason="checking"))
    with _watch(model) as expected:
        run_alone(model, second)
    set_path(model, fast)
    with _watch(model) as found:
        compute_logits(model, packed, everything)
    for name, alone in expected.items():
        if name not in found or found[name].shape[1:2] != (len(everything),) or alone.shape[1] != len(second):
            continue
        gap = (found[name][0, places[1]] - alone[0]).float()
        if float(gap.abs().max()) > 10 * BOUNDS[model.dtype] * max(float(alone.float().std()), 1e-6):
            part = re.match(r"(.*?\.\d+\.[^.]+)", name)
            path = part[1] if part else name
            return f"{type(model.get_submodule(path)).__name__} ({path})"
    return type(model).__name__


@contextmanager
def _watch(model: PreTrainedModel) -> Iterator[dict[str, torch.Tensor]]:
    """Within the context, record the outputs of all parts of layers by name, in the order in which they finish."""
    seen: dict[str, torch.Tensor] = {}
    hooks = [
        module.register_forward_hook(_note(seen, name))
        for name, module in model.named_modules()
        if re.search(r"\.\d+\.", name)
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _note(seen: dict[str, torch.Tensor], name: str) -> Callable[[Any, Any, Any], None]:
    def note(_: Any, __: Any, output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple) else output
        if isinstance(tensor, torch.Tensor) and tensor.ndim >= 3:
            seen.setdefault(name, tensor)

    return note


# -------------------------------------------------------------------------------------------------- the generic path


def _try_generic(model: PreTrainedModel, reference: Reference, reason: str) -> ModelPath:
    """Return the generic path with the operations it allows, and `reason` for it."""
    name = type(model).__name__
    path = ModelPath(kind="generic", reason=reason)
    set_path(model, path)
    gaps: dict[str, float] = {}
    first, second = reference.sequences
    with boundary(ConfigError, f"{name} takes neither path: {reason}; its own attention"), torch.inference_mode():
        rows = torch.stack([first, functional.pad(second, (0, FIRST - SECOND))])
        padded = to_logprobs(model(input_ids=rows, use_cache=False).logits)
    relative, gaps["padded"] = reference.compare([padded[0], padded[1, :SECOND]])
    caches = Caches(model)
    steps, gaps["cached"] = _try_cache(reference, lambda: _run_steps(caches, reference.sequences))
    extends, gap = _try_cache(reference, lambda: _run_extended(caches, reference.sequences)) if steps else (False, 0.0)
    merges, merged = _try_cache(reference, lambda: _run_merged(caches, reference.sequences)) if steps else (False, 0.0)
    batches = steps and (merges or _try_cache(reference, lambda: _run_merged(caches, reference.sequences, later=0))[0])
    if steps:
        gaps |= {"extended": gap, "merged": merged}
    # The gap of an operation that is not used does not belong to the path.
    used = {"padded": relative <= reference.bound, "cached": steps, "extended": extends, "merged": merges}
    return ModelPath(
        kind="generic",
        reason=reason,
        pads=used["padded"],
        steps=steps,
        extends=extends,
        merges=merges,
        batches=batches,
        gaps={name: gap for name, gap in gaps.items() if used[name]},
    )


def _try_cache(reference: Reference, run: Callable[[], Distributions]) -> tuple[bool, float]:
    """Whether a use of the cache agrees, and the gap in nats; inf if it fails."""
    try:
        with boundary(EngineError, "the model's cache"), torch.inference_mode():
            computed = run()
    except EngineError:
        return False, float("inf")
    relative, nats = reference.compare(computed)
    return relative <= reference.bound, nats


def _run_steps(caches: Caches, sequences: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Run each sequence by itself: a prefix, then token by token."""
    found = []
    for ids in sequences:
        logits, state = caches.begin(ids[None, :SHARED])
        parts = [logits]
        for at in range(SHARED, len(ids)):
            logits, (state,) = caches.step([state], ids[at : at + 1, None])
            parts.append(logits)
        found.append(to_logprobs(torch.cat(parts, 1)[0]))
    return found


def _run_extended(caches: Caches, sequences: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Run each sequence by itself, in three pieces of several tokens with single tokens between them."""
    found = []
    for ids in sequences:
        logits, state = caches.begin(ids[None, :SHARED])
        parts, at = [logits], SHARED
        for count in (1, 4, 1, len(ids) - SHARED - 6):
            logits, state = caches.extend(state, ids[None, at : at + count])
            parts.append(logits)
            at += count
        found.append(to_logprobs(torch.cat(parts, 1)[0]))
    return found


def _run_merged(caches: Caches, sequences: Sequence[torch.Tensor], later: int = 4) -> list[torch.Tensor]:
    """Run both sequences token by token together, the second starting `later` tokens after the first; the first
    continues alone."""
    begun = [caches.begin(ids[None, : SHARED + later * index]) for index, ids in enumerate(sequences)]
    parts = [[logits] for logits, _ in begun]
    states = [state for _, state in begun]
    lengths = [SHARED, SHARED + later]
    while lengths[0] < len(sequences[0]):
        open_ = [index for index in range(2) if lengths[index] < len(sequences[index])]
        tokens = torch.stack([sequences[index][lengths[index] : lengths[index] + 1] for index in open_])
        logits, stepped = caches.step([states[index] for index in open_], tokens)
        for row, index in enumerate(open_):
            parts[index].append(logits[row : row + 1])
            states[index] = stepped[row]
            lengths[index] += 1
    return [to_logprobs(torch.cat(part, 1)[0]) for part in parts]


# ------------------------------------------------------------------------------------------------------ limits


@contextmanager
def lower_limits(model: PreTrainedModel) -> Iterator[None]:
    """Within the context, lower sliding windows to `SHORT` tokens, rope changes to `LIMIT` and soft caps to 1, where
    they were larger."""
    changed: list[tuple[Any, str, Any]] = []

    def lower(owner: Any, name: str, limit: int) -> None:
        value = owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > limit:
            changed.append((owner, name, value))
            _put(owner, name, type(value)(limit))

    def lower_caps(owner: Any) -> None:
        for name in [name for name in vars(owner) if "softcap" in name]:
            lower(owner, name, 1)

    configs = {id(model.config): model.config}
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None:
            configs.setdefault(id(config), config)
        lower(module, "sliding_window", SHORT)
        lower_caps(module)
        if "dynamic" in str(getattr(module, "rope_type", "")):
            for owner, name in ((module, "original_max_seq_len"), (module, "max_seq_len_cached")):
                lower(owner, name, LIMIT)
            lower(config, "max_position_embeddings", LIMIT)
    for config in configs.values():
        lower_caps(config)
        for name in ("sliding_window", "attention_chunk_size"):
            lower(config, name, SHORT)
        parameters = getattr(config, "rope_parameters", None)
        if isinstance(parameters, dict):
            for table in (parameters, *(each for each in parameters.values() if isinstance(each, dict))):
                if table.get("rope_type") == "longrope":
                    lower(table, "original_max_position_embeddings", LIMIT)
    try:
        yield
    finally:
        for owner, name, value in changed:
            _put(owner, name, value)


@contextmanager
def raise_weights(model: PreTrainedModel) -> Iterator[None]:
    """Within the context, scale matrices of random weights that are too small to change anything up to the size in a
    trained model, one over the root of their inputs: a layer's mixing is visible before it has learned anything."""
    kept: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            least = (parameter.shape[-1] if parameter.ndim < 4 else parameter[0].numel()) ** -0.5
            spread = float(parameter.detach().float().std())
            if 0 < spread < 0.5 * least:
                kept.append((parameter, parameter.data))
                parameter.data = parameter.data * (least / spread)
    try:
        yield
    finally:
        for parameter, original in kept:
            parameter.data = original


def _put(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def fall_back(model: PreTrainedModel, reason: str) -> PreTrainedModel:
    """Set a model whose fast path differs somewhere to the generic one, for this `reason`; returns it. Raises
    ConfigError if that differs too."""
    started = time.perf_counter()
    with lower_limits(model), raise_weights(model):
        set_path(model, ModelPath(kind="generic", reason="checking"))
        path = _try_generic(model, Reference(model), reason)
    return set_path(model, replace(path, seconds=time.perf_counter() - started))


def note_gap(model: PreTrainedModel, name: str, nats: float) -> PreTrainedModel:
    """Add a gap that was measured elsewhere to the model's path; returns the model."""
    path = find_path(model)
    return set_path(model, replace(path, gaps={**path.gaps, name: nats}))


@contextmanager
def with_own_attention(model: PreTrainedModel) -> Iterator[None]:
    """Within the context, the model computes with its own attention."""
    path = find_path(model)
    set_path(model, ModelPath(kind="generic", reason="checking"))
    try:
        yield
    finally:
        set_path(model, path)
