"""What docs/vision.md says of families holds for one with counted positions and one with axes; planted faults show."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conversations import list_places, look
from family_measures import (
    NAMES,
    SIZES,
    build_checked,
    compare_replies,
    measure_family,
    score_whole,
    set_alone,
    to_sample,
    write_conversations,
)
from model_measures import MICRO_BATCH, largest
from tiny_seeing import CONFIGS, GENERIC

from turnwise.core.types import Sample
from turnwise.engines.paged.engine import PagedEngine
from turnwise.models.check import fall_back
from turnwise.models.vision.inputs import embed
from turnwise.training.forward import score_logprobs

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("kind", ["qwen3_vl", "gemma3"])
def test_a_family_agrees_with_transformers_alone(kind: str) -> None:
    measured = measure_family(kind)
    path = "generic" if kind in GENERIC else "fast"
    assert (measured.path, measured.prompts, tuple(measured.gaps)) == (path, len(SIZES), NAMES)
    assert {name: gap for name, gap in measured.gaps.items() if not gap < (1e-2 if name == "step" else 2e-5)} == {}


def test_the_generic_path_numbers_axes_and_samples() -> None:
    ours, eyes = build_checked("qwen3_vl", "float32")
    alone, conversations = set_alone(copy.deepcopy(ours)), write_conversations(eyes)
    generic = fall_back(ours, "for comparison")
    samples = [to_sample(seen, eyes, index) for index, seen in enumerate(conversations)]
    scores = score_logprobs(generic, samples, 1.0, micro_batch_tokens=MICRO_BATCH, shared_prefix=True)
    for score, sample, seen in zip(scores, samples, conversations, strict=True):
        assert largest(score, score_whole(alone, eyes, seen)[sample.loss_mask]) < 2e-5
    engine = PagedEngine(generic, max_concurrency=2, max_context=512)
    assert max(compare_replies(engine, generic, alone, eyes)) < 2e-5
    assert engine.statistics().num_reused_pictures > engine.statistics().num_encoded_pictures > 0


def test_places_that_see_only_what_is_before_them_show_in_gemma() -> None:
    ours, eyes = build_checked("gemma3", "float32")
    seen = write_conversations(eyes)[1]
    inputs = embed(
        ours, torch.tensor([seen.token_ids]), torch.tensor(list_places(seen.spans)), look(ours, eyes, seen.spans)
    )
    with torch.no_grad():
        right = ours(**inputs, use_cache=False).logits
        causal = ours(inputs_embeds=inputs["inputs_embeds"], use_cache=False).logits
    assert float((right - causal)[0, -1].abs().max()) > 1e-2


@pytest.mark.parametrize("kind", [*CONFIGS, *GENERIC])
def test_planted_faults_show(kind: str) -> None:
    ours, eyes = build_checked(kind, "float32")
    seen = write_conversations(eyes)[1]
    sample = to_sample(seen, eyes, 0)
    expected = score_whole(set_alone(build_checked(kind, "float32")[0]), eyes, seen)[sample.loss_mask]

    def gap(changed: Sample) -> float:
        return largest(score_logprobs(ours, [changed], 1.0, micro_batch_tokens=MICRO_BATCH)[0], expected)

    first, last = seen.spans[0].digest, seen.spans[-1].digest
    assert gap(sample) < 2e-5
    swapped = [replace(span, digest=last if span.digest == first else first, offset=0) for span in sample.images]
    short = [replace(span, length=min(span.length, 2), grid=None) for span in swapped]
    assert gap(replace(sample, images=())) > 1e-2, "without pictures"
    assert gap(replace(sample, images=tuple(short))) > 1e-2, "another picture"
    if seen.spans[0].grid is not None:
        turned = [replace(span, grid=(1, *span.grid[:0:-1])) for span in sample.images if span.grid is not None]
        assert gap(replace(sample, images=tuple(turned))) > 1e-3, "rows for columns"


def test_the_page_names_every_family() -> None:
    page = (ROOT / "docs/vision.md").read_text(encoding="utf-8")
    assert [kind for kind in [*CONFIGS, *GENERIC] if f"| {kind} |" not in page] == []
