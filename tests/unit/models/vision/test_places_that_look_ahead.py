"""Pictures whose places see each other in both directions: in rows of several sequences, and why PaliGemma is left
out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from conversations import Seen, compute_whole, list_places, write
from tiny_seeing import TEXT, TOWER, build_seeing, draw
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedModel

from turnwise.core.pictures import PlacedImages
from turnwise.models.check import choose_path
from turnwise.models.forward import Runs, compute_logits
from turnwise.models.vision.eyes import Eyes


def cut(seen: Seen, eyes: Eyes, *, first: bool) -> Seen:
    """The conversation from its first place on, or up to its last one."""
    if first:
        start = seen.spans[0].start
        return Seen(seen.token_ids[start:], [span.shift(-start) for span in seen.spans])
    return Seen(seen.token_ids[: list_places(seen.spans)[-1] + 1], seen.spans)


def score_rows(model: PreTrainedModel, *conversations: Seen) -> torch.Tensor:
    """Compute logits `[T, V]` of conversations in one batch, as training does."""
    lengths = [len(seen.token_ids) for seen in conversations]
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    sources = {
        start + at: (span.digest, at - span.start)
        for seen, start in zip(conversations, starts, strict=True)
        for span in seen.spans
        for at in list_places([span])
    }
    runs = Runs(
        token_ids=torch.tensor([token for seen in conversations for token in seen.token_ids]),
        positions=torch.cat([torch.arange(length) for length in lengths]),
        lengths=lengths,
        seen=None,
        num_seen=lengths,
        images=PlacedImages.of(sources),
    )
    return compute_logits(model, runs, torch.arange(sum(lengths)))[0]


def test_padding_beside_a_picture_changes_nothing() -> None:
    model, _, eyes = build_seeing("gemma3", visible=True)
    choose_path(model)
    # Rows are padded with the first token of all, here a place; the second row has no text between places and padding.
    long = cut(write(eyes, draw(0), [41, 42, 43, 44]), eyes, first=True)
    short = cut(write(eyes, [40, 41], draw(1)), eyes, first=False)
    lengths = [len(long.token_ids), len(short.token_ids)]
    assert long.token_ids[0] == short.token_ids[-1] == eyes.layout.place_id
    assert 0.75 * lengths[0] <= lengths[1] < lengths[0]
    with torch.no_grad():
        together = score_rows(model, long, short).split(lengths)
        for logits, seen in zip(together, (long, short), strict=True):
            whole = compute_whole(model, eyes, seen)
            keep = np.arange(whole.shape[1]) != eyes.layout.place_id
            assert float((logits - whole)[:, keep].abs().max()) < 2e-5


def test_a_later_picture_changes_nothing_before_it() -> None:
    model, _, eyes = build_seeing("gemma3", visible=True)
    choose_path(model)
    one, other = (write(eyes, [40], draw(0), draw(seed), [41]) for seed in (1, 2))
    assert one.token_ids == other.token_ids
    with torch.no_grad():
        first, second = (score_rows(model, seen) for seen in (one, other))
    before = one.spans[1].start
    assert torch.equal(first[:before], second[:before])
    assert float((first[-1] - second[-1]).abs().max()) > 1e-3


def test_a_picture_in_a_later_turn_changes_what_paligemma_said_before() -> None:
    """Its words and pictures up to the reply (`token_type_ids` 0) see each other in both directions: a second picture
    of that kind would change replies that were already sampled."""
    text: dict[str, Any] = {"model_type": "gemma", **TEXT, "head_dim": 8, "vocab_size": 64, "pad_token_id": None}
    tower = {"model_type": "siglip_vision_model", **TOWER, "vision_use_head": False}
    config = AutoConfig.for_model(
        "paligemma", text_config=text, vision_config=tower, projection_dim=32, hidden_size=32, image_token_index=60
    )
    torch.manual_seed(0)
    model: Any = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2) if parameter.ndim > 1 else None
    first, second = torch.randn(1, 3, 32, 32), torch.randn(1, 3, 32, 32)
    prompt, reply = [60] * 16 + [5, 6], [7, 8, 9]
    ids = [*prompt, *reply, *prompt]
    kinds = torch.tensor([[0] * len(prompt) + [1] * len(reply) + [0] * len(prompt)])

    def score(count: int, *pictures: torch.Tensor) -> torch.Tensor:
        logits = model(
            input_ids=torch.tensor([ids[:count]]), pixel_values=torch.cat(pictures), token_type_ids=kinds[:, :count]
        ).logits
        at = torch.arange(len(prompt), len(prompt) + len(reply))
        scores: torch.Tensor = logits[0].log_softmax(-1)[at - 1, torch.tensor(reply)]
        return scores

    with torch.no_grad():
        sampled = score(len(prompt) + len(reply), first)
        scored = score(len(ids), first, second)
    assert float((sampled - scored).abs().max()) > 0.01
