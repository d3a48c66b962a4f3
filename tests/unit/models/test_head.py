"""Logits of some rows at a time: the same bits as all at once, and the same gradients up to the order of sums."""

import numpy as np
import pytest
import torch
from every_model import build_tiny, list_names, why_not_built
from model_measures import choose, draw_samples
from ranks_world import Case, make_samples, train
from transformers import PreTrainedModel

from turnwise.batching.collate import collate
from turnwise.models import head
from turnwise.models.build import build_model
from turnwise.models.forward import reduce_rows
from turnwise.models.head import count_chunks
from turnwise.training.concentration import CONCENTRATIONS, score_concentration
from turnwise.training.forward import TokenScores, compute_distribution, compute_scores, to_runs

VOCAB = 97
FEW = 9 * VOCAB
"""Logits that make several chunks of the micro-batches here, of at least five rows."""
NAMES = ("qwen3", "gemma2", "cohere", "granite", "gpt2", "falcon_h1", "mamba2", "bloom", "qwen3_moe", "gemma4_text")
ALL = [pytest.param(name, marks=[] if name in NAMES else pytest.mark.slow) for name in list_names()]
SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def score(model: PreTrainedModel, *, entropy_gradient: bool = True) -> tuple[TokenScores, dict[str, torch.Tensor]]:
    """Scores of two trajectories, and the gradients of a loss of them."""
    model.zero_grad(set_to_none=True)
    scores = compute_scores(model, collate(draw_samples(), torch.device("cpu")), 0.8, entropy_gradient=entropy_gradient)
    weights = torch.linspace(-1, 1, len(scores.logprobs))
    loss = (weights * scores.logprobs).sum() + 0.1 * scores.hidden.float().square().sum()
    (loss + 0.3 * (weights * scores.entropy).sum() if entropy_gradient else loss).backward()
    return scores, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ALL)
def test_chunks_change_nothing_of_any_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why_not_built(name):
        pytest.skip("transformers cannot build it")
    try:
        model = choose(build_tiny(name))[2]
    except RuntimeError as error:
        pytest.skip(f"no path computes it: {error}")
    if model is None:
        pytest.skip("no path computes it")
    whole, of_whole = score(model)
    monkeypatch.setattr(head, "CHUNK_NUMBERS", FEW)
    chunked, of_chunked = score(model)
    assert torch.equal(chunked.logprobs, whole.logprobs)
    assert torch.equal(chunked.entropy, whole.entropy)
    assert torch.equal(chunked.hidden, whole.hidden)
    assert of_chunked.keys() == of_whole.keys()
    for parameter, gradient in of_whole.items():
        assert torch.allclose(of_chunked[parameter], gradient, atol=1e-4 * float(gradient.abs().max())), parameter


def test_most_logits_that_exist_at_once_are_those_of_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("qwen3", {**SIZES, "num_key_value_heads": 1}, vocab_size=VOCAB, seed=0)
    batch = collate(draw_samples(), torch.device("cpu"))
    num_rows, seen = len(batch.predict_at), []

    def reduce(logits: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seen.append((logits.shape[0], indices.tolist()))
        return (logits.amax(-1),)

    monkeypatch.setattr(head, "CHUNK_NUMBERS", FEW)
    with torch.no_grad():
        (largest,), hidden = reduce_rows(model, to_runs(batch), batch.predict_at, reduce)
    assert max(count for count, _ in seen) <= 9
    assert min(count for count, _ in seen) >= 5  # even chunks, so that none is a single row
    assert [index for _, indices in seen for index in indices] == list(range(num_rows))
    assert torch.equal(largest, model.lm_head(hidden).amax(-1))


def test_one_chunk_is_the_plain_forward_pass() -> None:
    model = build_model("qwen3", {**SIZES, "num_key_value_heads": 1}, vocab_size=VOCAB, seed=0)
    assert count_chunks(model, 100) == 1
    # 2^26 numbers are 691,843.96 rows of 97.
    assert [count_chunks(model, rows) for rows in (691_843, 691_844, 1_383_688)] == [1, 2, 3]
    batch = collate(draw_samples(), torch.device("cpu"))
    distribution, _ = compute_distribution(model, batch, 0.8)
    assert torch.equal(compute_scores(model, batch, 0.8).logprobs, distribution[batch.row, batch.targets])
    kept = compute_scores(model, batch, 0.8, keeps_distribution=True).distribution
    assert kept is not None
    assert torch.equal(kept, distribution)


def test_entropy_has_a_gradient_only_where_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("qwen3", {**SIZES, "num_key_value_heads": 1}, vocab_size=VOCAB, seed=0, dtype="float64")
    _, without = score(model, entropy_gradient=False)
    monkeypatch.setattr(head, "CHUNK_NUMBERS", FEW)
    scores, chunked = score(model, entropy_gradient=False)
    assert not scores.entropy.requires_grad
    for name, gradient in without.items():
        assert torch.allclose(chunked[name], gradient, rtol=1e-12, atol=1e-14)


def test_an_output_layer_with_dropout_on_is_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("qwen3", {**SIZES, "num_key_value_heads": 1}, vocab_size=VOCAB, seed=0)
    monkeypatch.setattr(head, "CHUNK_NUMBERS", FEW)
    assert count_chunks(model, 90) == 10
    model.lm_head = torch.nn.Sequential(torch.nn.Dropout(0.1), model.lm_head).eval()
    assert count_chunks(model, 90) == 10
    model.lm_head.train()
    assert count_chunks(model, 90) == 1


def test_concentrations_are_the_same_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("qwen3", {**SIZES, "num_key_value_heads": 1}, vocab_size=VOCAB, seed=0)
    samples, wanted = make_samples(1), CONCENTRATIONS.keys()
    whole = score_concentration(model, samples, 0.8, wanted, micro_batch_tokens=200)
    monkeypatch.setattr(head, "CHUNK_NUMBERS", FEW)
    chunked = score_concentration(model, samples, 0.8, wanted, micro_batch_tokens=200)
    for name in wanted:
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(chunked[name], whole[name], strict=True))
    assert all(0 < mass.min().item() <= mass.max().item() <= 1 for mass in whole["squared_mass"])


@pytest.mark.parametrize("case", [Case(critic="head", kl=0.1), Case(objective="preference")], ids=["head", "pairs"])
def test_steps_in_chunks_are_the_steps_at_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(**{**case.__dict__, "dtype": "float64"})
    whole, chunked = case.build_local(), case.build_local()
    for step in (1, 2, 3):
        train(whole, case, step)
    monkeypatch.setattr(head, "CHUNK_NUMBERS", FEW)
    for step in (1, 2, 3):
        train(chunked, case, step)
    for mine, theirs in zip(chunked.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-9, atol=1e-9)
