"""One forward pass by either path: outputs and gradients equal one sequence at a time."""

import numpy as np
import pytest
import torch
from every_model import build_tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from turnwise.batching.collate import collate
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.models.attention import register_attention
from turnwise.models.check import choose_path
from turnwise.models.forward import LEAST_FILLED, _lay_rows, compute_hidden, compute_logits
from turnwise.models.paths import find_path, is_fast, set_path
from turnwise.training.forward import compute_logprobs, to_runs

register_attention()
NAMES = ("qwen3", "gemma2", "gpt_oss", "lfm2", "qwen3_5_text", "bloom", "mamba2")


def sample(ids: list[int], start: int) -> Sample:
    """A sample that trains from position `start` on."""
    count = len(ids)
    return Sample(
        token_ids=to_ids(ids),
        loss_mask=to_mask(np.arange(count) >= start),
        behavior_logprobs=to_floats(np.zeros(count)),
        advantages=to_floats(np.ones(count)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=0), task_id="t"),
    )


def draw_samples() -> list[Sample]:
    """Five samples: three of which begin alike, one the beginning of another, and one that trains two parts."""
    draw = np.random.default_rng(0)
    common = draw.integers(6, 80, 11).tolist()
    ends = [draw.integers(6, 80, count).tolist() for count in (14, 3, 20)]
    alone = draw.integers(6, 80, 27).tolist()
    samples = [sample([*common, *end], 12) for end in ends]
    return [*samples, sample([*common, *ends[0][:6]], 5), sample(alone, 9)]


def score_alone(model: PreTrainedModel, samples: list[Sample]) -> torch.Tensor:
    """Log-probabilities of all trained tokens by transformers, one sequence at a time."""
    parts = []
    for each in samples:
        ids = torch.from_numpy(each.token_ids.astype(np.int64))
        logprobs = model(input_ids=ids[None], use_cache=False).logits[0].log_softmax(-1)
        at = torch.from_numpy(np.flatnonzero(each.loss_mask))
        parts.append(logprobs[at - 1, ids[at]])
    return torch.cat(parts)


@pytest.mark.parametrize("shared_prefix", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_scores_and_gradients_are_those_of_one_sequence_at_a_time(name: str, shared_prefix: bool) -> None:
    ours, theirs, samples = choose_path(build_tiny(name)), build_tiny(name), draw_samples()
    scores, _ = compute_logprobs(ours, collate(samples, shared_prefix=shared_prefix), 1.0)
    expected = score_alone(theirs, samples)
    assert torch.allclose(scores, expected, atol=1e-4, rtol=0)
    weights = torch.linspace(-1, 1, len(scores))
    (weights * scores).sum().backward()
    (weights * expected).sum().backward()
    for (parameter_name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), parameter_name
        if one.grad is not None and other.grad is not None:
            scale = float(other.grad.abs().max()) + 1e-3
            assert float((one.grad - other.grad).abs().max()) < 2e-4 * scale, parameter_name


@pytest.mark.parametrize("name", ["qwen3", "lfm2", "bloom"])
def test_hidden_states_of_all_tokens_come_in_the_order_of_the_tokens(name: str) -> None:
    model, batch = choose_path(build_tiny(name)), collate(draw_samples(), shared_prefix=True)
    runs = to_runs(batch)
    everything = torch.arange(len(runs.token_ids))
    with torch.no_grad():
        hidden = compute_hidden(model.base_model, model, runs)
        logits, selected = compute_logits(model, runs, everything)
    assert torch.allclose(hidden, selected, atol=1e-5, rtol=0)
    assert len(logits) == len(runs.token_ids)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(6, 9), min_size=1, max_size=9), min_size=1, max_size=8), st.booleans())
def test_rows_hold_every_token_once_after_all_that_it_sees(sequences: list[list[int]], pads: bool) -> None:
    model = _LFM2
    set_path(model, find_path(_CHECKED).__class__(kind="generic", reason="test", pads=pads))
    samples = [sample([5, *ids], 1) for ids in sequences]
    batch = collate(samples, shared_prefix=True)
    runs = to_runs(batch)
    found: list[int] = []
    for rows in _lay_rows(model, runs):
        width = rows.tokens.shape[1]
        lengths = []
        for token, place in zip(rows.wanted.tolist(), rows.places.tolist(), strict=True):
            row, at = divmod(place, width)
            assert rows.tokens[row, at] == token
            assert runs.positions[token] == at
            lengths.append(row)
        found += rows.wanted.tolist()
        if not pads:
            assert len({int((row > 0).sum()) for row in rows.tokens}) <= 2  # the token 0 begins every row
    assert sorted(found) == list(range(len(runs.token_ids)))


_LFM2 = build_tiny("lfm2")
_CHECKED = choose_path(build_tiny("lfm2"))


def test_little_is_filled_up() -> None:
    """Rows of one batch are at least three quarters as long as the longest."""
    model = _CHECKED
    batch = collate([sample([5] + [6 + n % 70] * n, 1) for n in (80, 79, 70, 40, 39, 31, 10, 9, 2)])
    runs = to_runs(batch)
    area = 0
    for rows in _lay_rows(model, runs):
        area += rows.tokens.numel()
    assert area <= len(runs.token_ids) / LEAST_FILLED


def test_logits_of_no_token_are_none() -> None:
    for name in ("qwen3", "lfm2"):
        model, runs = choose_path(build_tiny(name)), to_runs(collate(draw_samples()))
        logits, _ = compute_logits(model, runs, torch.zeros(0, dtype=torch.long))
        assert logits.shape == (0, model.config.vocab_size)
        assert is_fast(model) == (name == "qwen3")
