"""Continual pre-training: steps on documents before the warm-up, recorded, and continued where they were stopped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np

from turnwise.batching.documents import Piece, PlannedStep, plan_steps
from turnwise.config.run import RunConfig
from turnwise.core.batch import TrainingBatch
from turnwise.core.errors import CheckpointError, DataError
from turnwise.core.metrics import Metric
from turnwise.core.seeds import derive_seed
from turnwise.core.types import IntArray, Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.pipeline.steps import name_metrics
from turnwise.pipeline.trainer_thread import TrainerThread
from turnwise.runs.documents import Library
from turnwise.store.checkpoint_folder import checkpoint_writer, latest_checkpoint, prune, sweep, verify_checkpoint
from turnwise.store.documents import (
    append_step,
    digest_tokens,
    forget_steps,
    phase_folder,
    read_documents,
    write_documents,
)

Report = Callable[[int, dict[str, Metric]], None]


def plan_phase(config: RunConfig, library: Library) -> Iterator[PlannedStep]:
    """The steps of the phase: a pure function of the recipe and the lengths of the documents."""
    cpt = config.cpt
    steps = plan_steps(
        library.lengths,
        batch_tokens=cpt.batch_tokens,
        max_tokens=cpt.max_tokens,
        packing=cpt.packing,
        seed=find_order_seed(config),
    )
    return (step for _, step in zip(range(cpt.steps), steps, strict=False))


def find_order_seed(config: RunConfig) -> int:
    """The seed of the order of the documents."""
    return derive_seed(config.run.seed, "documents")


def join_pieces(library: Library, sequence: tuple[Piece, ...]) -> IntArray:
    """The tokens of one sequence."""
    return to_ids(np.concatenate([library.token_ids[each.document][each.start : each.end] for each in sequence]))


def find_stopped(run: Path) -> Path | None:
    """The checkpoint in the middle, or at the end, of the phase; None where it is to begin, or RL has its own."""
    return latest_checkpoint(phase_folder(run)) if latest_checkpoint(run) is None else None


async def load_stopped(run: Path, trainer: TrainerThread) -> int:
    """Load what `find_stopped` names. Returns the steps done, 0 where there is nothing. Raises CheckpointError."""
    sweep(phase_folder(run))
    checkpoint = find_stopped(run)
    if checkpoint is None:
        return 0
    verify_checkpoint(checkpoint)
    counters = await trainer.load(checkpoint)
    if counters.get("phase") != "cpt":
        raise CheckpointError(f"checkpoint {checkpoint} is not one of continual pre-training; delete the folder {run}")
    return int(counters["phase_steps"])


async def run_pretraining(
    config: RunConfig,
    library: Library,
    trainer: TrainerThread,
    run: Path,
    *,
    done: int,
    report: Report,
    check: Callable[[], None],
) -> None:
    """Take the steps after step `done`; `report(step, metrics)` after each. Every learner trains on the same documents.

    A step is in the record before it trains. `check` is called before a checkpoint is written. Raises DataError where
    the documents are others than those with which the phase began.
    """
    cpt = config.cpt
    if done == 0:
        write_documents(run, list(zip(library.names, library.token_ids, strict=True)))
    else:
        _check_same(run, library)
    forget_steps(run, after=done)
    for step, planned in enumerate(plan_phase(config, library), start=1):
        if step <= done:
            continue
        ids = [join_pieces(library, sequence) for sequence in planned.sequences]
        append_step(
            run,
            {
                "step": step,
                "epoch": planned.epoch,
                "sequences": [[[p.document, p.start, p.end] for p in sequence] for sequence in planned.sequences],
                "tokens": planned.num_trained,
                "digest": digest_tokens(ids),
            },
        )
        samples = tuple(_to_sample(each, seq[0]) for each, seq in zip(ids, planned.sequences, strict=True))
        batch = TrainingBatch(step=step, objective="cpt", samples=samples, updates=(tuple(range(len(samples))),))
        reports = await trainer.step(dict.fromkeys(trainer.learners, batch))
        report(step, name_metrics({name: each.metrics for name, each in reports.items()}))
        if step == cpt.steps or (cpt.checkpoint_every and step % cpt.checkpoint_every == 0):
            check()
            await _save(run, step, trainer.save)


def _check_same(run: Path, library: Library) -> None:
    """Raise DataError where the documents are others than those with which the phase began."""
    before = [row["digest"] for row in read_documents(run)]
    now = [digest_tokens([ids]) for ids in library.token_ids]
    if before != now:
        differ = sum(a != b for a, b in zip(before, now, strict=False)) + abs(len(before) - len(now))
        raise DataError(
            f"{differ} documents of continual pre-training are others than when the run began ({len(before)} then, "
            f"{len(now)} now): restore their file or their builder, or train again"
        )


async def _save(run: Path, step: int, save: Callable[..., Awaitable[None]]) -> None:
    folder = phase_folder(run)
    with checkpoint_writer(folder, step) as temporary:
        await save(temporary, {"phase": "cpt", "step": 0})
    prune(folder, keep=1)


def _to_sample(token_ids: IntArray, first: Piece) -> Sample:
    """Every token but the first trains."""
    mask = np.ones(len(token_ids), bool)
    mask[0] = False
    nothing = to_floats(np.zeros(len(token_ids), np.float32))
    return Sample(
        token_ids=token_ids,
        loss_mask=to_mask(mask),
        behavior_logprobs=nothing,
        advantages=nothing,
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=first.document, member=0), task_id=""),
    )
