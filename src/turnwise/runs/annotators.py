"""The annotators that a recipe's credit method asks for, as one function of the pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from turnwise.core.errors import AnnotatorError, ConfigError
from turnwise.core.metrics import Metric, Sum
from turnwise.core.protocols import GoldAnswers
from turnwise.core.types import Draw, Invalid, Sample, Trajectory, TrajectoryGroup
from turnwise.credit.annotators import NamedAnnotator, run_annotators
from turnwise.credit.gold_answers import GoldAnswerAnnotator
from turnwise.credit.greedy_baseline import GreedyBaseline
from turnwise.credit.methods import build_credit_method
from turnwise.pipeline.trainer_thread import TrainerThread
from turnwise.rollout.attempt import Attempt
from turnwise.runs.build import System

Annotate = Callable[[TrajectoryGroup], Awaitable[tuple[TrajectoryGroup, dict[str, Metric]]]]


def needs_baseline(system: System) -> bool:
    """Whether credit compares with a greedy attempt."""
    return "greedy_baseline" in _names(system)


def build_annotate(system: System, trainer: TrainerThread) -> Annotate | None:
    """What a complete group goes through before it is admitted; None if credit asks for nothing.

    A group whose annotator fails comes back with Invalid rewards that say why; how many may fail is the failure
    policy's (`rollout.max_invalid_share`).
    """
    names = _names(system)
    if not names:
        return None
    annotators = [_build(name, system, trainer) for name in names]

    async def annotate(group: TrajectoryGroup) -> tuple[TrajectoryGroup, dict[str, Metric]]:
        try:
            group, seconds = await run_annotators(group, annotators)
        except AnnotatorError as cause:
            reward = Invalid(reason=str(cause), retryable=False)
            trajectories = tuple(replace(t, reward=reward, error=str(cause)) for t in group.trajectories)
            return replace(group, trajectories=trajectories), {}
        return group, {f"annotate/{name}_seconds": Sum(value) for name, value in seconds.items()}

    return annotate


def _names(system: System) -> Sequence[str]:
    config = system.config
    return build_credit_method(config).method.annotators if config.train.algorithm == "policy_gradient" else ()


def _build(name: str, system: System, trainer: TrainerThread) -> NamedAnnotator:
    config = system.config
    annotator = _build_greedy(system) if name == "greedy_baseline" else _build_gold(system, trainer)
    return NamedAnnotator(
        name=name,
        annotator=annotator,
        timeout_s=config.rollout.trajectory_timeout_s,
        semaphore=asyncio.Semaphore(config.rollout.max_open or config.engine.max_concurrency),
    )


def _build_greedy(system: System) -> GreedyBaseline:
    worker = system.worker("train")
    worker = replace(worker, sampling=replace(worker.sampling, temperature=0.0), scope="baseline")

    first_free = system.config.rollout.group_size + system.config.schedule.overdraw

    async def run_greedy(draw: Draw) -> Trajectory:
        # A member number that no member has: every trajectory of a group has a name of its own.
        attempt = Attempt(draw=draw, member=first_free, number=draw.attempt, scope=worker.scope)
        [trajectory] = (await worker.run_attempt(attempt)).trajectories
        return trajectory

    return GreedyBaseline(run_greedy=run_greedy)


def _build_gold(system: System, trainer: TrainerThread) -> GoldAnswerAnnotator:
    family, config = system.family, system.config
    if not isinstance(family, GoldAnswers):
        raise ConfigError(
            f"credit.method={config.credit.method!r} needs a family with gold_answer; {type(family).__name__} has none"
        )

    async def score(samples: Sequence[Sample]) -> list[NDArray[np.generic]]:
        columns = await trainer.score(samples, frozenset({"policy_logprobs"}))
        return list(columns.policy_logprobs or ())

    return GoldAnswerAnnotator(family=family, renderer=system.renderer, score=score)
