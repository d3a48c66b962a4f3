"""Compare the seconds of a run's RL steps with those predicted for the same tokens, as JSON on standard output.

    OMP_NUM_THREADS=1 python benchmarks/step_time.py RUN...

The machine is measured when this starts (`models/calibration.py`), so the comparison is fair if it is as busy as it was
during the run. Reads a run's `config.json` and `metrics.jsonl`; medians over its RL steps."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any


def compare(run: Path) -> dict[str, Any]:
    """Measured and predicted seconds of one run."""
    from turnwise.config.load import load_resolved
    from turnwise.forecast.timing import StepTokens, count_scorings, predict_step
    from turnwise.models.calibration import measure_speed
    from turnwise.models.shape import read_policy_shape
    from turnwise.store.run_folder import RunFolder

    config = load_resolved(run / "config.json")
    rows = [row for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    shape = read_policy_shape(config.model, vocab_size=config.tokenizer.vocab_size)
    assert shape is not None

    def median(name: str) -> float:
        return float(statistics.median(row[name] for row in rows))

    trajectories = config.rollout.tasks_per_step * config.rollout.group_size
    speed = measure_speed(
        shape,
        rows=min(config.engine.max_concurrency, trajectories),
        dtype=config.model.dtype,
        training_threads=config.train.num_threads,
        sampling_threads=config.engine.num_threads,
    )
    tokens = StepTokens(
        prompt=int(median("rollout/context_tokens") / config.rollout.group_size),
        sampled=int(median("rollout/sampled_tokens")),
        computed=int(median("train/computed_tokens")),
        context=int(median("train/tokens") / trajectories / 2),
    )
    predicted = predict_step(shape, speed, tokens, num_scorings=count_scorings(config.loss))
    measured = {"sampling": median("rollout/seconds"), "training": median("train/seconds")}
    return {
        "steps": len(rows),
        "gflop_per_s": {"training": round(speed.training / 1e9, 1), "sampling": round(speed.sampling / 1e9, 1)},
        "measured_s": {name: round(value, 2) for name, value in measured.items()},
        "predicted_s": {"sampling": round(predicted.sampling, 2), "training": round(predicted.training, 2)},
    }


if __name__ == "__main__":
    print(json.dumps({path: compare(Path(path)) for path in sys.argv[1:]}, indent=1))
