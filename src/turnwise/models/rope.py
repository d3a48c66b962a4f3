"""Rotary embeddings whose frequencies depend on the length of the sequence: "dynamic" and "longrope".

transformers uses the length of the longest sequence in a batch for all. Here every sequence has its own length, one
more than its last position in `position_ids`, so that its neighbours do not matter. When sequences are sampled token by
token, their length grows while keys that were rotated earlier are kept; so a run pins one length, the longest that it
can have (`pin_length`), for the sampler, the trainer and every sequence, as inference servers do."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel

_PINNED = "_turnwise_length"
_HOOKED = "_turnwise_by_sequence"


def attach_rope(model: PreTrainedModel) -> None:
    """Make the length-dependent rotary embeddings of `model` rotate every sequence by its own length. Others are left
    unchanged."""
    for rope in _list_ropes(model):
        if not getattr(rope, _HOOKED, False):
            setattr(rope, _HOOKED, True)
            rope.register_forward_hook(_turn_by_sequence, with_kwargs=True)


def pin_length(model: PreTrainedModel, length: int) -> bool:
    """Rotate every sequence as one with `length` tokens is rotated. Returns whether that changes anything: whether the
    model's frequencies depend on the length, and differ for this one from those for short sequences."""
    changes = False
    for rope in _list_ropes(model):
        setattr(rope, _PINNED, length)
        changes |= any(_find_class(rope, layer_type, length) > 0 for layer_type in _list_types(rope))
    return changes


@contextmanager
def as_long_as(model: PreTrainedModel, length: int) -> Iterator[None]:
    """Within the context, every sequence is rotated as one with `length` tokens, unless a length is pinned."""
    ropes = [rope for rope in _list_ropes(model) if getattr(rope, _PINNED, None) is None]
    for rope in ropes:
        setattr(rope, _PINNED, length)
    try:
        yield
    finally:
        for rope in ropes:
            setattr(rope, _PINNED, None)


def find_pinned(model: PreTrainedModel) -> int | None:
    """Return the pinned length; None if there is none."""
    return next((getattr(rope, _PINNED, None) for rope in _list_ropes(model)), None)


def depends_on_length(model: PreTrainedModel) -> bool:
    """Whether some frequencies depend on the length, and no length is pinned."""
    return any(getattr(rope, _PINNED, None) is None for rope in _list_ropes(model))


def _list_ropes(model: PreTrainedModel) -> Iterator[Any]:
    """Iterate over rotary embeddings whose frequencies depend on the length."""
    for module in model.modules():
        if hasattr(module, "rope_type") and any(_is_growing(module, name) for name in _list_types(module)):
            yield module


def _list_types(rope: Any) -> list[str | None]:
    """Return the kinds of layers for which an embedding has frequencies; [None] if all layers share them."""
    return list(rope.rope_type) if isinstance(rope.rope_type, dict) else [None]


def _name(rope: Any, layer_type: str | None) -> str:
    return str(rope.rope_type if layer_type is None else rope.rope_type[layer_type])


def _is_growing(rope: Any, layer_type: str | None) -> bool:
    name = _name(rope, layer_type)
    return "dynamic" in name or name == "longrope"


def _find_class(rope: Any, layer_type: str | None, length: int) -> int:
    """Return a number that is equal for lengths with the same frequencies: 0 for short sequences."""
    if _name(rope, layer_type) == "longrope":
        parameters = rope.config.rope_parameters if layer_type is None else rope.config.rope_parameters[layer_type]
        return int(length > parameters["original_max_position_embeddings"])
    # The frequencies of one token more than the limit are those of the limit.
    return length if length > rope.original_max_seq_len else 0


def _turn_by_sequence(rope: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    """Hook after the forward of a rotary embedding, which rotated all sequences by the longest: recomputes the
    others."""
    named = dict(zip(("x", "position_ids", "layer_type"), args, strict=False)) | kwargs
    x, position_ids, layer_type = named["x"], named["position_ids"], named.get("layer_type")
    if not _is_growing(rope, layer_type):
        return output
    lengths = _list_lengths(rope, position_ids)
    classes = [_find_class(rope, layer_type, length) for length, _ in lengths]
    parts: dict[int, tuple[torch.Tensor, ...]] = {}
    for number, (length, _) in zip(classes, lengths, strict=True):
        if number not in parts:
            parts[number] = _turn_all(rope, x, position_ids, layer_type, length, number)
    if len(parts) == 1:
        return parts[classes[0]]
    turned = tuple(torch.empty_like(part) for part in parts[classes[0]])
    for number, (_, (row, place)) in zip(classes, lengths, strict=True):
        for target, source in zip(turned, parts[number], strict=True):
            target[row, place] = source[row, place]
    return turned


def _list_lengths(rope: Any, position_ids: torch.Tensor) -> list[tuple[int, tuple[int, slice]]]:
    """Return the length of every sequence, and where it is in `position_ids [B, T]`: a sequence ends where the next
    position is not one more."""
    everywhere = slice(None)
    if (pinned := getattr(rope, _PINNED, None)) is not None:
        return [(int(pinned), (0, everywhere))]
    found = []
    for row, positions in enumerate(position_ids.tolist()):
        start = 0
        for at in range(1, len(positions) + 1):
            if at == len(positions) or positions[at] != positions[at - 1] + 1:
                found.append((positions[at - 1] + 1, (row, slice(start, at))))
                start = at
    return found


def _turn_all(
    rope: Any, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None, length: int, number: int
) -> tuple[torch.Tensor, ...]:
    """Return cosines and sines for all positions with the frequencies for sequences of `length`. Works on a copy: other
    threads use the embedding itself."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    prefix = "" if layer_type is None else f"{layer_type}_"
    scratch = copy.copy(rope)
    scratch._buffers = dict(rope._buffers)
    scratch.rope_type = "default" if layer_type is None else {**rope.rope_type, layer_type: "default"}
    frequencies = getattr(rope, f"{prefix}original_inv_freq")
    if number:
        build = ROPE_INIT_FUNCTIONS[_name(rope, layer_type)]
        frequencies, scaling = build(rope.config, x.device, seq_len=length, layer_type=layer_type)
        if layer_type is None and _name(rope, layer_type) != "longrope":
            scratch.attention_scaling = scaling
    scratch._buffers[f"{prefix}inv_freq"] = frequencies.to(x.device)
    forward = type(rope).forward
    turned: tuple[torch.Tensor, ...] = (
        forward(scratch, x, position_ids) if layer_type is None else forward(scratch, x, position_ids, layer_type)
    )
    return turned
