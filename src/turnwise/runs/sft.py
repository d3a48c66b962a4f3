"""The supervised warm-up: conversations of the user's own, or scripted demonstrations, teach the protocol; strategy is
left to RL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from turnwise.batching.samples import to_samples
from turnwise.config.roles import find_binding, list_learners
from turnwise.config.run import RunConfig
from turnwise.core.batch import TrainingBatch
from turnwise.core.errors import DataError, EnvironmentFault, RenderError
from turnwise.core.judging import seat_judges
from turnwise.core.metrics import Metric
from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Draw, Episode, Sample, Task
from turnwise.environments.draws import LeftOut, check_left_out, name_task, try_task
from turnwise.pipeline.steps import name_metrics
from turnwise.pipeline.trainer_thread import TrainerThread
from turnwise.rollout.demonstrate import play_demonstration
from turnwise.runs.build import System
from turnwise.runs.own_conversations import Lessons

NUM_MEASURES = 10
"""Times that the loss on held-out conversations is measured in a warm-up."""

LeaveOut = Callable[[LeftOut], None]
"""Hears of a task that cannot be made."""


async def collect_demonstrations(
    system: System, policy: ScriptedPolicy, count: int, leave_out: LeaveOut = lambda task: None
) -> dict[str, list[Sample]]:
    """Samples of the demonstrations of training tasks `0 .. count - 1`, by the learner whose weights speak for the
    role, as they are or as they were; `leave_out` hears of tasks that cannot be made. Raises DataError where a learner
    has none, or too many tasks cannot be made."""
    samples: dict[str, list[Sample]] = {name: [] for name in ("", *list_learners(system.config.roles))}
    for episode in await _play_all(system, policy, count, leave_out):
        for trajectory in episode.trajectories:
            binding = find_binding(system.config.roles, trajectory.id.role)
            if binding.is_own:
                samples[binding.learner] += to_samples(trajectory)
    for name, own in samples.items():
        if not own:
            who = f"the learner {name!r}" if name else "a role that learns"
            raise DataError(
                f"none of {count} demonstrations has a reply from {who}; raise sft.num_demonstrations, or set "
                "sft.steps=0"
            )
    return samples


async def _play_all(system: System, policy: ScriptedPolicy, count: int, leave_out: LeaveOut) -> list[Episode]:
    """The episodes in the order of their tasks, `engine.max_concurrency` played at a time, as tools may take long."""
    episodes: dict[int, Episode] = {}
    waiting = iter(range(count))
    failed: list[LeftOut] = []

    async def play_next() -> None:
        for index in waiting:
            played = await _try_demonstration(system, policy, index)
            if isinstance(played, LeftOut):
                failed.append(played)
                leave_out(played)
                check_left_out(len(failed), count, system.config.environment.max_left_out, played.why)
            else:
                episodes[index] = played

    players = [asyncio.create_task(play_next()) for _ in range(min(count, system.config.engine.max_concurrency))]
    try:
        await asyncio.gather(*players)
    finally:
        for player in players:
            player.cancel()
        await asyncio.gather(*players, return_exceptions=True)
    return [episodes[index] for index in sorted(episodes)]


async def _try_demonstration(system: System, policy: ScriptedPolicy, index: int) -> Episode | LeftOut:
    """The episode of a training task, or why its row gives none."""
    task = try_task(system.family, "train", index)
    if isinstance(task, LeftOut):
        return task
    try:
        return await demonstrate(system, policy, index, task)
    except (EnvironmentFault, RenderError) as cause:
        where = name_task(system.family, "train", index)
        return LeftOut(index=index, why=f"{where}: its demonstration: {cause}")


def describe_too_long(samples: Iterable[Sample], most: int) -> str:
    """One line about demonstrations of more than `most` tokens, which teach what no rollout has room for; empty where
    there are none."""
    lengths = [len(sample.token_ids) for sample in samples]
    num_longer = sum(length > most for length in lengths)
    if not num_longer:
        return ""
    return (
        f"{num_longer:,} of {len(lengths):,} demonstrated conversations are longer than rollout.max_tokens={most} (the "
        f"longest has {max(lengths):,} tokens), so no rollout can do what they end with; raise it and "
        "engine.max_context, or lower environment.max_observation_chars"
    )


async def demonstrate(system: System, policy: ScriptedPolicy, index: int, task: Task) -> Episode:
    """The policy's episode of training task `index`. Raises EnvironmentFault or RenderError where it cannot be played
    or written."""
    draw = Draw(index=index, task=task)
    environment = system.family.build_environment(draw.task)
    seat_judges(environment, system.judges)
    return await play_demonstration(
        draw,
        policy,
        environment,
        system.renderer,
        seed=derive_seed(system.config.run.seed, "demonstration", index),
        max_turns=system.config.rollout.max_turns,
    )


def iterate_batches(samples: Sequence[Sample], size: int, count: int, seed: int) -> Iterator[list[Sample]]:
    """`count` batches: one pass over the samples after another, each in its own order, a pass's last batch filled from
    the next."""
    queue: list[Sample] = []
    epoch = 0
    for _ in range(count):
        while len(queue) < size:
            queue += rng(seed, "demonstration order", epoch).sample(samples, len(samples))
            epoch += 1
        yield queue[:size]
        del queue[:size]


async def run_warmup(
    system: System,
    trainer: TrainerThread,
    report: Callable[[int, dict[str, Metric]], None],
    lessons: Lessons | None = None,
    leave_out: LeaveOut = lambda task: None,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """`sft.steps` optimizer steps on `lessons`, or on demonstrations of `sft.policy`; `report(step, metrics)` after
    each, `leave_out` hears of tasks that cannot be made, and `tell` of demonstrations that are too long. What is held
    out is measured before the first one, which is reported as step 0, and `NUM_MEASURES` times."""
    sft, seed = system.config.sft, system.config.run.seed
    if not sft.steps:
        return
    samples: Mapping[str, Sequence[Sample]]
    heldout: Mapping[str, Sequence[Sample]] = {}
    if lessons is None:
        policy = system.family.policy(sft.policy)
        samples = await collect_demonstrations(system, policy, sft.num_demonstrations, leave_out)
        played, most = [each for own in samples.values() for each in own], system.config.rollout.max_tokens
        if text := describe_too_long(played, most):
            tell(text)
    else:
        samples, heldout = lessons.samples, lessons.heldout
    batches = {name: iterate_batches(own, sft.batch_size, sft.steps, seed) for name, own in samples.items()}
    if heldout:
        report(0, await _measure(trainer, 0, heldout))
    for step in range(sft.steps):
        reports = await trainer.step({name: _build_batch(step, next(each)) for name, each in batches.items()})
        metrics = name_metrics({name: done.metrics for name, done in reports.items()})
        if heldout and (step + 1) * NUM_MEASURES // sft.steps > step * NUM_MEASURES // sft.steps:
            metrics |= await _measure(trainer, step, heldout)
        report(step + 1, metrics)


async def _measure(trainer: TrainerThread, step: int, heldout: Mapping[str, Sequence[Sample]]) -> dict[str, Metric]:
    """The loss on conversations that do not train, of every learner that has some."""
    batches = {
        name: TrainingBatch(step=step, objective="warmup", samples=tuple(samples)) for name, samples in heldout.items()
    }
    return name_metrics({name: done.metrics for name, done in (await trainer.step(batches)).items()})


def _build_batch(step: int, samples: Sequence[Sample]) -> TrainingBatch:
    whole = tuple(range(len(samples)))
    return TrainingBatch(step=step, objective="warmup", samples=tuple(samples), updates=(whole,))


def first_rl_task(config: RunConfig) -> int:
    """Index of the first training task RL uses: demonstrations and RL never share a task."""
    return config.sft.num_demonstrations if config.sft.steps and not config.sft.path else 0


def run_sft(config: RunConfig, *, display: bool) -> Path:
    """Only the warm-up, as a run of its own: trains, evaluates, leaves a checkpoint `train` can start from."""
    from turnwise.runs.train import run_train

    train = config.train.model_copy(update={"steps": 0})
    return run_train(config.model_copy(update={"train": train}), resume=None, display=display)
