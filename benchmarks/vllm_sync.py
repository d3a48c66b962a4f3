"""Measure the cost of publishing weights to a vLLM engine: seconds of each phase, by size, transport and place.

    make vllm
    python benchmarks/vllm_sync.py [--python .venv-vllm/bin/python] [--rounds 3] [--sizes 2M 20M] [--only adapter]

A version is published while nothing is sampled: the whole model as files, the whole model broadcast over gloo, or an
adapter of rank 16 on all linear layers as files. Every weight of it changes; `adopt` stages, verifies, loads and
proves. The whole time is `adopt`; `write` is the trainer's part of it, `verify` is the engine's time to read, or
receive, and sum the weights, and the rest is loading, emptying the prefix cache and the canary. The median of the
rounds is printed, on one thread, with the largest distance between the engine's log-probabilities after the last
version and the model's own."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.core.types import SamplingParams, Session, to_ids
from turnwise.engines.canary import score_canary
from turnwise.engines.vllm import VllmEngine
from turnwise.models.build import build_model
from turnwise.models.lora import add_adapter, list_adapter

SIZES: dict[str, dict[str, Any]] = {
    "2M": {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 6, "num_attention_heads": 4},
    "20M": {"hidden_size": 384, "intermediate_size": 1152, "num_hidden_layers": 8, "num_attention_heads": 6},
    "135M": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9},
}
RANK = 16
KINDS = ("whole", "broadcast", "adapter")
VOCAB = {"2M": 2_000, "20M": 10_000, "135M": 49_152}


def make_model(size: str, kind: str) -> PreTrainedModel:
    """A model with random weights, about that many parameters and tied embeddings; for the kind "adapter" with an
    adapter."""
    shape = SIZES[size]
    config = {
        **shape,
        "num_key_value_heads": shape["num_attention_heads"] // (3 if size != "2M" else 2),
        "head_dim": 64 if size != "2M" else 32,
        "tie_word_embeddings": True,
        "max_position_embeddings": 512,
    }
    model = build_model("qwen3", config, vocab_size=VOCAB[size], seed=0)
    if kind == "adapter":
        add_adapter(model, rank=RANK, alpha=32.0, dropout=0.0, target_modules="all-linear", base="", seed=0)
        generator = torch.Generator().manual_seed(0)
        for parameter in list_adapter(model).values():
            torch.nn.init.normal_(parameter, std=0.05, generator=generator)  # B is 0 at first, and would stay 0
    return model


async def measure(size: str, kind: str, python: Path, staging: Path | None, rounds: int) -> dict[str, float]:
    """Medians in seconds, bytes published, and the final distance in nats."""
    model = make_model(size, kind)
    published = list(list_adapter(model).values()) or list(model.parameters())
    engine = VllmEngine(
        model,
        python=python,
        num_workers=1,
        max_concurrency=8,
        max_context=256,
        cache_mib=128,
        staging=staging,
        transport="broadcast" if kind == "broadcast" else "files",
    )
    rows: list[dict[str, float]] = []
    try:
        token_ids = score_canary(model).token_ids
        ask = SamplingParams(max_tokens=16)
        await engine.generate(to_ids(token_ids), ask, session=Session("g", "0"))
        for version in range(1, rounds + 1):
            with torch.no_grad():
                for parameter in published:
                    parameter.mul_(1.001)
            began = time.perf_counter()
            await engine.adopt(version)
            rows.append({**engine.seconds, "adopt": time.perf_counter() - began})
        expected = score_canary(model).logprobs
        (link,) = engine.links()
        scores = await link.ask("score", token_ids=list(token_ids))
        gap = float(np.abs(np.asarray(scores) - expected).max())
    finally:
        await engine.close()
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]} | {
        "gap": gap,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "bytes": sum(parameter.numel() * parameter.element_size() for parameter in published),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(".venv-vllm/bin/python"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--only", nargs="+", default=list(KINDS), choices=KINDS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| parameters | published | staged in | bytes | write s | verify s | adopt s | largest distance, nats |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        places = (("shared memory", None), ("a folder", Path(folder)))
        for size, kind, (name, staging) in itertools.product(args.sizes, args.only, places):
            row = asyncio.run(measure(size, kind, args.python, staging, args.rounds))
            print(
                f"| {row['parameters'] / 1e6:.1f} M | {kind} | {name} | {row['bytes'] / 1e6:.1f} M | "
                f"{row['write']:.3f} | {row['verify']:.3f} | {row['adopt']:.3f} | {row['gap']:.1e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
