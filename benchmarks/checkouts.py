"""Compare two checkouts of Turnwise: sampling and a policy step of one model, as JSON on standard output.

    OMP_NUM_THREADS=1 python benchmarks/checkouts.py OTHER [--size 2M] [--rounds 8]

OTHER is the folder of another checkout (`git worktree add --detach OTHER COMMIT`). One process of each works in turn in
every round; the first round does not count. Prints the medians of processor seconds, and the median, minimum and
maximum of the ratios by round, this checkout over the other."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent.parent
MEASURED = """
import asyncio, json, sys, time
sys.path.insert(0, sys.argv[1] + "/benchmarks")
import numpy as np
import torch
from engine import SIZES
from turnwise.algorithms.losses.table import build_loss
from turnwise.core.types import *
from turnwise.engines.paged import PagedEngine
from turnwise.models.build import build_model
from turnwise.training.optimizer import build_optimizer
from turnwise.training.policy_step import PolicyLoss, run_policy_step

torch.set_num_threads(1)
vocab_size, sizes = SIZES[sys.argv[2]]
config = {**sizes, "num_key_value_heads": sizes["num_attention_heads"], "tie_word_embeddings": True}
model = build_model("qwen3", config, vocab_size=vocab_size, seed=0)
prompts = np.random.default_rng(0).integers(0, vocab_size, (8, 64))

engine = PagedEngine(model, max_concurrency=32, max_context=112)
loop = asyncio.Runner()

def sample():
    async def run():
        await engine.adopt(engine.version + 1)  # no page is reused
        jobs = [(g, engine.generate(to_ids(prompts[g]), SamplingParams(max_tokens=48, seed=m),
                 session=Session(str(g), str(m)))) for g in range(8) for m in range(4)]
        done = await asyncio.gather(*(job for _, job in jobs))
        return [(g, each) for (g, _), each in zip(jobs, done)]
    return loop.run(run())

def to_sample(number, group, reply):
    count = len(reply.token_ids)
    mask = np.arange(64 + count) >= 64
    return Sample(token_ids=to_ids(np.concatenate([prompts[group], reply.token_ids])), loss_mask=to_mask(mask),
                  behavior_logprobs=to_floats(np.concatenate([np.zeros(64), reply.logprobs])),
                  advantages=to_floats(np.where(mask, 1.0 - 2 * (number % 2), 0.0)), version_first=0, version_last=0,
                  origin=Origin(trajectory=TrajectoryId(draw=group, member=number), task_id=""))

samples = [to_sample(number, group, reply) for number, (group, reply) in enumerate(sample())]
optimizer = build_optimizer(model, lr=1e-9, betas=(0.9, 0.95), weight_decay=0.0)
loss = PolicyLoss(function=build_loss("ppo"), temperature=1.0)

def step():
    run_policy_step(model, optimizer, samples, loss=loss, lr=1e-9, max_grad_norm=1.0, micro_batch_tokens=4096,
                    shared_prefix=True)

found = {}
for name, work in (("sample", sample), ("step", step)):
    work()
    began = time.process_time()
    for _ in range(3):
        work()
    found[name] = (time.process_time() - began) / 3
print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--size", default="2M")
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    seconds: dict[str, list[dict[str, float]]] = {"this": [], "other": []}
    for _ in range(given.rounds + 1):
        for name, folder in (("this", HERE), ("other", given.other.resolve())):
            seconds[name].append(measure(folder, given.size))
    result = {}
    for work in seconds["this"][0]:
        pairs = [(a[work], b[work]) for a, b in zip(seconds["this"][1:], seconds["other"][1:], strict=True)]
        ratios = [a / b for a, b in pairs]
        result[work] = {
            "this": round(statistics.median(a for a, _ in pairs), 4),
            "other": round(statistics.median(b for _, b in pairs), 4),
            "ratio": [round(f(ratios), 3) for f in (statistics.median, min, max)],
        }
    print(json.dumps(result, indent=1))


def measure(folder: Path, size: str) -> dict[str, float]:
    """Processor seconds of each task, with the code in `folder`."""
    command = [sys.executable, "-c", MEASURED, str(folder), size]
    environment = {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
