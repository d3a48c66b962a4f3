"""The plan of memory against what a process takes, as JSON on standard output.

    OMP_NUM_THREADS=1 python benchmarks/memory.py [--cases 2M 20M vocabulary cache 60M 135M large plain shared]

Each case is a recipe in a process of its own: build the model and the engine, sample until every conversation is as
long as it may be, then take two optimizer steps on full micro-batches (in "shared", of groups that share a prefix).
Measured is the peak of resident memory since the libraries were loaded and warmed up (Linux); predicted is
`config.plan.compute_plan` before anything is allocated. Prints the share by which the plan is off."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

MODEL = {"num_key_value_heads": 2, "tie_word_embeddings": True, "max_position_embeddings": 8192}
SIZES: dict[str, dict[str, int]] = {
    "2M": {
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "head_dim": 32,
    },
    "20M": {
        "hidden_size": 384,
        "intermediate_size": 1152,
        "num_hidden_layers": 9,
        "num_attention_heads": 6,
        "head_dim": 64,
    },
    "60M": {
        "hidden_size": 768,
        "intermediate_size": 2304,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "head_dim": 64,
    },
    "135M": {  # SmolLM2-135M's
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
    },
}
CASES: dict[str, tuple[str, int, dict[str, dict[str, int]]]] = {
    "2M": ("2M", 1000, {"engine": {"max_concurrency": 64, "max_context": 512}, "train": {"micro_batch_tokens": 4096}}),
    "20M": (
        "20M",
        8000,
        {"engine": {"max_concurrency": 32, "max_context": 512}, "train": {"micro_batch_tokens": 2048}},
    ),
    "vocabulary": (
        "2M",
        32000,
        {"engine": {"max_concurrency": 64, "max_context": 256}, "train": {"micro_batch_tokens": 1024}},
    ),
    "cache": (
        "2M",
        1000,
        {"engine": {"max_concurrency": 128, "max_context": 2048}, "train": {"micro_batch_tokens": 2048}},
    ),
    "60M": ("60M", 8000, {"engine": {"max_concurrency": 8, "max_context": 512}, "train": {"micro_batch_tokens": 1024}}),
    "135M": (
        "135M",
        49152,
        {"engine": {"max_concurrency": 8, "max_context": 384}, "train": {"micro_batch_tokens": 1024}},
    ),
    "large": (
        "60M",
        8000,
        {"engine": {"max_concurrency": 8, "max_context": 512}, "train": {"micro_batch_tokens": 4096}},
    ),
    "shared": (
        "2M",
        1000,
        {"engine": {"max_concurrency": 64, "max_context": 512}, "train": {"micro_batch_tokens": 4608}},
    ),
    "plain": (
        "20M",
        8000,
        {"engine": {"max_concurrency": 32, "max_context": 512}, "train": {"micro_batch_tokens": 2048}},
    ),
}
"""Name to model, vocabulary and sections. "plain" runs the model's modules; in "shared" groups of 8 share their
prompt."""
TURN_TOKENS = 64


def build_config(case: str) -> Any:
    """The recipe of a case."""
    from turnwise.config.run import RunConfig

    size, vocab_size, sections = CASES[case]
    context = sections["engine"]["max_context"]
    rollout = {"group_size": 8, "max_tokens": context, "max_turns": 4, "max_turn_tokens": TURN_TOKENS}
    engine = {**sections["engine"], "options": {"fused": case != "plain", "max_batch_tokens": 2048}}
    return RunConfig.model_validate(
        {
            "model": {"config": {**MODEL, **SIZES[size]}},
            "tokenizer": {"vocab_size": vocab_size},
            "rollout": rollout,
            "engine": engine,
            "train": {**sections["train"], "shared_prefix": case == "shared"},
        }
    )


def read_memory(name: str) -> int:
    """Bytes: "VmRSS" resident now, "VmHWM" at most since the last reset."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


def build_samples(config: Any, draw: np.random.Generator) -> list[Any]:
    """Full-length samples for two micro-batches."""
    from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask

    length = min(config.rollout.max_tokens, config.train.micro_batch_tokens)
    num_sampled = min(length - 1, config.rollout.max_turns * config.rollout.max_turn_tokens)
    members = config.rollout.group_size if config.train.shared_prefix else 1
    computed = length - num_sampled + members * num_sampled
    trained = np.arange(length) >= length - num_sampled
    samples = []
    for group in range(2 * max(1, config.train.micro_batch_tokens // computed)):
        prompt = draw.integers(0, config.tokenizer.vocab_size, length - num_sampled)
        for member in range(members):
            reply = draw.integers(0, config.tokenizer.vocab_size, num_sampled)
            samples.append(
                Sample(
                    token_ids=to_ids(np.concatenate([prompt, reply])),
                    loss_mask=to_mask(trained),
                    behavior_logprobs=to_floats(np.where(trained, -np.log(config.tokenizer.vocab_size), 0.0)),
                    advantages=to_floats(np.where(trained, 1.0, 0.0)),
                    version_first=0,
                    version_last=0,
                    origin=Origin(trajectory=TrajectoryId(draw=group, member=member), task_id="t"),
                    context_mask=to_mask(np.zeros(length, bool)),
                )
            )
    return samples


def measure(case: str) -> dict[str, int]:
    """In a process of its own: peaks of sampling and of training, in bytes above what the libraries take."""
    import torch

    from turnwise.core.types import SamplingParams, Session, to_ids
    from turnwise.engines.paged import PagedEngine
    from turnwise.models.allocator import keep_freed_memory
    from turnwise.models.build import build_model
    from turnwise.runs.methods import build_policy_loss
    from turnwise.training.optimizer import build_optimizer
    from turnwise.training.policy_step import run_policy_step

    torch.set_num_threads(1)
    keep_freed_memory()  # as `runs.build.build_system` does

    def run(config: Any) -> dict[str, int]:
        model = build_model("qwen3", config.model.config, vocab_size=config.tokenizer.vocab_size, seed=1)
        shape = config.engine
        engine = PagedEngine(
            model,
            max_concurrency=shape.max_concurrency,
            max_context=shape.max_context,
            **shape.options,
        )
        draw = np.random.default_rng(0)

        async def sample() -> None:
            prompts = draw.integers(0, config.tokenizer.vocab_size, (shape.max_concurrency, shape.max_context - 8))
            await asyncio.gather(
                *(
                    engine.generate(to_ids(p), SamplingParams(max_tokens=8, seed=i), session=Session(str(i), "0"))
                    for i, p in enumerate(prompts)
                )
            )

        asyncio.run(sample())
        sampling = read_memory("VmHWM")
        optimizer = build_optimizer(model, lr=1e-4, betas=(0.9, 0.999), weight_decay=0.0)
        samples = build_samples(config, draw)
        for version in (1, 2):
            run_policy_step(
                model,
                optimizer,
                samples,
                loss=build_policy_loss(config),
                lr=1e-4,
                max_grad_norm=1.0,
                micro_batch_tokens=config.train.micro_batch_tokens,
                shared_prefix=config.train.shared_prefix,
            )
            asyncio.run(engine.adopt(version))
            asyncio.run(sample())
        return {"sampling": sampling, "training": read_memory("VmHWM")}

    # Libraries load parts of themselves at their first use.
    run(build_config("2M").model_copy(update={"model": build_config("2M").model.model_copy(update={"config": TINY})}))
    before = read_memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    return {name: peak - before for name, peak in run(build_config(case)).items()}


TINY = {
    **MODEL,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 8,
}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--measure", choices=list(CASES))
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    from turnwise.config.plan import compute_plan

    report: dict[str, Any] = {}
    for case in options.cases:
        plan = compute_plan(build_config(case))
        answer = subprocess.run(
            [sys.executable, __file__, "--measure", case], capture_output=True, text=True, check=False
        )
        if answer.returncode:
            raise SystemExit(f"{case}: {answer.stderr[-2000:]}")
        measured = json.loads(answer.stdout)
        assert plan.memory is not None
        peak = max(measured.values())
        report[case] = {
            "measured_mib": {name: round(value / 2**20, 1) for name, value in measured.items()},
            "predicted_peak_mib": round(plan.memory.peak / 2**20, 1),
            "off_by": round(plan.memory.peak / peak - 1, 3),
        }
        print(case, report[case], file=sys.stderr, flush=True)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
