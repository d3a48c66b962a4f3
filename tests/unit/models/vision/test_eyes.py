"""Eyes: pictures encoded alone and together, with gradients, and kept by copies of a model."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from conversations import list_places
from tiny_seeing import CONFIGS, build_seeing, draw

from turnwise.core.errors import ConfigError
from turnwise.core.messages import ImagePart, hash_pixels
from turnwise.models.paths import find_path
from turnwise.models.structure import list_tensors, with_tensors
from turnwise.models.vision.eyes import Eyes, find_eyes
from turnwise.models.vision.features import join_features
from turnwise.models.vision.inputs import embed
from turnwise.models.vision.layout import FamilyLayout
from turnwise.rendering.tokenizer import train_tokenizer


def put(eyes: Eyes, *parts: ImagePart) -> list[str]:
    for part in parts:
        eyes.pictures.put(part)
    return [part.digest for part in parts]


@pytest.mark.parametrize("kind", CONFIGS)
def test_pictures_encoded_together_have_the_bits_of_each_alone(kind: str) -> None:
    model, _, eyes = build_seeing(kind)
    digests = put(eyes, *(draw(seed) for seed in range(19)), draw(19, 40, 20))
    with torch.no_grad():
        together = eyes.encode(model, digests)
        alone = [eyes.encode(model, [digest])[0] for digest in digests]
    assert all(torch.equal(one.rows, other.rows) for one, other in zip(together, alone, strict=True))
    assert not torch.equal(together[0].rows, together[1].rows)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_repeated_picture_is_encoded_once_and_gradients_add_up(kind: str) -> None:
    model, _, eyes = build_seeing(kind)
    (digest,) = put(eyes, draw(0))
    first, second = eyes.encode(model, [digest, digest])
    assert first is second
    (first.rows.sum() + second.rows.sum()).backward()
    twice = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert any("visi" in name or "visual" in name for name in twice)
    model.zero_grad()
    eyes.encode(model, [digest])[0].rows.sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            assert name not in twice
        else:
            assert torch.allclose(twice[name], 2 * parameter.grad, atol=1e-5)


def test_a_blank_picture_that_normalizes_to_zero_keeps_its_places() -> None:
    model, _, eyes = build_seeing()
    eyes.sight.processor.do_normalize = False
    black = bytes(32 * 32 * 3)
    dark = ImagePart(digest=hash_pixels(black, 32, 32), width=32, height=32, pixels=black)
    faint = bytearray(black)
    faint[0] = 1
    near = ImagePart(digest=hash_pixels(bytes(faint), 32, 32), width=32, height=32, pixels=bytes(faint))
    digests = put(eyes, dark, draw(0), near)
    with torch.no_grad():
        rows = [features.rows for features in eyes.encode(model, digests)]
        alone = eyes.encode(model, digests[:1])[0].rows
    assert [len(each) for each in rows] == [4, 4, 4]
    assert torch.equal(rows[0], alone)
    assert 0 < float((rows[0] - rows[2]).abs().max()) < 0.1 < float((rows[0] - rows[1]).abs().max())


@pytest.mark.parametrize("kind", CONFIGS)
def test_places_get_rows_and_a_placeholder_elsewhere_is_an_ordinary_token(kind: str) -> None:
    model, _tokenizer, eyes = build_seeing(kind)
    (digest,) = put(eyes, part := draw(0))
    prompt = eyes.layout.lay_out(part)
    places = torch.tensor([1 + at for at in list_places(prompt.images)])
    place = eyes.layout.place_id
    ids = torch.tensor([[5, *prompt.token_ids.tolist(), place, 7]])
    with torch.no_grad():
        features = eyes.encode(model, [digest])[0]
        given = embed(model, ids, places, features)["inputs_embeds"]
        own = model.get_input_embeddings()(ids)
    assert torch.equal(given[0, places], features.rows)
    others = [at for at in range(ids.shape[1]) if at not in places.tolist()]
    assert torch.equal(given[0, others], own[0, others])
    assert ids[0, others].tolist().count(place) == 1


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("size", [(40, 3), (3, 40), (3, 3), (1, 1), (1, 3)])
def test_a_picture_of_three_rows_is_not_taken_for_three_channels(kind: str, size: tuple[int, int]) -> None:
    _, _, eyes = build_seeing(kind)
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[:] = (255, 0, 128)
    values = eyes.sight.prepare(pixels)["pixel_values"]
    values = values.unflatten(-1, (3, -1, 1)) if values.ndim == 2 else values.flatten(0, -4)
    for channel in range(3):
        assert len(values[:, channel].unique()) == 1


def test_features_can_be_joined_and_taken() -> None:
    model, _, eyes = build_seeing()
    one, two = eyes.encode(model, put(eyes, draw(0), draw(1)))
    joined = join_features([one, two])
    assert torch.equal(joined.take(torch.tensor([0, 5, 5])).rows, torch.stack([one.rows[0], two.rows[1], two.rows[1]]))


def test_copies_of_a_model_keep_the_eyes() -> None:
    model, _, eyes = build_seeing()
    assert find_eyes(copy.deepcopy(model)) is eyes
    assert find_eyes(with_tensors(model, list_tensors(model))) is eyes


def test_a_tokenizer_without_the_special_tokens_is_refused_by_name() -> None:
    _, _, eyes = build_seeing()
    other = train_tokenizer(["cat"], vocab_size=300, special_tokens=("<|endoftext|>", "<image>"))
    with pytest.raises(ConfigError, match=r"^m: the tokenizer lacks '<fake_token_around_image>', '<global-img>', with"):
        FamilyLayout(eyes.sight, other, where="m")
    moved = train_tokenizer(
        ["cat"],
        vocab_size=300,
        special_tokens=("<|endoftext|>", "<global-img>", "<image>", "<fake_token_around_image>"),
    )
    with pytest.raises(ConfigError, match="writes '<image>' as 2, but the model's image_token_id is 1"):
        FamilyLayout(eyes.sight, moved, where="m")


def test_the_tower_keeps_its_attention_on_both_paths() -> None:
    model, _, _ = build_seeing()
    assert find_path(model).kind == "fast"
    assert model.config.vision_config._attn_implementation == "sdpa"
