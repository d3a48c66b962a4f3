"""Gradients through towers: those of transformers' own forward, and that of one weight by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_seeing import build_seeing, draw
from transformers import PreTrainedModel

from turnwise.batching.collate import UNTRAINED, collate
from turnwise.core.types import ImagePart, Sample, to_floats, to_ids, to_mask
from turnwise.models.vision.eyes import Eyes
from turnwise.models.vision.tower import freeze_tower, list_tower
from turnwise.training.forward import compute_logprobs


def make_sample(eyes: Eyes, picture: ImagePart, *after: int) -> Sample:
    """Two tokens, a picture, and tokens that train."""
    eyes.pictures.put(picture)
    assert eyes.layout is not None
    shown = eyes.layout.lay_out(picture)
    ids = [40, 41, *shown.token_ids.tolist(), *after]
    nothing = to_floats(np.zeros(len(ids)))
    return Sample(
        token_ids=to_ids(ids),
        loss_mask=to_mask([False] * (len(ids) - len(after)) + [True] * len(after)),
        behavior_logprobs=nothing,
        advantages=nothing,
        version_first=0,
        version_last=0,
        origin=UNTRAINED.origin,
        images=tuple(span.shift(2) for span in shown.images),
    )


def sum_logprobs(model: PreTrainedModel, samples: list[Sample], *, shared: bool = False) -> torch.Tensor:
    return compute_logprobs(model, collate(samples, shared_prefix=shared), 1.0)[0].sum()


def gradients(model: PreTrainedModel, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_alike(one: torch.Tensor, other: torch.Tensor) -> None:
    """Equal up to the float32 in which transformers computes norms and softmaxes of float64 models."""
    assert float((one - other).abs().max()) <= 2e-5 * float(other.abs().max()) + 1e-9


def theirs(model: PreTrainedModel, eyes: Eyes, sample: Sample) -> torch.Tensor:
    """The same sum by the model's own forward of ids and pixels."""
    prepared: Any = eyes.sight.prepare(eyes.pictures.read(sample.images[0].digest))
    ids = torch.tensor(sample.token_ids)[None].long()
    named = ("pixel_values", "pixel_attention_mask", "image_grid_thw", "image_sizes")
    pixels = {name: prepared[name] for name in named if name in prepared}
    if "image_grid_thw" in pixels:
        pixels["mm_token_type_ids"] = ids.eq(eyes.layout.place_id).int()  # type: ignore[union-attr]
    model.set_attn_implementation("eager")
    logits = model(input_ids=ids, **pixels).logits[0].log_softmax(-1)
    trained = torch.tensor(np.flatnonzero(sample.loss_mask))
    return logits[trained - 1, ids[0, trained]].sum()


@pytest.mark.parametrize("kind", ["smolvlm", "llava_clip", "qwen2_vl", "qwen3_vl"])
def test_the_gradient_of_every_parameter_is_that_of_the_models_own_forward(kind: str) -> None:
    model, _, eyes = build_seeing(kind, dtype="float64")
    sample = make_sample(eyes, draw(0), 50, 51)
    ours = gradients(model, sum_logprobs(model, [sample]))
    other, _, _ = build_seeing(kind, dtype="float64")
    expected = gradients(other, theirs(other, eyes, sample))
    assert any(name.startswith(tuple(list_tower(model))) for name in ours)
    for name, gradient in expected.items():
        assert_alike(ours[name], gradient)


def test_a_weight_of_the_tower_moves_the_sum_as_its_gradient_says() -> None:
    model, _, eyes = build_seeing(dtype="float64")
    samples = [make_sample(eyes, draw(0), 50, 51), make_sample(eyes, draw(1), 52)]
    found = gradients(model, sum_logprobs(model, samples))
    towers = list_tower(model)
    name, parameter = next(
        (name, p) for name, p in model.named_parameters() if name.startswith(tuple(towers)) and p.ndim == 2
    )
    at = np.unravel_index(int(found[name].abs().argmax()), parameter.shape)
    step, sums = 1e-3, []
    for change in (step, -2 * step):
        with torch.no_grad():
            parameter[at] += change
            sums.append(float(sum_logprobs(model, samples)))
    assert (sums[0] - sums[1]) / (2 * step) == pytest.approx(float(found[name][at]), rel=1e-3)


def test_a_shared_picture_gets_the_sum_of_its_samples_gradients() -> None:
    model, _, eyes = build_seeing(dtype="float64")
    samples = [make_sample(eyes, draw(0), 50, 51), make_sample(eyes, draw(0), 52)]
    together = gradients(model, sum_logprobs(model, samples, shared=True))
    alone = [gradients(model, sum_logprobs(model, [sample])) for sample in samples]
    for name, gradient in together.items():
        assert_alike(gradient, alone[0][name] + alone[1][name])


def test_a_frozen_tower_has_no_gradient_and_the_text_has_the_same() -> None:
    model, _, eyes = build_seeing(dtype="float64")
    sample = make_sample(eyes, draw(0), 50)
    whole = gradients(model, sum_logprobs(model, [sample]))
    freeze_tower(model)
    text = gradients(model, sum_logprobs(model, [sample]))
    assert not any(name.startswith(tuple(list_tower(model))) for name in text)
    for name, gradient in text.items():
        torch.testing.assert_close(gradient, whole[name], rtol=1e-12, atol=0)
