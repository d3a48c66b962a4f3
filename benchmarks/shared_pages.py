"""Measure the gain from reading pages that requests share only once, as JSON on standard output.

    OMP_NUM_THREADS=1 PYTHONPATH=benchmarks python benchmarks/shared_pages.py [--sizes 2M 20M] [--rounds 5]

There are two ways to attend to the same pages: `PagedAttention` gathers them for each request ("apart"),
`CascadeAttention` gathers a block of pages once for all requests that share it ("shared"). Sizes are those of
`engine.py`.

- `attention`: one layer in a decoding step of 64 requests on random keys and values. "equal bits" says whether each row
  is the same alone, in reverse order and among all; "from softmax" is the largest distance from softmax in float64.
- `profile`: shares of the seconds on the wall of decoding, prompts already cached.
- `decoding`: processor seconds of a whole engine, one told to gather apart and one as it is; prompts included.

Contenders take turns in each round, the first round does not count, and a ratio is apart over shared: median, lowest
and highest of the rounds. One thread."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from engine import GROUP_SIZE, GROUPS, Contender, Turn, build, engine_turn, measure, multi_turn, multi_turn_context
from step_side import Stopwatch

from turnwise.engines.paged import PagedEngine, cascade, step
from turnwise.engines.paged import attention as gathering
from turnwise.engines.paged.attention import Geometry, PagedAttention, PagedMemory, PagedPlan
from turnwise.engines.paged.cascade import CascadeAttention
from turnwise.engines.paged.fused import FusedDecoder
from turnwise.engines.paged.runner import ModelRunner
from turnwise.models.allocator import keep_freed_memory

PAGE, REQUESTS, NEW_TOKENS = 32, 64, 48
CASES = {
    "8 groups of 8, 300 shared, 24 own": (8, 300, 24),
    "1 group of 64, 300 shared, 24 own": (1, 300, 24),
    "8 groups of 8, 300 shared, 300 own": (8, 300, 300),
    "8 groups of 8, 960 shared, 24 own": (8, 960, 24),
    "64 alone, 324 own": (64, 0, 324),
}
"""Number of groups, tokens that all of a group share, and tokens of each request alone."""
PROMPTS = {"8 groups of 8": (8, 300), "1 group of 64": (1, 300), "64 alone": (64, 64)}
"""Number of groups in decoding, and tokens of their prompts."""
REPEATS = 20


@dataclass(frozen=True)
class Piece:
    """One token that is decoded."""

    at: int
    start: int
    count: int
    pages: list[int]


def build_pages(size: str, groups: int, shared: int, own: int) -> tuple[PagedMemory, list[Piece], torch.Tensor]:
    """Random keys and values of one layer, a token of each request, and queries `[REQUESTS, heads, D]`. What is shared
    ends with a whole page."""
    draw = torch.Generator().manual_seed(1)
    geometry = Geometry(Geometry.of(build(size)).layers[:1])
    common, length = shared // PAGE, shared + own
    each = -(-length // PAGE) - common
    num_pages = 1 + groups * common + REQUESTS * each
    memory = PagedMemory(geometry, num_pages=num_pages, page_size=PAGE, dtype=torch.float32, device=torch.device("cpu"))
    memory.layers[0][PAGE:].normal_(generator=draw)
    free = (torch.randperm(REQUESTS * each, generator=draw) + 1 + groups * common).view(REQUESTS, each).tolist()
    pieces = []
    for request in range(REQUESTS):
        first = 1 + request * groups // REQUESTS * common
        pieces.append(Piece(request, length - 1, 1, [*range(first, first + common), *free[request]]))
    return memory, pieces, torch.randn(REQUESTS, geometry.largest.num_heads, geometry.largest.key_dim, generator=draw)


def attend(plan: type[PagedPlan], memory: PagedMemory, pieces: Sequence[Piece], query: torch.Tensor) -> torch.Tensor:
    """`[len(pieces), heads, D]`: the rows of `pieces`, which may be anywhere in the flat batch of `query`."""
    tiles = [Piece(at, piece.start, 1, piece.pages) for at, piece in enumerate(pieces)]
    slots = torch.zeros(len(tiles), dtype=torch.int64)
    rows = query[[piece.at for piece in pieces]]
    return plan(memory, tiles, slots).read(0, rows, query.shape[-1] ** -0.5)  # type: ignore[call-arg,arg-type]


def compute_softmax(memory: PagedMemory, piece: Piece, query: torch.Tensor) -> torch.Tensor:
    """The row `[heads, D]` of a piece by the definition of softmax attention, in float64."""
    kv_heads, dim = memory.geometry.largest.num_kv_heads, memory.geometry.largest.key_dim
    slots = [piece.pages[p // PAGE] * PAGE + p % PAGE for p in range(piece.start + 1)]
    keys, values = memory.layers[0][slots].double().view(-1, 2, kv_heads, dim).unbind(1)
    rows = query[piece.at].double().view(kv_heads, -1, dim)
    weights = torch.einsum("hrd,khd->hrk", rows, keys).mul(dim**-0.5).softmax(-1)
    return torch.einsum("hrk,khd->hrd", weights, values).reshape(-1, dim)


def compare(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, Any]:
    """Median seconds of each way, and the ratio of the first to the second."""
    rows: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name in contenders if number % 2 else reversed(contenders):
            rows[name].append(contenders[name]())
    kept = {name: seconds[1:] for name, seconds in rows.items()}
    ratios = [a / b for a, b in zip(*kept.values(), strict=True)]
    return {
        **{name: statistics.median(seconds) for name, seconds in kept.items()},
        "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
    }


def measure_attention(size: str, case: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """Measure one case of `CASES`."""
    memory, pieces, query = build_pages(size, *case)
    slots = torch.zeros(REQUESTS, dtype=torch.int64)
    plans = {
        "apart": PagedAttention(memory, list(pieces), slots),
        "shared": CascadeAttention(memory, pieces, slots),
    }

    def time_reads(plan: PagedPlan) -> float:
        started = time.process_time()
        for _ in range(REPEATS):
            plan.read(0, query, query.shape[-1] ** -0.5)
        return (time.process_time() - started) / REPEATS

    report = compare({name: partial(time_reads, plan) for name, plan in plans.items()}, rounds)
    exact = torch.stack([compute_softmax(memory, piece, query) for piece in pieces])
    for name, kind in (("apart", PagedAttention), ("shared", CascadeAttention)):
        together = attend(kind, memory, pieces, query)
        alone = torch.cat([attend(kind, memory, [piece], query) for piece in pieces])
        turned = attend(kind, memory, pieces[::-1], query).flip(0)
        report[f"{name}: equal bits"] = torch.equal(together, alone) and torch.equal(together, turned)
        report[f"{name}: from softmax"] = (together - exact).abs().max().item()
    return report


def build_engine(size: str, *, is_shared: bool, max_context: int) -> Contender:
    """The paged engine; if apart, its fused decoder reads like the modules' path."""
    engine = PagedEngine(build(size), max_concurrency=REQUESTS, max_context=max_context)
    engine._runner._is_cascade = is_shared  # type: ignore[attr-defined]
    return engine_turn(engine)


def draw_prompts(groups: int, length: int, seed: int) -> list[list[int]]:
    """A prompt of random tokens for every request; those of a group are equal."""
    prompts = np.random.default_rng(seed).integers(0, 1000, (groups, length)).tolist()
    return [prompts[i * groups // REQUESTS] for i in range(REQUESTS)]


def sample_prompts(groups: int, length: int) -> Callable[[Turn, int], int]:
    """A job for `engine.measure`: one reply to every prompt, where each group shares a prompt."""

    def run(turn: Turn, number: int) -> int:
        return sum(map(len, turn(draw_prompts(groups, length, number), NEW_TOKENS)))

    return run


def measure_profile(size: str, groups: int, length: int) -> dict[str, dict[str, float]]:
    """Shares of decoding time, by way of reading and by purpose."""
    report = {}
    for name, is_shared in (("apart", False), ("shared", True)):
        engine = build_engine(size, is_shared=is_shared, max_context=length + NEW_TOKENS)
        asked = draw_prompts(groups, length, 0)
        engine.turn(asked, 1)
        WATCH.seconds.clear()
        engine.turn(asked, NEW_TOKENS)
        total = sum(WATCH.seconds.values())
        report[name] = {phase: round(seconds / total, 3) for phase, seconds in sorted(WATCH.seconds.items())}
        engine.finish()
    return report


def measure_decoding(size: str, job: Callable[[Turn, int], int], max_context: int, rounds: int) -> dict[str, Any]:
    """Processor seconds of one job."""
    engines = {
        "apart": build_engine(size, is_shared=False, max_context=max_context),
        "shared": build_engine(size, is_shared=True, max_context=max_context),
    }
    numbers = dict.fromkeys(engines, 0)

    def run(name: str) -> float:
        numbers[name] += 1
        row = measure(partial(job, engines[name].turn, numbers[name]), engines[name].processor_s)
        engines[name].finish()
        return row["cpu_s"]

    return compare({name: partial(run, name) for name in engines}, rounds)


WATCH = Stopwatch()
WATCHED: tuple[tuple[Any, str, str], ...] = (
    (ModelRunner, "run", "tables and plan"),
    (FusedDecoder, "run", "layers without attention"),
    (PagedAttention, "read", "attention: the rest"),
    (CascadeAttention, "read", "attention: the rest"),
    (PagedMemory, "gather", "attention: gathering"),
    (gathering, "attend_rows", "attention: kernel"),
    (cascade, "attend_block", "attention: kernel"),
    (cascade, "merge_parts", "attention: merging"),
    (step, "draw_tokens", "drawing"),
)
"""Owner, function, and the name under which its seconds are counted."""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["2M"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    report: dict[str, Any] = {"attention": {}, "decoding": {}, "profile": {}}
    for size in options.sizes:
        with torch.inference_mode():
            for name, case in CASES.items():
                report["attention"][f"{size}, {name}"] = measure_attention(size, case, options.rounds)
        jobs = {name: (sample_prompts(*each), each[1] + NEW_TOKENS) for name, each in PROMPTS.items()}
        assert GROUPS * GROUP_SIZE == REQUESTS
        jobs[f"{options.turns} turns"] = (multi_turn(size, options.turns), multi_turn_context(options.turns))
        for name, (job, context) in jobs.items():
            report["decoding"][f"{size}, {name}"] = measure_decoding(size, job, context, options.rounds)
            print(size, name, report["decoding"][f"{size}, {name}"], file=sys.stderr, flush=True)
    for owner, function, phase in WATCHED:
        WATCH.wrap(owner, function, phase)
    for size in options.sizes:
        for name, each in PROMPTS.items():
            report["profile"][f"{size}, {name}"] = measure_profile(size, *each)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
