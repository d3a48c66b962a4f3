"""What complete groups go through, as one function of the pipeline: the recipe's rewards, then the annotators of its
credit method."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from turnwise.config.annotators import AnnotatorSection
from turnwise.core.batch import Wanted
from turnwise.core.errors import AnnotatorError
from turnwise.core.metrics import Metric, Sum
from turnwise.core.protocols import Annotator
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Draw, Invalid, Sample, Trajectory, TrajectoryGroup
from turnwise.credit.annotator_kind import AnnotatorParts
from turnwise.credit.annotator_table import build_annotator
from turnwise.credit.annotators import NamedAnnotator, run_annotators
from turnwise.credit.reward_kind import RewardKind, RewardParts
from turnwise.credit.reward_table import build_reward
from turnwise.credit.terms import TermAnnotator
from turnwise.pipeline.trainer_thread import TrainerThread
from turnwise.rollout.attempt import Attempt
from turnwise.runs.build import System

Annotate = Callable[[TrajectoryGroup], Awaitable[tuple[TrajectoryGroup, dict[str, Metric]]]]


def build_annotate(system: System, trainer: TrainerThread) -> Annotate | None:
    """What a complete group goes through before it is admitted; None if credit asks for nothing.

    A group whose annotator fails comes back with Invalid rewards that say why; how many may fail is the failure
    policy's (`rollout.max_invalid_share`).
    """
    kinds, rewards, config = system.resolved.annotators, system.resolved.rewards, system.config
    if not kinds and not rewards:
        return None
    parts = _gather_parts(system, trainer)
    built: dict[str, Annotator] = {}
    for name, kind in rewards.items():
        built[f"rewards.{name}"] = _build_term(name, kind, system, parts)
    for name, annotator_kind in kinds.items():
        section = config.annotators.get(name, AnnotatorSection())
        built[name] = build_annotator(annotator_kind, parts, name=name, section=section)
    annotators = [
        NamedAnnotator(
            name=name,
            annotator=annotator,
            timeout_s=config.rollout.trajectory_timeout_s,
            semaphore=asyncio.Semaphore(config.rollout.max_open or config.engine.max_concurrency),
        )
        for name, annotator in built.items()
    ]

    async def annotate(group: TrajectoryGroup) -> tuple[TrajectoryGroup, dict[str, Metric]]:
        try:
            group, seconds = await run_annotators(group, annotators)
        except AnnotatorError as cause:
            reward = Invalid(reason=str(cause), retryable=False)
            trajectories = tuple(replace(t, reward=reward, error=str(cause)) for t in group.trajectories)
            return replace(group, trajectories=trajectories), {}
        return group, {f"annotate/{name}_seconds": Sum(value) for name, value in seconds.items()}

    return annotate


def _build_term(name: str, kind: RewardKind, system: System, parts: AnnotatorParts) -> TermAnnotator:
    section = system.config.rewards[name]
    reward_parts = RewardParts(
        name=name,
        options=section.options,
        family=parts.family,
        renderer=parts.renderer,
        score=parts.score,
        tokenizer=parts.tokenizer,
        seed=derive_seed(system.config.run.seed, "rewards", name),
    )
    reward = build_reward(section, kind, reward_parts)
    return TermAnnotator(name=name, reward=reward, weight=section.weight, cap=section.cap, judges=system.judges)


def _gather_parts(system: System, trainer: TrainerThread) -> AnnotatorParts:
    worker = system.worker("train")
    worker = replace(worker, sampling=replace(worker.sampling, temperature=0.0), scope="baseline")

    first_free = system.config.rollout.group_size + system.config.schedule.overdraw

    async def run_greedy(draw: Draw) -> Trajectory:
        # A member number that no member has: every trajectory of a group has a name of its own.
        attempt = Attempt(draw=draw, member=first_free, number=draw.attempt, scope=worker.scope)
        [trajectory] = (await worker.run_attempt(attempt)).trajectories
        return trajectory

    async def score(samples: Sequence[Sample], column: Wanted = "policy_logprobs", /) -> list[NDArray[np.generic]]:
        return list(getattr(await trainer.score(samples, frozenset({column})), column) or ())

    return AnnotatorParts(
        family=system.family,
        renderer=system.renderer,
        run_greedy=run_greedy,
        score=score,
        tokenizer=system.tokenizer,
        judges=system.judges,
    )
