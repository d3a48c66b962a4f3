"""Measure memory and time of one loss with all logits at once and in chunks of rows, as JSON on standard output.

    OMP_NUM_THREADS=1 python benchmarks/logits.py [--rows 2048 4096 8192 16384] [--vocabulary 151936] [--hidden 256]

Each measurement is a separate process: one layer, sequences of 513 tokens of which all but the first train, one forward
and backward pass. Prints the peak of resident memory above what the model and a first small pass hold (Linux), in MiB,
and processor seconds of the pass, for "chunks" and for "whole" (without a limit on the logits that exist at once); and
the largest difference of the log-probabilities of both. A pass is left out if four arrays of all logits would need more
than `--most` MiB."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COPIES = 4


def read_memory(name: str) -> int:
    """MiB: "VmRSS" resident now, "VmHWM" at most since the last reset."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) >> 10


def measure(num_rows: int, vocab_size: int, hidden_size: int, way: str) -> dict[str, Any]:
    """Measure one way, in a separate process."""
    import numpy as np
    import torch

    from turnwise.batching.collate import collate
    from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
    from turnwise.models import head
    from turnwise.models.allocator import keep_freed_memory
    from turnwise.models.build import build_model
    from turnwise.training.forward import compute_scores

    torch.set_num_threads(1)
    keep_freed_memory()
    sizes = {"hidden_size": hidden_size, "intermediate_size": hidden_size, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "tie_word_embeddings": True}
    model = build_model("qwen3", {**sizes, **heads}, vocab_size=vocab_size, seed=0)
    if way == "whole":
        head.CHUNK_NUMBERS = 1 << 60

    def run(length: int) -> torch.Tensor:
        # Runs of 512 tokens, so that attention does not count.
        samples = [
            Sample(
                token_ids=to_ids(np.random.default_rng(start).integers(0, vocab_size, 513)),
                loss_mask=to_mask(np.arange(513) > 0),
                behavior_logprobs=to_floats(np.zeros(513)),
                advantages=to_floats(np.ones(513)),
                version_first=0,
                version_last=0,
                origin=Origin(trajectory=TrajectoryId(draw=start, member=0), task_id="t"),
            )
            for start in range(0, length, 512)
        ]
        scores = compute_scores(model, collate(samples, torch.device("cpu")), 1.0)
        scores.logprobs.mean().backward()
        return scores.logprobs.detach()

    run(512)
    before = read_memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    started = time.process_time()
    logprobs = run(num_rows)
    seconds = time.process_time() - started
    peak = read_memory("VmHWM") - before
    return {"mib": peak, "seconds": round(seconds, 2), "logprobs": logprobs[:: max(1, num_rows // 512)].tolist()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[2048, 4096, 8192, 16384])
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--most", type=int, default=12000, help="MiB")
    parser.add_argument("--one", choices=["chunks", "whole"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.rows[0], given.vocabulary, given.hidden, given.one)))
        return
    rows = []
    for count in given.rows:
        row: dict[str, Any] = {"rows": count}
        found = {}
        for way in ("chunks", "whole"):
            if way == "whole" and COPIES * count * given.vocabulary * 4 >> 20 > given.most:
                continue
            sizes = ["--rows", str(count), "--vocabulary", str(given.vocabulary), "--hidden", str(given.hidden)]
            output = subprocess.run(
                [sys.executable, __file__, *sizes, "--one", way], check=True, capture_output=True, text=True
            )
            result = json.loads(output.stdout)
            found[way] = result.pop("logprobs")
            row[way] = result
        if len(found) == 2:
            row["largest_difference"] = max(abs(a - b) for a, b in zip(found["chunks"], found["whole"], strict=True))
            row["time_ratio"] = round(row["chunks"]["seconds"] / row["whole"]["seconds"], 2)
        rows.append(row)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
