"""Compare engine and trainer on a GPU with the limits of that GPU, as JSON on standard output; finished parts go to
standard error.

    python benchmarks/gpu.py [--sizes 0.6B 1.7B] [--sequences 64 256] [--new-tokens 128] [--rounds 3] [--dtype bfloat16]
    python benchmarks/gpu.py --attention gather flex --cuda-graphs        # decoding in three ways, in turns
    python benchmarks/gpu.py --sizes tiny --device cpu        # seconds on any machine; only shows that it runs

The shapes are those of Qwen3-0.6B and Qwen3-1.7B, the weights random. Without a GPU it prints that there is none and
ends with status 0.

- *Limits*, measured on the same device in the same run: bytes per second of a device-to-device copy (read and written),
and floating-point
  operations per second of a square matrix product in the same dtype; the fastest of five each.
- *Decode*: `PROMPT` tokens per sequence, each with a prompt of its own, through the paged engine, in each of the
  requested ways, which take turns in every round. Seconds are those of a run with `--new-tokens` less those of a run
  with two, so prefill, copying of weights and recording of graphs, anew in every run, cancel. A step must read every
  weight once and the keys and values of every token before it: these bytes over the time, over the copy's bytes per
  second, is the fraction of memory bandwidth. `second_token_ms` is a run with two new tokens less one with one: a step,
  and with graphs their recording, which a run pays once for each batch size and version of the weights.
- *Training*: one policy step (PPO's loss, AdamW) on sequences of `--train-tokens`, three quarters of them trained. A
computed token costs
  6 operations per weight of the layers, a trained one 6 per weight of the output layer; a layer's causal attention of L
  tokens costs 6 L^2 heads head_dim. These over the time, over those of the matrix product, is the utilisation. What is
  computed twice does not count.
- *Parity*: how far the trainer's log-probabilities are from the engine's on the same tokens, for each way of decoding;
  a wrong one shows here.
- *Memory*: torch's peak of allocated bytes on the GPU, beside what `forecast/memory.py` predicts.

Figures are medians without the first round, which warms up. A size that does not fit is reported, and the others run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from engine import PROMPT, Prompts, engine_turn
from transformers import PreTrainedModel

from turnwise.algorithms.losses.table import build_loss
from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.resolved import resolve
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.types import (
    Completion,
    Origin,
    Sample,
    SamplingParams,
    Session,
    TrajectoryId,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.engines.paged import PagedEngine
from turnwise.forecast.held import BYTES
from turnwise.forecast.memory import plan_memory
from turnwise.models.build import DTYPES, build_model, choose_device, describe_device, num_parameters
from turnwise.models.shape import ModelShape, read_policy_shape
from turnwise.training.optimizer import build_optimizer
from turnwise.training.parity import collect_evidence, compute_parity
from turnwise.training.policy_step import PolicyLoss, run_policy_step

QWEN3 = {
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "tie_word_embeddings": True,
}
TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
SIZES: dict[str, tuple[int, dict[str, Any]]] = {
    "0.6B": (151936, {**QWEN3, "hidden_size": 1024, "intermediate_size": 3072}),
    "1.7B": (151936, {**QWEN3, "hidden_size": 2048, "intermediate_size": 6144}),
    "tiny": (500, {**TINY, "tie_word_embeddings": True}),
}
"""Name to vocabulary and configuration."""


def time_s(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds until all of it is done, on the wall."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    started = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - started


def measure_limits(device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """The best that the device does."""
    on_gpu = device.type == "cuda"
    source = torch.ones(1 << (28 if on_gpu else 22), dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    size = 8192 if on_gpu else 256
    a, b = (torch.randn(size, size, dtype=dtype, device=device) for _ in range(2))
    copy_s = min(time_s(device, lambda: target.copy_(source)) for _ in range(6))
    product_s = min(time_s(device, lambda: a @ b) for _ in range(6))
    return {"copy_bytes_per_s": 2 * 4 * source.numel() / copy_s, "matmul_flops_per_s": 2 * size**3 / product_s}


def decode_bytes(shape: ModelShape, item: int, *, sequences: int, new_tokens: int) -> float:
    """Bytes that one of the steps after the first must read: every weight once, and the keys and values seen, on
    average over the steps."""
    weights = shape.num_parameters - (0 if shape.tied else shape.vocab_size * shape.hidden_size)
    seen = PROMPT + new_tokens / 2
    return item * (weights + sequences * seen * shape.num_cached)


def step_flops(shape: ModelShape, *, length: int, sequences: int, trained: int) -> float:
    """Operations of forward and backward passes over `sequences` of `length` tokens, the last `trained` of each
    predicted."""
    head = shape.vocab_size * shape.hidden_size
    attention = shape.num_layers * shape.num_heads * shape.head_dim * length**2
    return 6.0 * sequences * ((shape.num_linear - head) * length + head * trained + attention)


def decode_ways(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Name to settings of the engine."""
    ways: dict[str, dict[str, Any]] = {attention: {"attention": attention} for attention in options.attention}
    return ways | ({"flex, graphs": {"attention": "flex", "cuda_graphs": True}} if options.cuda_graphs else {})


def measure_decode(
    model: PreTrainedModel,
    shape: ModelShape,
    limits: dict[str, float],
    ways: dict[str, dict[str, Any]],
    *,
    sequences: int,
    new_tokens: int,
    rounds: int,
) -> dict[str, dict[str, float]]:
    """The paged engine with one turn per sequence, in each of these ways."""
    engines = {
        way: PagedEngine(
            model, max_concurrency=sequences, max_context=PROMPT + new_tokens, max_batch_tokens=8192, **each
        )
        for way, each in ways.items()
    }
    contenders = {way: engine_turn(engine) for way, engine in engines.items()}

    def run(way: str, number: int, count: int) -> float:
        prompts: Prompts = np.random.default_rng(number).integers(0, shape.vocab_size, (sequences, PROMPT)).tolist()
        seconds = time_s(model.device, lambda: contenders[way].turn(prompts, count))
        contenders[way].finish()
        return seconds

    taken = [
        {way: [run(way, number, count) for count in (1, 2, new_tokens)] for way in ways} for number in range(rounds + 1)
    ]
    moved = decode_bytes(shape, model.dtype.itemsize, sequences=sequences, new_tokens=new_tokens)
    report = {}
    for way in ways:
        one_s, two_s, whole_s = (
            statistics.median(times) for times in zip(*(row[way] for row in taken[1:]), strict=True)
        )
        step_s = (whole_s - two_s) / (new_tokens - 2)
        report[way] = {
            "tokens_per_s": sequences / step_s,
            "step_ms": 1e3 * step_s,
            "second_token_ms": 1e3 * (two_s - one_s),
            "prefill_tokens_per_s": sequences * PROMPT / one_s,
            "fraction_of_bandwidth": moved / step_s / limits["copy_bytes_per_s"],
            "is_fused": float(engines[way].is_fused),
        }
    return report


def make_sample(ids: np.ndarray, num_prompt: int, logprobs: np.ndarray, number: int) -> Sample:
    """A prompt and a reply that trains."""
    mask = np.arange(len(ids)) >= num_prompt
    return Sample(
        token_ids=to_ids(ids.tolist()),
        loss_mask=to_mask(mask),
        context_mask=to_mask(np.zeros(len(ids), bool)),
        behavior_logprobs=to_floats(np.concatenate([np.zeros(num_prompt), logprobs])),
        advantages=to_floats(np.where(mask, 1.0 - 2.0 * (number % 2), 0.0)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=number), task_id="t"),
    )


def measure_parity(model: PreTrainedModel, vocab_size: int, way: dict[str, Any]) -> dict[str, float]:
    """Four short replies of an engine with these settings."""
    engine = PagedEngine(model, max_concurrency=4, max_context=PROMPT + 16, **way)
    prompts = np.random.default_rng(7).integers(0, vocab_size, (4, PROMPT))

    async def sample() -> list[Completion]:
        requests = (
            engine.generate(to_ids(p.tolist()), SamplingParams(max_tokens=16, seed=i), session=Session(str(i), "0"))
            for i, p in enumerate(prompts)
        )
        return list(await asyncio.gather(*requests))

    done = asyncio.run(sample())
    samples = [
        make_sample(np.concatenate([p, c.token_ids]), PROMPT, c.logprobs, i)
        for i, (p, c) in enumerate(zip(prompts, done, strict=True))
    ]
    evidence = collect_evidence(model, samples, temperature=1.0)
    parity = compute_parity(evidence.trainer_logprobs, evidence.sampler_logprobs)
    return {"tokens": parity.num_tokens, "mean_nats": parity.mean, "max_nats": parity.max}


def measure_training(
    model: PreTrainedModel,
    shape: ModelShape,
    limits: dict[str, float],
    *,
    length: int,
    sequences: int,
    micro_batch: int,
    rounds: int,
) -> dict[str, float]:
    """Policy steps on random tokens."""
    draw = np.random.default_rng(3)
    trained = 3 * length // 4
    logprobs = np.full(trained, -np.log(shape.vocab_size))
    samples = [
        make_sample(draw.integers(0, shape.vocab_size, length), length - trained, logprobs, i) for i in range(sequences)
    ]
    optimizer = build_optimizer(model, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)
    loss = PolicyLoss(function=build_loss("ppo"), temperature=1.0)

    def step() -> None:
        run_policy_step(model, optimizer, samples, loss=loss, lr=0.0, max_grad_norm=1.0, micro_batch_tokens=micro_batch)

    seconds = statistics.median([time_s(model.device, step) for _ in range(rounds + 1)][1:])
    flops = step_flops(shape, length=length, sequences=sequences, trained=trained)
    return {
        "tokens_per_s": sequences * length / seconds,
        "step_s": seconds,
        "flops_utilisation": flops / seconds / limits["matmul_flops_per_s"],
    }


def predict_bytes(config: dict[str, Any], vocab_size: int, options: argparse.Namespace) -> tuple[RunConfig, int]:
    """The recipe that this amounts to, and the peak its plan names, with what each further way of decoding holds
    besides."""
    trained = 3 * options.train_tokens // 4
    first, *others = decode_ways(options).values()
    recipe = RunConfig.model_validate(
        {
            "model": {"config": config, "dtype": options.dtype, "device": options.device},
            "tokenizer": {"vocab_size": vocab_size},
            "rollout": {
                "group_size": 8,
                "max_tokens": options.train_tokens,
                "max_turns": 1,
                "max_turn_tokens": trained,
            },
            "engine": {
                "max_concurrency": max(options.sequences),
                "max_context": PROMPT + options.new_tokens,
                "options": first,
            },
            "train": {"micro_batch_tokens": options.micro_batch_tokens, "shared_prefix": False},
        }
    )
    plan = plan_memory(read_forecast_settings(resolve(recipe)), device=options.device)
    assert plan is not None
    return recipe, plan.peak + len(others) * (plan.cache + plan.packed)


def show(size: str, part: str, figures: dict[str, Any]) -> None:
    """Print finished parts to standard error, so that an interrupted run keeps its measurements."""
    print(f"{size}: {part}: {json.dumps(figures)}", file=sys.stderr, flush=True)


def measure_size(
    name: str, device: torch.device, limits: dict[str, float], options: argparse.Namespace
) -> dict[str, Any]:
    """Measure everything about one model."""
    vocab_size, config = SIZES[name]
    recipe, predicted = predict_bytes(config, vocab_size, options)
    shape = read_policy_shape(recipe.model, vocab_size=recipe.tokenizer.vocab_size)
    assert shape is not None
    assert BYTES[options.dtype] == DTYPES[options.dtype].itemsize
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model = build_model("qwen3", config, vocab_size=vocab_size, seed=1, dtype=options.dtype, device=device)
    settings, ways = {"new_tokens": options.new_tokens, "rounds": options.rounds}, decode_ways(options)
    report: dict[str, Any] = {"parameters": num_parameters(model), "decode": {}}
    report["parity"] = {way: measure_parity(model, vocab_size, each) for way, each in ways.items()}
    show(name, "parity", report["parity"])
    for sequences in options.sequences:
        decode = measure_decode(model, shape, limits, ways, sequences=sequences, **settings)
        report["decode"][str(sequences)] = decode
        show(name, f"decode of {sequences} sequences", decode)
    report["training"] = measure_training(
        model,
        shape,
        limits,
        length=options.train_tokens,
        sequences=options.train_sequences,
        micro_batch=options.micro_batch_tokens,
        rounds=options.rounds,
    )
    if on_gpu:
        report["memory"] = {"peak_mib": torch.cuda.max_memory_allocated() / 2**20, "predicted_mib": predicted / 2**20}
    return report


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", default=["0.6B", "1.7B"], choices=sorted(SIZES))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", default="bfloat16", choices=sorted(DTYPES))
    parser.add_argument("--sequences", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--new-tokens", type=int, default=128, help="size 3 or")
    parser.add_argument("--attention", nargs="+", default=["gather"], choices=["gather", "flex"])
    parser.add_argument("--cuda-graphs", action="store_true", help="decode with recorded graphs too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train-tokens", type=int, default=1024, help="of one sequence")
    parser.add_argument("--train-sequences", type=int, default=32)
    parser.add_argument("--micro-batch-tokens", type=int, default=8192)
    options = parser.parse_args()
    if options.new_tokens < 3 or options.rounds < 1:
        parser.error(
            "--new-tokens needs at least 3, of which the first is prefill's and the second may record graphs, "
            "--rounds at least 1"
        )
    if options.cuda_graphs and options.device == "cpu":
        parser.error("--cuda-graphs needs --device cuda")
    try:
        device = choose_device(options.device)
    except ConfigError as cause:
        print(json.dumps({"gpu": f"none at hand: {cause}"}))
        return
    limits = measure_limits(device, DTYPES[options.dtype])
    about = {"torch": torch.__version__, "dtype": options.dtype, "prompt_tokens": PROMPT, "rounds": options.rounds}
    report: dict[str, Any] = {"device": describe_device(device), **about, "limits": limits, "sizes": {}}
    for name in options.sizes:
        try:
            report["sizes"][name] = measure_size(name, device, limits, options)
        except torch.OutOfMemoryError as cause:
            report["sizes"][name] = {"skipped": f"out of memory: {str(cause).splitlines()[0]}"}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
