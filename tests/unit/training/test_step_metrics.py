"""What an update says of its ratios, and what a step costs, by hand."""

import math

import numpy as np
import pytest
import torch

from turnwise.algorithms.losses.table import build_loss
from turnwise.core.metrics import Max, Min
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.models.build import build_model
from turnwise.models.shape import parse_shape
from turnwise.training.policy_step import PolicyLoss, run_policy_step
from turnwise.training.ratio_metrics import NO_RATIOS, describe_extremes, measure_ratios
from turnwise.training.throughput import count_flops, describe_gpu_memory, find_peak, take_gpu_memory

CONFIG = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def sample(length: int, num_trained: int, *, logprob: float = -1.0, advantage: float = 1.0) -> Sample:
    mask = np.arange(length) >= length - num_trained
    return Sample(
        token_ids=to_ids(np.arange(length) % 7),
        loss_mask=to_mask(mask),
        behavior_logprobs=to_floats(np.where(mask, logprob, 0.0)),
        advantages=to_floats(np.where(mask, advantage, 0.0)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=length), task_id="t"),
        context_mask=to_mask(np.zeros(length, bool)),
    )


def test_ratios_of_a_micro_batch_by_hand() -> None:
    old = torch.tensor([-1.0, -1.0, -1.0])
    policy = old + torch.tensor([math.log(2), 0.0, -math.log(4)])  # ratios 2, 1, 1/4
    sums, largest = measure_ratios(policy, old, torch.tensor([True, True, True]))
    assert sums["train/clip_fraction_low"] == 1
    assert sums["train/clip_fraction_high"] == 1
    # ratio - 1 - log ratio: 1 - log 2, 0, -3/4 + log 4.
    assert sums["train/kl_old"] == pytest.approx(1 - math.log(2) - 0.75 + math.log(4))
    extremes = describe_extremes(largest)
    assert (extremes["train/ratio_min"].value, extremes["train/ratio_max"].value) == pytest.approx((0.25, 2.0))
    assert (type(extremes["train/ratio_min"]), type(extremes["train/ratio_max"])) == (Min, Max)
    none = torch.zeros(0)
    assert measure_ratios(none, none, none.bool())[1] == NO_RATIOS


def test_an_update_reports_its_ratios_whatever_the_micro_batches() -> None:
    samples = [sample(6, 3), sample(9, 5, advantage=-1.0), sample(4, 2, logprob=-3.0)]
    loss = PolicyLoss(function=build_loss("ppo"), temperature=1.0)
    reports = []
    for tokens in (4, 1000):
        model = build_model("qwen3", CONFIG, vocab_size=11, seed=0, dtype="float64")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        metrics = run_policy_step(
            model, optimizer, samples, loss=loss, lr=0.1, max_grad_norm=1.0, micro_batch_tokens=tokens
        )
        reports.append({name: metric.value for name, metric in metrics.items()})
    kinds = ("ratio_min", "ratio_max", "kl_old", "clip_fraction_low", "clip_fraction_high")
    names = [f"train/{kind}" for kind in kinds]
    assert [reports[0][name] for name in names] == pytest.approx([reports[1][name] for name in names])
    whole = reports[1]
    assert whole["train/clip_fraction_low"] + whole["train/clip_fraction_high"] == whole["train/clip_fraction"] > 0
    # About log(1/11) = -2.4 per token: below the -1 of two samples, above the -3 of the third.
    assert whole["train/ratio_min"] < 0.5 < 1 < whole["train/ratio_max"]
    assert whole["train/kl_old"] == pytest.approx(whole["train/logprob_k3"]), "old is what sampled"


def test_operations_of_a_step_by_hand() -> None:
    shape = parse_shape({**CONFIG, "model_type": "qwen3", "vocab_size": 11, "tie_word_embeddings": False})
    assert shape is not None
    head = 11 * 32
    # Queries and output 32 x 32, keys and values 32 x 16, and three matrices 32 x 48.
    body = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48
    assert shape.num_linear == body + head
    samples = [sample(10, 4), sample(30, 6)]
    # 40 tokens in the body, 10 in the head; a token attends to (100 + 900) / 2 / 40 = 12.5 on average.
    weights = 40 * 2 * body + 10 * 2 * head
    attention = 40 * 4 * 4 * 8 * 12.5
    assert count_flops(shape, samples, computed=40) == 3 * weights + 3 * attention
    assert count_flops(shape, samples, computed=40, trained_share=0.0) == 2 * weights + 3 * attention


@pytest.mark.parametrize(
    ("name", "dtype", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", torch.bfloat16, 989e12),
        ("NVIDIA A100-SXM4-80GB", torch.float16, 312e12),
        ("NVIDIA L4", torch.bfloat16, 121e12),
        ("NVIDIA L40S", torch.bfloat16, 362e12),
        ("NVIDIA GeForce RTX 4090", torch.bfloat16, 165e12),
        ("NVIDIA H100 80GB HBM3", torch.float32, None),
        ("Some other GPU A1000", torch.bfloat16, None),
    ],
)
def test_the_peak_is_known_by_a_word_of_the_name(name: str, dtype: torch.dtype, peak: float | None) -> None:
    assert find_peak(name, dtype) == peak


def test_a_cpu_has_no_gpu_memory() -> None:
    assert take_gpu_memory(torch.device("cpu")) is None
    assert describe_gpu_memory(None) == {}
    assert describe_gpu_memory(1.5) == {"train/gpu_memory_gib": Max(1.5)}

