"""The parity gate: sampler and trainer score the same fresh tokens before training starts, and again every so many
steps.

The tokens come from short real rollouts of the first training tasks, with seeds of their own, so a run with gates
samples and trains exactly what it would without. They never train."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from turnwise.batching.samples import to_samples
from turnwise.core.errors import TrainingError
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Sample
from turnwise.runs.build import System, build_policy_model, set_threads
from turnwise.training.parity import BOUNDS, Cause, Floats, Parity, collect_evidence, compute_parity, diagnose

NUM_TASKS = 4
"""Tasks a gate rolls out, one trajectory each."""


def run_parity_gate(system: System, *, step: int) -> Parity:
    """Measure, and refuse when sampler and trainer are further apart than their dtype explains. The trainer computes as
    its steps do.

    Raises TrainingError naming the measured difference, the bound and the cause found; or that no trajectory could be
    sampled at all."""
    config = system.config
    worker = system.worker("train")
    worker = replace(worker, sampling=replace(worker.sampling, seed=derive_seed(config.run.seed, "parity", step)))
    set_threads(config.engine.num_threads)
    tasks = [(f"parity{step}/task{index}", system.family.task("train", index)) for index in range(NUM_TASKS)]
    groups = asyncio.run(worker.run_groups(tasks, group_size=1))
    samples = [sample for group in groups for trajectory in group.trajectories for sample in to_samples(trajectory)]
    if not samples:
        worker.failure.check(groups)  # says why, as it would for a rollout
        errors = "; ".join(str(t.error) for group in groups for t in group.trajectories)
        raise TrainingError(f"parity gate before step {step + 1}: no token could be sampled ({errors})")
    set_threads(config.train.num_threads)
    bound = BOUNDS[config.model.dtype]
    ends = set(system.renderer.stop_token_ids) | {system.tokenizer.eos_token_id, system.tokenizer.pad_token_id}
    evidence = collect_evidence(
        system.model,
        samples,
        temperature=config.rollout.temperature,
        end_token_ids=[token for token in ends if token is not None],
        shared_prefix=config.train.shared_prefix,
    )
    parity = compute_parity(evidence.trainer_logprobs, evidence.sampler_logprobs)
    if not parity.within(bound):
        diagnosis = diagnose(replace(evidence, alternatives=_score_alternatives(system, samples)), bound)
        raise TrainingError(
            f"parity gate before step {step + 1}: sampler and trainer score the same {parity.num_tokens} tokens "
            f"{parity.mean:.3g} nats "
            f"apart on average and {parity.max:.3g} at most; {config.model.dtype} explains {bound.mean:g} and "
            f"{bound.max:g}. "
            f"Cause found: {diagnosis.cause}: {diagnosis.text}"
        )
    return parity


def _score_alternatives(system: System, samples: Sequence[Sample]) -> dict[Cause, Floats]:
    """Scores under the random weights the warm-up started with: what an engine that never adopted anything samples
    from."""
    config = system.config
    if config.model.path:
        return {}
    start = build_policy_model(config, system.tokenizer)
    return {"stale_weights": collect_evidence(start, samples, temperature=config.rollout.temperature).trainer_logprobs}
