"""Compare sampling with and without grouped drafting on this machine, as JSON on standard output.

    OMP_NUM_THREADS=1 python benchmarks/speculative.py [--sizes 2M 20M] [--groups 1 2 8] [--rounds 3] [--new-tokens 96]
    [--drafts 7]

Groups of 8 sample with the same seeds, with drafts and without, taking turns; the replies must be equal in every bit.
Kinds of text:

- `random`: what random weights write at temperature 1: nothing repeats, so nothing can be gained.
- `copied`: the model copies its prompt, and at each token goes on elsewhere in it with a chance of some per cent, like
  members that quote the same names and results. The head's rows are set so that every token has one likely successor;
  the arithmetic is the model's.
- `straggler`: as `copied`, but only one member of each group is left: the tail of a batch.

Ratios are processor seconds without drafts over those with, median over rounds; above 1 drafting is faster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from typing import Any

import numpy as np
import torch
from engine import SIZES
from transformers import PreTrainedModel

from turnwise.core.types import Completion, SamplingParams, Session, to_ids
from turnwise.engines.paged import PagedEngine
from turnwise.models.build import build_model

GROUP_SIZE, VOCABULARY, PERIOD = 8, 960, 48
KINDS = ("random", "copied", "straggler")
STRENGTH = 9.0
"""Logit of the likely successor, in a vocabulary whose other logits have a deviation of about 1."""


def build(size: str, kind: str) -> PreTrainedModel:
    """Random weights; for `copied`, token t is followed by t + 1 within its block of `PERIOD`, most of the time."""
    shape = {**SIZES[size][1], "num_key_value_heads": 2, "tie_word_embeddings": False, "max_position_embeddings": 8192}
    model = build_model("qwen3", shape, vocab_size=VOCABULARY, seed=1)
    if kind != "random":
        draw = torch.Generator().manual_seed(3)
        embedding = torch.nn.functional.normalize(
            torch.randn(VOCABULARY, model.config.hidden_size, generator=draw), dim=1
        )
        tokens = torch.arange(VOCABULARY)
        following = tokens // PERIOD * PERIOD + (tokens + 1) % PERIOD
        with torch.no_grad():
            # Large compared with what the layers add, so that the last hidden state shows the last token.
            model.get_input_embeddings().weight.copy_(8 * embedding)
            model.lm_head.weight[following] = embedding * STRENGTH / model.config.hidden_size**0.5
    return model


def sample(engine: PagedEngine, kind: str, groups: int, new_tokens: int, number: int) -> tuple[list[Completion], float]:
    """Measure one round: replies, and processor seconds of the part that counts."""
    draw = np.random.default_rng(number)
    prompts = [np.concatenate(draw.permutation(np.arange(VOCABULARY).reshape(-1, PERIOD))) for _ in range(groups)]

    async def run(members: range) -> list[Completion]:
        return await asyncio.gather(
            *(
                engine.generate(
                    to_ids(prompts[g]),
                    SamplingParams(max_tokens=new_tokens, seed=100 * g + m),
                    session=Session(f"{number}.{g}", str(m)),
                )
                for g in range(groups)
                for m in members
            )
        )

    if kind == "straggler":
        asyncio.run(run(range(1, GROUP_SIZE)))
    started = time.process_time()
    done = asyncio.run(run(range(1) if kind == "straggler" else range(GROUP_SIZE)))
    return done, time.process_time() - started


def compare(size: str, kind: str, groups: int, drafts: list[int], rounds: int, new_tokens: int) -> dict[str, Any]:
    """Measure all settings of drafting, interleaved."""
    model = build(size, kind)
    shape: dict[str, Any] = {"max_concurrency": GROUP_SIZE * groups, "max_context": VOCABULARY + new_tokens}
    engines = {n: PagedEngine(model, **shape, max_draft_tokens=n) for n in (0, *drafts)}
    seconds: dict[int, list[float]] = {n: [] for n in engines}
    certainty = 0.0
    for number in range(rounds + 1):
        replies = {}
        for n, engine in engines.items():
            replies[n], elapsed = sample(engine, kind, groups, new_tokens, number)
            asyncio.run(engine.adopt(number + 1))
            seconds[n] += [elapsed] if number else []
        for n in drafts:
            same = zip(replies[0], replies[n], strict=True)
            if any(
                a.token_ids.tobytes() + a.logprobs.tobytes() != b.token_ids.tobytes() + b.logprobs.tobytes()
                for a, b in same
            ):
                raise SystemExit(f"{size} {kind}: {n} drafted tokens changed a reply")
        certainty = float(np.mean(np.exp(np.concatenate([each.logprobs for each in replies[0]]))))
    report: dict[str, Any] = {
        "tokens_per_cpu_s": len(replies[0]) * new_tokens / statistics.median(seconds[0]),
        "mean_probability": certainty,
    }
    for n in drafts:
        ratios = [a / b for a, b in zip(seconds[0], seconds[n], strict=True)]
        counts = engines[n].statistics()
        report[f"drafts_{n}"] = {
            "faster_by": statistics.median(ratios),
            "min": min(ratios),
            "max": max(ratios),
            "drafted_per_sampled_token": counts.num_drafted_tokens / counts.num_sampled_tokens,
            "accepted_share": counts.num_accepted_tokens / max(1, counts.num_drafted_tokens),
            "steps": counts.num_steps / engines[0].statistics().num_steps,
        }
    return report


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", default=["2M", "20M"], choices=sorted(SIZES))
    parser.add_argument("--groups", nargs="+", type=int, default=[1, 2, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--drafts", nargs="+", type=int, default=[7])
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {}
    for size in options.sizes:
        for groups in options.groups:
            for kind in options.kinds:
                name = f"{size}/{groups} groups/{kind}"
                report[name] = compare(size, kind, groups, options.drafts, options.rounds, options.new_tokens)
                print(name, json.dumps(report[name]), file=sys.stderr, flush=True)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
