"""The implicit process reward model of the core, trained on the same attempts and outcomes as the outcome model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from turnwise.batching.samples import to_samples
from turnwise.building.trainer import build_packing
from turnwise.core.seeds import rng
from turnwise.core.types import Trajectory
from turnwise.evaluation.summary import is_success
from turnwise.runs.build import System
from turnwise.training.forward import score_logprobs
from turnwise.training.implicit_reward import build_implicit_reward, run_implicit_reward_step, score_implicit_rewards

BETA, LR, STEPS, BATCH = 1.0, 5e-3, 1000, 24


def score_implicitly(
    system: System, train: Sequence[Trajectory], attempts: Sequence[Trajectory]
) -> tuple[list[list[float]], list[float]]:
    """Return `sigma(sum of rewards up to and with each turn)` of `attempts`, and the mean training loss of each eighth
    of the steps."""
    packing: dict[str, Any] = {**build_packing(system.config)}
    model = build_implicit_reward(system.model, lr=LR, beta=BETA, betas=(0.9, 0.999), weight_decay=0.0)
    samples = [to_samples(attempt)[0] for attempt in train]
    outcomes = [float(is_success(attempt)) for attempt in train]
    reference = score_logprobs(system.model, samples, 1.0, **packing)
    random, losses = rng(system.config.run.seed, "implicit"), []
    for step in range(STEPS):
        chosen = random.choices(range(len(samples)), k=BATCH)
        metrics = run_implicit_reward_step(
            replace(model, lr=LR * (1 - step / STEPS)),
            [samples[i] for i in chosen],
            [outcomes[i] for i in chosen],
            [reference[i] for i in chosen],
            temperature=1.0,
            max_grad_norm=1.0,
            **packing,
        )
        losses.append(metrics["train/implicit_loss"].value)
    asked = [to_samples(attempt)[0] for attempt in attempts]
    columns = score_logprobs(system.model, asked, 1.0, **packing)
    rewards = score_implicit_rewards(model, asked, columns, temperature=1.0, **packing)
    scores = []
    for attempt, row in zip(attempts, rewards, strict=True):
        ends = np.cumsum([len(turn.completion.token_ids) for turn in attempt.turns])
        sums = np.cumsum(np.asarray(row, np.float64))[ends - 1]
        scores.append([float(each) for each in 1 / (1 + np.exp(-np.clip(sums, -50, 50)))])
    return scores, [float(np.mean(part)) for part in np.array_split(losses, 8)]
