"""What docs/vision.md says of families holds for one with counted positions and one with axes; planted faults show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from family_measures import (
    NAMES,
    SIZES,
    build_checked,
    measure_family,
    score_whole,
    set_alone,
    to_sample,
    write_conversations,
)
from model_measures import MICRO_BATCH, largest
from tiny_seeing import CONFIGS

from turnwise.core.types import Sample
from turnwise.training.forward import score_logprobs

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("kind", ["smolvlm", "qwen3_vl"])
def test_a_family_agrees_with_transformers_alone(kind: str) -> None:
    measured = measure_family(kind)
    assert (measured.path, measured.prompts, tuple(measured.gaps)) == ("fast", len(SIZES), NAMES)
    assert {name: gap for name, gap in measured.gaps.items() if not gap < (1e-2 if name == "step" else 2e-5)} == {}


@pytest.mark.parametrize("kind", CONFIGS)
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
    assert [kind for kind in CONFIGS if f"| {kind} |" not in page] == []
