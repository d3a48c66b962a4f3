"""Estimates a step's floating-point operations and their share of the GPU's peak from the model's sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from turnwise.core.metrics import Max, Metric, Rate
from turnwise.core.types import Sample
from turnwise.models.shape import ModelShape, parse_shape

PEAKS: Mapping[str, float] = {
    "a100": 312e12,
    "a800": 312e12,
    "h100": 989e12,
    "h200": 989e12,
    "h800": 989e12,
    "h20": 148e12,
    "b200": 2250e12,
    "l40s": 362e12,
    "l4": 121e12,
    "a10g": 70e12,
    "a10": 125e12,
    "rtx 4090": 165e12,
    "rtx 3090": 71e12,
}
"""Dense bfloat16 and float16 operations per second by a word in the GPU's name, from the data sheets; the server
variant (SXM) if there are several."""
HALF = (torch.bfloat16, torch.float16)


def find_peak(name: str, dtype: torch.dtype) -> float | None:
    """Return the operations per second of the GPU called `name` in this format; None if the table has no entry, as for
    float32, whose speed depends on settings."""
    words = name.casefold().replace("-", " ").split()
    if dtype not in HALF:
        return None
    for known, peak in PEAKS.items():
        parts = known.split()
        if any(words[start : start + len(parts)] == parts for start in range(len(words))):
            return peak
    return None


def count_flops(shape: ModelShape, samples: Sequence[Sample], *, computed: float, trained_share: float = 1.0) -> float:
    """Count the operations of one forward and backward pass over `samples`, of which `computed` tokens were computed.

    Two per number of a matrix and token, the output layer at trained tokens only; attention over the mean length before
    a token. A backward pass costs as much for the activations, and again for the share of the weights that trains.
    Recomputation (`train.recompute_activations`), critic and reference are not counted.
    """
    lengths = [len(sample.token_ids) for sample in samples]
    num_trained = sum(int(sample.loss_mask.sum()) for sample in samples)
    context = sum(length * length for length in lengths) / 2 / max(1, sum(lengths))
    head = shape.vocab_size * shape.hidden_size
    attention = 4 * shape.num_layers * shape.num_heads * shape.head_dim * context
    weights = computed * 2 * (shape.num_linear - head) + num_trained * 2 * head
    return weights * (2 + trained_share) + computed * attention * 3


def measure_throughput(
    model: torch.nn.Module, samples: Sequence[Sample], *, computed: float, seconds: float, size: int
) -> dict[str, Metric]:
    """Return `train/flops_per_s` of all `size` ranks together, and `train/mfu` if the GPU's peak is known; empty if the
    model's sizes are unknown."""
    config = getattr(model, "config", None)
    shape = None if config is None else parse_shape(config.to_dict())
    if shape is None or not computed or seconds <= 0:
        return {}
    parameters = list(model.parameters())
    total = sum(each.numel() for each in parameters)
    trained = sum(each.numel() for each in parameters if each.requires_grad)
    flops = count_flops(shape, samples, computed=computed, trained_share=trained / max(1, total))
    metrics: dict[str, Metric] = {"train/flops_per_s": Rate(flops, seconds)}
    device = parameters[0].device
    if device.type == "cuda":
        peak = find_peak(torch.cuda.get_device_name(device), parameters[0].dtype)
        if peak is not None:
            metrics["train/mfu"] = Rate(flops / (peak * size), seconds)
    return metrics


def take_gpu_memory(device: torch.device) -> float | None:
    """Return the most GiB that torch had allocated on a GPU since the last call; None on a CPU."""
    if device.type != "cuda":
        return None
    peak = torch.cuda.max_memory_allocated(device) / 2**30
    torch.cuda.reset_peak_memory_stats(device)
    return peak


def describe_gpu_memory(gib: float | None) -> dict[str, Metric]:
    """Return `train/gpu_memory_gib`; empty without a GPU."""
    return {} if gib is None else {"train/gpu_memory_gib": Max(gib)}
