"""Slices of `benchmarks/reward_models.py`: exact values computed in two ways, and the bias of labels."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))

from chain_values import compute_values, read_values, to_sample
from laboratory.worlds import build_distractors
from reward_model_labels import measure_labels

from turnwise.core.types import text_message
from turnwise.environments.replies import answer_message
from turnwise.testing import build_tiny_model, build_tiny_renderer, build_tiny_tokenizer, make_trajectory, make_turn
from turnwise.training.forward import score_logprobs
from turnwise_rewards.reward_models.chain import Chain, apply


def test_the_value_of_the_start_is_the_probability_of_all_right_ways() -> None:
    family = Chain(steps=2)
    tokenizer = build_tiny_tokenizer(family.texts(60), vocab_size=300)
    model, renderer = build_tiny_model(vocab_size=300), build_tiny_renderer(tokenizer)
    task = family.task("heldout", 0)
    values, coverage = compute_values(model, renderer, task)
    start, (first, second) = task.payload["start"], task.payload["operations"]
    right = apply(second, apply(first, start))
    ways = list(product(range(7), repeat=2))
    scores = score_logprobs(model, [to_sample(renderer, task, way) for way in ways], 1.0, micro_batch_tokens=4096)
    totals = {way: float(np.exp(row.astype(np.float64).sum())) for way, row in zip(ways, scores, strict=True)}
    assert values[()] == pytest.approx(sum(total for way, total in totals.items() if way[-1] == right), rel=1e-4)
    assert 0 < values[()] < coverage < 1
    assert [values[(0, last)] for last in range(7)] == [float(last == right) for last in range(7)]


def test_values_are_read_up_to_the_first_reply_that_states_none() -> None:
    messages = [answer_message("3"), text_message("assistant", "what?"), answer_message("4")]
    turns = [make_turn([1], [2], parent=i - 1 if i else None, message=message) for i, message in enumerate(messages)]
    assert read_values(make_trajectory(*turns)) == [(3,), None, None]


def test_soft_labels_are_unbiased_hard_ones_are_not_and_the_discount_runs_from_the_end() -> None:
    seeds = [measure_labels(build_distractors(), seed) for seed in range(4)]
    means = {name: [float(np.mean([each[name][i] for each in seeds])) for i in (0, 1)] for name in seeds[0]}
    assert abs(means["soft"][0]) < 0.02
    assert means["hard"][0] > 0.1
    assert means["returns, gamma 0.95"][1] > means["returns, gamma 0.95^t"][1] + 0.05
    assert seeds[0]["soft"][4] > 10 * seeds[0]["returns"][4]
