"""Every family: its own forward against features first, packed against alone, and prompts against its processor."""

from __future__ import annotations

import pytest
import torch
from conversations import compute_packed, compute_whole, list_places, look, write
from PIL import Image
from their_processors import build_processor
from tiny_seeing import CONFIGS, build_seeing, draw

from turnwise.core.positions import number_positions
from turnwise.models.paths import ModelPath, find_path, set_path
from turnwise.models.vision.inputs import embed

SIZES = ((32, 32), (40, 20), (5, 90), (64, 64), (200, 150), (1, 1), (3, 40), (40, 3))
TEXT = [40, 41, 42], [50, 51], [60]


@pytest.mark.parametrize("kind", CONFIGS)
def test_features_first_give_the_logits_of_the_models_own_forward(kind: str) -> None:
    model, _, eyes = build_seeing(kind)
    conversation = write(eyes, TEXT[0], draw(0), TEXT[1], draw(1, 40, 20), TEXT[2])
    set_path(model, ModelPath(kind="generic", reason="test"))
    with torch.no_grad():
        whole = compute_whole(model, eyes, conversation)
        ids = torch.tensor([conversation.token_ids])
        places = torch.tensor(list_places(conversation.spans))
        inputs = embed(model, ids, places, look(model, eyes, conversation.spans))
        positions = torch.from_numpy(number_positions(ids.shape[1], conversation.spans))[..., None, :]
        ours = model(**inputs, position_ids=positions, use_cache=False).logits[0]
        blind = model(input_ids=ids, position_ids=positions, use_cache=False).logits[0]
    assert torch.equal(ours, whole)
    assert float((blind - whole)[-1].abs().max()) > 1e-3


@pytest.mark.parametrize("kind", CONFIGS)
def test_conversations_laid_end_to_end_have_the_logits_of_each_alone(kind: str) -> None:
    model, _, eyes = build_seeing(kind)
    assert find_path(model).kind == "fast"
    one = write(eyes, TEXT[0], draw(0), TEXT[1])
    two = write(eyes, TEXT[0], draw(1), TEXT[1], draw(2, 20, 40), TEXT[2])
    text = write(eyes, TEXT[0], TEXT[1])
    with torch.no_grad():
        together = compute_packed(model, eyes, one, two, text).split([len(each.token_ids) for each in (one, two, text)])
        alone = [compute_packed(model, eyes, each) for each in (one, two, text)]
        set_path(model, ModelPath(kind="generic", reason="test"))
        whole = compute_whole(model, eyes, two)
    for packed, single in zip(together, alone, strict=True):
        assert float((packed - single).abs().max()) <= 2e-6
    assert float((together[1] - whole).abs().max()) <= 2e-6
    last = len(TEXT[0]) + len(eyes.layout.lay_out(draw(0)).token_ids) + 1
    assert float((alone[0][last] - alone[1][last]).abs().max()) > 1e-4


@pytest.mark.parametrize("kind", CONFIGS)
def test_prompts_are_those_of_the_familys_processor(kind: str) -> None:
    _, tokenizer, eyes = build_seeing(kind)
    processor, layout = build_processor(kind, eyes, tokenizer), eyes.layout
    parts = [draw(3, *size) for size in SIZES]
    for part in parts:
        eyes.pictures.put(part)
    images = [Image.fromarray(eyes.pictures.read(part.digest)) for part in parts]
    text = "the cat " + " saw ".join(layout.marker for _ in parts) + " the dog"
    theirs = [int(token) for token in processor(text=[text], images=images, return_tensors="pt")["input_ids"][0]]
    ours: list[int] = []
    left = iter(parts)
    for token in tokenizer.encode(text, add_special_tokens=False):
        ours += layout.lay_out(next(left)).token_ids.tolist() if token == layout.marker_id else [token]
    assert ours == theirs
