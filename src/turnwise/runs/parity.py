"""The rollouts of a parity gate: tokens that sampler and trainer both score, and that never train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.audit.parity_gate import check_parity as compare_scores
from turnwise.batching.samples import to_samples
from turnwise.building.trainer import build_packing
from turnwise.config.roles import find_learner
from turnwise.core.errors import TrainingError
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Draw, Sample
from turnwise.environments.draws import find_tasks
from turnwise.pipeline.trainer_thread import TrainerThread
from turnwise.runs.build import System, build_policy_model
from turnwise.training.forward import score_exact, score_logprobs
from turnwise.training.parity import Cause, Evidence, Floats, Parity, collect_evidence

NUM_TASKS = 4
"""Tasks a gate rolls out, one trajectory each."""


async def check_parity(system: System, trainer: TrainerThread, *, step: int) -> str:
    """Roll out the first training tasks with seeds of their own and compare; returns what was measured, as one line.

    Raises TrainingError naming the measured difference, the bound and the cause found, or saying that no token could
    be sampled.
    """
    config = system.config
    worker = system.worker("train")
    seed = derive_seed(config.run.seed, "parity", step)
    worker = replace(worker, sampling=replace(worker.sampling, seed=seed), scope="parity")
    draws = [Draw(index=index, task=task) for index, task in find_tasks(system.family, "train", NUM_TASKS)]
    groups = await worker.run_groups(draws, group_size=1)
    by_learner: dict[str, list[Sample]] = {name: [] for name in trainer.learners}
    for trajectory in (trajectory for group in groups for trajectory in group.trajectories if trajectory.learns):
        by_learner[find_learner(config.roles, trajectory.id.role) or ""] += to_samples(trajectory)
    if not any(by_learner.values()):
        worker.failure.check(groups)  # says why, as it would for a rollout
        errors = "; ".join(str(t.error) for group in groups for t in group.trajectories)
        raise TrainingError(f"parity gate before step {step + 1}: no token could be sampled ({errors})")
    models = {"": system.model, **{name: other.model for name, other in system.others.items()}}
    notes = []
    for name, own in by_learner.items():
        lead = f"{name}: " if name else ""
        if not own:  # its roles were not asked, or others ended every episode first
            notes.append(f"{lead}no token to compare")
            continue
        parity = await trainer.run(partial(_compare, system, models[name], name, own, step))
        notes.append(
            f"{lead}{parity.num_tokens} tokens, mean {parity.mean:.2g}, largest "
            f"{parity.max:.2g} nats, k3 {parity.k3:.2g}, effective share {parity.effective_share:.6f}"
        )
    return f"parity before step {step + 1}: {'; '.join(notes)}"


def _compare(system: System, model: PreTrainedModel, learner: str, samples: Sequence[Sample], step: int) -> Parity:
    config = system.config
    ends = {*system.renderer.stop_token_ids, system.tokenizer.eos_token_id, system.tokenizer.pad_token_id}

    def collect(samples: Sequence[Sample]) -> Evidence:
        evidence = collect_evidence(
            model,
            samples,
            temperature=config.rollout.temperature,
            end_token_ids=[token for token in ends if token is not None],
            shared_prefix=config.train.shared_prefix,
        )
        return replace(evidence, alternatives=_score_alternatives(system, learner, samples))

    def score_in_float32(samples: Sequence[Sample]) -> Sequence[NDArray[Any]]:
        return score_exact(model, samples, config.rollout.temperature, **build_packing(config))

    scores = score_logprobs(model, samples, config.rollout.temperature, **build_packing(config))
    return compare_scores(
        samples, scores, step=step, dtype=config.model.dtype, collect=collect, score_exact=score_in_float32
    )


def _score_alternatives(system: System, learner: str, samples: Sequence[Sample]) -> dict[Cause, Floats]:
    """Scores under the random weights the warm-up started with: what an engine that never adopted any samples from."""
    if system.config.model.path:
        return {}
    start = build_policy_model(system.config, system.tokenizer, learner)
    temperature = system.config.rollout.temperature
    return {"stale_weights": collect_evidence(start, samples, temperature=temperature).trainer_logprobs}
