"""The local engine against what people use today, on this machine, as JSON on standard output.

    python benchmarks/engine.py [--sizes 2M 20M] [--sequences 64] [--new-tokens 48] [--rounds 3] [--turns 10] [--skip NAME ...]

Single turn: every contender samples `--new-tokens` tokens for each of `--sequences` prompts of `PROMPT` tokens, all of one length (the
best case for padding). Multi-turn: 64 trajectories in groups of 8, a system prompt of 300 tokens, a task of 30 tokens per group,
`--turns` replies of 24 tokens with observations of 32 between them; contenders without a prefix cache get the whole history each turn.
Contenders take turns within a round, the first round does not count, and everything runs on one thread.

Two clocks: seconds on the wall, and processor seconds of this process, which other processes disturb less. Ratios use the second.
The limit is what the fastest matrix product of this machine (1024 x 1024 x 1024, float32, same thread, same rounds) would need for
the multiply-adds of the weights, each sampled or prompt token once.
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
from transformers import GenerationConfig, PreTrainedModel

from turnwise.core.types import SamplingParams, to_ids
from turnwise.engines.local import LocalEngine
from turnwise.engines.paged import PagedEngine
from turnwise.models.build import build_model, num_parameters

PROMPT, SYSTEM, TASK, REPLY, OBSERVATION, GROUPS, GROUP_SIZE = 64, 300, 30, 24, 32, 8, 8
SIZES: dict[str, tuple[int, dict[str, int]]] = {
    "2M": (
        1000,
        {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 6, "head_dim": 32},
    ),
    "20M": (
        8000,
        {"hidden_size": 384, "intermediate_size": 1152, "num_hidden_layers": 9, "num_attention_heads": 6, "head_dim": 64},
    ),
    "150M": (
        16000,
        {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 10, "num_attention_heads": 16, "head_dim": 64},
    ),
}

Prompts = list[list[int]]
Turn = Callable[[Prompts, int], Prompts]
"""Prompts and the number of new tokens to replies. `None` prompts mean: everything is over, forget it."""


def build(size: str, attention: str | None = None) -> PreTrainedModel:
    """The model of one size; the same weights whatever the attention."""
    vocab_size, config = SIZES[size]
    shape = {**config, "num_key_value_heads": 2, "tie_word_embeddings": True, "max_position_embeddings": 8192}
    model = build_model("qwen3", shape, vocab_size=vocab_size, seed=1)
    if attention is not None:
        model.set_attn_implementation(attention)
    return model


def engine_turn(engine: Any) -> tuple[Turn, Callable[[], None]]:
    """A contender from an object with `generate`, `release` and `adopt`."""
    version = 0

    def turn(prompts: Prompts, new_tokens: int) -> Prompts:
        async def run() -> Prompts:
            params = [SamplingParams(max_tokens=new_tokens, seed=len(p) * 1000 + i) for i, p in enumerate(prompts)]
            done = await asyncio.gather(
                *(engine.generate(to_ids(p), s, session=str(i)) for i, (p, s) in enumerate(zip(prompts, params, strict=True)))
            )
            return [c.token_ids.tolist() for c in done]

        return asyncio.run(run())

    def finish() -> None:
        nonlocal version
        version += 1

        async def run() -> None:
            for i in range(1024):
                await engine.release(str(i))

        asyncio.run(run())
        engine.adopt(version)

    return turn, finish


def generate_turn(model: PreTrainedModel) -> tuple[Turn, Callable[[], None]]:
    """transformers `generate`: one batch, padded on the left, whole history."""

    def turn(prompts: Prompts, new_tokens: int) -> Prompts:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        out = model.generate(
            input_ids=ids, attention_mask=mask, generation_config=_generation(model, new_tokens, min_new_tokens=new_tokens)
        )
        return out[:, longest:].tolist()  # type: ignore[no-any-return]

    return turn, lambda: None


def generate_batch_turn(model: PreTrainedModel) -> tuple[Turn, Callable[[], None]]:
    """transformers' continuous batching, whole history."""

    def turn(prompts: Prompts, new_tokens: int) -> Prompts:
        done = model.generate_batch(inputs=prompts, generation_config=_generation(model, new_tokens), progress_bar=False)
        return [list(r.generated_tokens) for r in sorted(done.values(), key=lambda r: int(r.request_id.split("_")[-1]))]

    return turn, lambda: None


def _generation(model: PreTrainedModel, new_tokens: int, **more: Any) -> GenerationConfig:
    return GenerationConfig(max_new_tokens=new_tokens, do_sample=True, top_k=0, top_p=1.0, pad_token_id=0, eos_token_id=-1, **more)


def contenders(size: str, sequences: int, context: int, skip: list[str]) -> dict[str, tuple[Turn, Callable[[], None]]]:
    """Name to contender. A peer in an environment of its own (vLLM over HTTP) is one more `Turn` in this table."""
    shape = {"max_concurrency": sequences, "max_context": context}
    makers: dict[str, Callable[[], tuple[Turn, Callable[[], None]]]] = {
        "paged": lambda: engine_turn(PagedEngine(build(size), **shape)),
        "paged_modules": lambda: engine_turn(PagedEngine(build(size), **shape, fused=False)),
        "slots": lambda: engine_turn(LocalEngine(build(size), **shape)),
        "generate": lambda: generate_turn(build(size, "sdpa")),
        "generate_batch": lambda: generate_batch_turn(build(size, "sdpa")),
    }
    return {name: make() for name, make in makers.items() if name not in skip}


def matmul_flops_per_s() -> float:
    """The fastest of the two matrix libraries PyTorch carries."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    products: list[Callable[[], torch.Tensor]] = [lambda: a @ b]
    if torch.backends.mkldnn.is_available():
        packed = torch.ops.mkldnn._reorder_linear_weight(b, None)
        products.append(lambda: torch.ops.mkldnn._linear_pointwise(a, packed, None, "none", [], ""))
    best = 0.0
    for product in products:
        for _ in range(3):
            started = time.process_time()
            product()
            best = max(best, 2 * 1024**3 / (time.process_time() - started))
    return best


def measure(run: Callable[[], int]) -> dict[str, float]:
    """Sampled tokens per second on both clocks."""
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall_s": wall, "cpu_s": cpu, "tokens_per_cpu_s": tokens / cpu, "tokens_per_wall_s": tokens / wall}


def single_turn(size: str, sequences: int, new_tokens: int) -> Callable[[Turn, int], int]:
    """Every sequence once."""
    vocab_size = SIZES[size][0]

    def run(turn: Turn, number: int) -> int:
        prompts = np.random.default_rng(number).integers(0, vocab_size, (sequences, PROMPT)).tolist()
        return sum(len(r) for r in turn(prompts, new_tokens))

    return run


def multi_turn(size: str, turns: int) -> Callable[[Turn, int], int]:
    """Groups of conversations, lengthened by observations."""
    vocab_size = SIZES[size][0]

    def run(turn: Turn, number: int) -> int:
        draw = np.random.default_rng(number)
        system = draw.integers(0, vocab_size, SYSTEM).tolist()
        tasks = draw.integers(0, vocab_size, (GROUPS, TASK)).tolist()
        histories = [system + tasks[i // GROUP_SIZE] for i in range(GROUPS * GROUP_SIZE)]
        sampled = 0
        for _ in range(turns):
            replies = turn(histories, REPLY)
            sampled += sum(map(len, replies))
            histories = [h + r + draw.integers(0, vocab_size, OBSERVATION).tolist() for h, r in zip(histories, replies, strict=True)]
        return sampled

    return run


def unique_tokens(turns: int) -> int:
    """Tokens of a multi-turn run that a perfect prefix cache computes: the last sampled token of a trajectory never runs."""
    return SYSTEM + GROUPS * TASK + GROUPS * GROUP_SIZE * (turns * REPLY + (turns - 1) * OBSERVATION - 1)


def compare(size: str, job: Callable[[Turn, int], int], entries: dict[str, Any], rounds: int, tokens_needed: int) -> dict[str, Any]:
    """All contenders, interleaved."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in entries}
    limits = []
    for number in range(rounds + 1):
        limits.append(matmul_flops_per_s())
        for name, (turn, finish) in entries.items():
            rows[name].append(measure(lambda turn=turn, number=number: job(turn, number)))  # type: ignore[misc]
            finish()
            print(f"{size} round {number} {name}: {rows[name][-1]['cpu_s']:.2f} cpu s", file=sys.stderr, flush=True)
    report: dict[str, Any] = {"matmul_gflops_per_s": statistics.median(limits) / 1e9}
    parameters = num_parameters(build(size))
    for name in entries:
        kept = rows[name][1:]
        median = {key: statistics.median(row[key] for row in kept) for key in kept[0]}
        median["fraction_of_matmul_limit"] = 2 * parameters * tokens_needed / median["cpu_s"] / statistics.median(limits)
        ratios = [other["cpu_s"] / mine["cpu_s"] for other, mine in zip(kept, rows["paged"][1:], strict=True)]
        report[name] = {**median, "paged_is_faster_by": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
    return report


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", default=["2M", "20M"], choices=sorted(SIZES))
    parser.add_argument("--sequences", nargs="+", type=int, default=[64])
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", nargs="*", type=int, default=[10])
    parser.add_argument("--skip", nargs="*", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {"torch": torch.__version__, "threads": 1, "rounds": options.rounds, "single_turn": {}, "multi_turn": {}}
    for size in options.sizes:
        for sequences in options.sequences:
            entries = contenders(size, sequences, PROMPT + options.new_tokens, options.skip)
            needed = sequences * (PROMPT + options.new_tokens - 1)
            job = single_turn(size, sequences, options.new_tokens)
            report["single_turn"][f"{size}/{sequences}"] = compare(size, job, entries, options.rounds, needed)
        for turns in options.turns:
            context = SYSTEM + TASK + turns * (REPLY + OBSERVATION)
            entries = contenders(size, GROUPS * GROUP_SIZE, context, options.skip)
            report["multi_turn"][f"{size}/{turns}"] = compare(size, multi_turn(size, turns), entries, options.rounds, unique_tokens(turns))
            engine = PagedEngine(build(size), max_concurrency=64, max_context=context)
            multi_turn(size, turns)(engine_turn(engine)[0], 0)
            report["multi_turn"][f"{size}/{turns}"]["computed_per_unique_token"] = engine.num_computed_tokens / unique_tokens(turns)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
