"""Conversations with pictures as tokens, and what a model computes for them in several ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import PreTrainedModel

from turnwise.core.keys import Span
from turnwise.core.messages import ImagePart
from turnwise.core.positions import number_positions
from turnwise.models.attention import PackedAttention
from turnwise.models.vision.eyes import Eyes
from turnwise.models.vision.features import Features, join_features
from turnwise.models.vision.inputs import embed


@dataclass(frozen=True)
class Seen:
    """Tokens of one conversation, and the places of its pictures."""

    token_ids: list[int]
    spans: list[Span]


def write(eyes: Eyes, *parts: Sequence[int] | ImagePart) -> Seen:
    """Lay out text ids and pictures, and keep the pictures."""
    token_ids: list[int] = []
    spans: list[Span] = []
    for part in parts:
        if isinstance(part, ImagePart):
            eyes.pictures.put(part)
            prompt = eyes.layout.lay_out(part)
            spans += [span.shift(len(token_ids)) for span in prompt.images]
            token_ids += prompt.token_ids.tolist()
        else:
            token_ids += part
    return Seen(token_ids, spans)


def list_places(spans: Sequence[Span]) -> list[int]:
    return [place for span in spans for place in range(span.start, span.start + span.length)]


def look(model: PreTrainedModel, eyes: Eyes, spans: Sequence[Span]) -> Features:
    """Encode the pictures of spans; one row per place."""
    encoded = eyes.encode(model, [span.digest for span in spans])
    rows = [
        features.take(torch.arange(span.offset, span.offset + span.length))
        for features, span in zip(encoded, spans, strict=True)
    ]
    return join_features(rows)


def compute_packed(model: PreTrainedModel, eyes: Eyes, *conversations: Seen) -> torch.Tensor:
    """Compute logits `[T, V]` of conversations laid end to end, features first, on the fast path."""
    positions = [number_positions(len(each.token_ids), each.spans) for each in conversations]
    starts = np.cumsum([0, *(len(each.token_ids) for each in conversations)])
    spans = [span.shift(int(start)) for start, each in zip(starts, conversations, strict=False) for span in each.spans]
    ids = torch.tensor([[token for each in conversations for token in each.token_ids]])
    axes = max(each.ndim for each in positions)
    laid = torch.from_numpy(
        np.concatenate([np.tile(each, (3, 1)) if each.ndim < axes else each for each in positions], -1)
    )
    inputs: dict[str, Any] = {"input_ids": ids}
    if spans:
        inputs = embed(model, ids, torch.tensor(list_places(spans)), look(model, eyes, spans))
    plan = PackedAttention([len(each.token_ids) for each in conversations])
    logits: torch.Tensor = model(
        **inputs, position_ids=laid[..., None, :], use_cache=False, attention_plan=plan
    ).logits[0]
    return logits


def _join(parts: list[torch.Tensor]) -> torch.Tensor:
    """Lay pictures one after the other, padded to the largest as a processor does."""
    height, width = (max(part.shape[side] for part in parts) for side in (-2, -1))
    if parts[0].ndim == 4:
        parts = [functional.pad(part, (0, width - part.shape[-1], 0, height - part.shape[-2])) for part in parts]
    return torch.cat(parts)


def compute_whole(model: PreTrainedModel, eyes: Eyes, conversation: Seen) -> torch.Tensor:
    """Compute logits `[T, V]` by the model's own forward from ids and pixels, without anything of ours."""
    digests = list(dict.fromkeys(span.digest for span in conversation.spans))
    prepared = [eyes.sight.prepare(eyes.pictures.read(digest)) for digest in digests]
    names = {"pixel_values", "pixel_attention_mask", "image_grid_thw", "image_sizes"}
    inputs: dict[str, Any] = {name: _join([each[name] for each in prepared]) for name in names & prepared[0].keys()}
    if "pixel_attention_mask" in inputs:  # one conversation with several pictures, not several with one each
        inputs = {name: value.flatten(0, 1)[None] for name, value in inputs.items()}
    ids = torch.tensor([conversation.token_ids])
    if model.config.model_type == "gemma3":
        inputs["token_type_ids"] = ids.eq(eyes.layout.place_id).long()
    if "image_grid_thw" in inputs:
        inputs["mm_token_type_ids"] = ids.eq(eyes.layout.place_id).int()
    inputs = {name: value.to(model.dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    logits: torch.Tensor = model(input_ids=ids, use_cache=False, **inputs).logits[0]
    return logits
