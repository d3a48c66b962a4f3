"""Measures in a second or two how fast this machine runs matrices of a model's sizes."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch.nn import functional

from turnwise.models.build import DTYPES
from turnwise.models.shape import ModelShape
from turnwise.models.speed import Speed
from turnwise.models.threads import set_threads

NUM_LAYERS = 4
"""Number of layers that are run, so that weights are read from memory and not from the processor's cache."""
TRAINING_ROWS = 256
SECONDS = 0.4
"""Approximate duration in seconds of each of the three measurements, which runs at least once."""


def measure_speed(
    shape: ModelShape,
    *,
    rows: int,
    dtype: str = "float32",
    device: torch.device | str = "cpu",
    training_threads: int = 0,
    sampling_threads: int = 1,
) -> Speed:
    """Measure forward and backward passes, passes over `rows` tokens that are sampled at once, and AdamW.

    The matrices have the sizes of the model's layers; 0 threads are one per core, as in a recipe. Other programs on the
    machine slow the result as they would slow the run.
    """
    hidden, wide = shape.hidden_size, shape.num_heads * shape.head_dim
    narrow, inner = shape.num_kv_heads * shape.head_dim, shape.intermediate_size
    sizes = [(wide, hidden), (narrow, hidden), (narrow, hidden), (hidden, wide)]
    sizes += [(inner, hidden), (inner, hidden), (hidden, inner)]
    weights = [
        (0.02 * torch.randn(size, dtype=DTYPES[dtype], device=device)).requires_grad_()
        for _ in range(NUM_LAYERS)
        for size in sizes
    ]
    numbers = sum(weight.numel() for weight in weights)

    def run(num_rows: int) -> torch.Tensor:
        x = torch.ones(num_rows, hidden, dtype=DTYPES[dtype], device=device)
        for layer in range(NUM_LAYERS):
            q, k, v, o, gate, up, down = weights[layer * len(sizes) : (layer + 1) * len(sizes)]
            scale = functional.linear(x, k).mean() + functional.linear(x, v).mean()
            x = x + functional.linear(functional.linear(x, q) * scale, o)
            x = x + functional.linear(functional.silu(functional.linear(x, gate)) * functional.linear(x, up), down)
        return x

    def train() -> None:
        run(TRAINING_ROWS).sum().backward()

    optimizer = torch.optim.AdamW(weights, lr=1e-6)
    threads = torch.get_num_threads()
    try:
        set_threads(training_threads)
        training = 6 * numbers * TRAINING_ROWS / _time(train, device)
        stepping = numbers / _time(optimizer.step, device)
        set_threads(sampling_threads)
        with torch.no_grad():
            sampling = 2 * numbers * rows / _time(lambda: run(rows), device)
    finally:
        torch.set_num_threads(threads)
    return Speed(training=training, sampling=sampling, optimizer=stepping)


def _time(work: Callable[[], object], device: torch.device | str) -> float:
    """Return the seconds per call: the mean over `SECONDS` after one call to warm up."""

    def finish() -> None:
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()

    work()
    finish()
    count, started = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - started < SECONDS:
        work()
        finish()
        count += 1
    return (time.perf_counter() - started) / count
