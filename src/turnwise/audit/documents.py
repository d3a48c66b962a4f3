"""Audit of continual pre-training: the steps trained exactly the documents that the run lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.audit.breaches import Breach, Tallies
from turnwise.batching.documents import Packing, PlannedStep, plan_steps
from turnwise.core.errors import StoreError
from turnwise.core.types import IntArray
from turnwise.store.documents import digest_tokens, read_documents, read_steps

CHECK = "documents"
NAMED = 5
"""Most breaches of one kind that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedDocuments:
    """What the recipe says about the phase."""

    steps: int
    batch_tokens: int
    max_tokens: int
    packing: Packing
    seed: int
    token_ids: Sequence[IntArray] | None
    """The documents, made again from their source; None where that is not possible."""
    missing: str = ""
    """Why they cannot be made again."""


def check_documents(
    run: Path, phase: AuditedDocuments, metrics: Mapping[int, Mapping[str, Any]], *, is_over: bool, tallies: Tallies
) -> None:
    """Compare the record of the phase with its source, its plan and its metrics, given by step.

    `is_over` says that RL's first checkpoint exists, so that no step may be missing.
    """
    breaches: list[Breach] = []
    documents: list[dict[str, Any]] = []
    try:
        documents, steps = read_documents(run), read_steps(run)
        lengths = [int(row["tokens"]) for row in documents]
        if breaches := _compare_source(documents, phase, tallies):
            phase = replace(phase, token_ids=None)
        breaches += _compare_metrics(steps, metrics, is_over=is_over, expected=phase.steps)
        breaches += _compare_plan(lengths, steps, phase)
        breaches += _count_passes(lengths, steps, phase.packing)
    except (StoreError, KeyError, TypeError, ValueError, IndexError) as cause:
        text = str(cause) if isinstance(cause, StoreError) else f"a line of the record is damaged: {cause!r}"
        breaches.append(_breach(text))
    tallies[CHECK].checked += len(documents) if not breaches else 0
    tallies.take(breaches)


def _compare_source(documents: Sequence[Mapping[str, Any]], phase: AuditedDocuments, tallies: Tallies) -> list[Breach]:
    if phase.token_ids is None:
        tallies.skip(CHECK, f"documents against their source: {phase.missing}", len(documents))
        return []
    now = [digest_tokens([ids]) for ids in phase.token_ids]
    if len(now) != len(documents):
        return [_breach(f"the source has {len(now)} documents, the run recorded {len(documents)}")]
    other = [row for row, digest in zip(documents, now, strict=True) if row["digest"] != digest]
    return [
        _breach(f"document {row['index']} ({row['id']}) has other tokens than its source gives")
        for row in other[:NAMED]
    ]


def _compare_plan(lengths: Sequence[int], steps: Sequence[Mapping[str, Any]], phase: AuditedDocuments) -> list[Breach]:
    """Compare the recorded steps with those that follow from the recipe and the lengths."""
    if not lengths:
        return [_breach("the run lists no documents")]
    plan = plan_steps(
        lengths, batch_tokens=phase.batch_tokens, max_tokens=phase.max_tokens, packing=phase.packing, seed=phase.seed
    )
    breaches: list[Breach] = []
    for number, (row, planned) in enumerate(zip(steps, islice(plan, len(steps)), strict=True), start=1):
        if row["step"] != number:
            return [*breaches, _breach(f"line {number} of the steps is about step {row['step']}")]
        if problem := _compare_step(row, planned, phase.token_ids):
            breaches.append(Breach(check=CHECK, step=number, text=f"continual pre-training: {problem}"))
    return breaches[:NAMED]


def _compare_step(row: Mapping[str, Any], planned: PlannedStep, token_ids: Sequence[IntArray] | None) -> str:
    """What is wrong with a step; empty if nothing is."""
    sequences = [[[p.document, p.start, p.end] for p in sequence] for sequence in planned.sequences]
    if row["sequences"] != sequences or row["epoch"] != planned.epoch:
        return "it took other documents than the order of the run's seed gives"
    if row["tokens"] != planned.num_trained:
        return f"it records {row['tokens']} trained tokens, its sequences have {planned.num_trained}"
    if token_ids is None:
        return ""
    joined = [np.concatenate([token_ids[p.document][p.start : p.end] for p in each]) for each in planned.sequences]
    return "" if digest_tokens(joined) == row["digest"] else "its tokens are not those of its documents"


def _compare_metrics(
    steps: Sequence[Mapping[str, Any]], metrics: Mapping[int, Mapping[str, Any]], *, is_over: bool, expected: int
) -> list[Breach]:
    """Compare what was recorded before a step with what the trainer counted in it."""
    breaches = []
    recorded = {int(row["step"]): row["tokens"] for row in steps}
    if is_over and len(recorded) != expected:
        breaches.append(_breach(f"the record has {len(recorded)} steps, the recipe {expected}"))
    for step in sorted(recorded):
        if step not in metrics:
            if is_over or step != max(recorded):  # the last one may be in flight
                breaches.append(Breach(check=CHECK, step=step, text="continual pre-training: it has no metrics"))
        elif metrics[step].get("cpt/tokens") != recorded[step]:
            text = f"the trainer counted {metrics[step].get('cpt/tokens')} tokens, the record has {recorded[step]}"
            breaches.append(Breach(check=CHECK, step=step, text=f"continual pre-training: {text}"))
    if extra := sorted(set(metrics) - set(recorded)):
        breaches.append(_breach(f"metrics of steps {extra[:NAMED]}, which the record does not have"))
    return breaches[:NAMED]


def _count_passes(lengths: Sequence[int], steps: Sequence[Mapping[str, Any]], packing: Packing) -> list[Breach]:
    """Count how often each token trained, from the record alone: by passes, no two differ by more than one."""
    if not steps or not lengths:
        return []
    starts = np.concatenate([[0], np.cumsum(lengths)])
    counts = np.zeros(starts[-1], np.int64)
    can_train = np.ones(starts[-1], bool)
    if packing == "separate":
        can_train[starts[:-1]] = False
    else:
        document, start, _ = steps[0]["sequences"][0][0]
        can_train[starts[document] + start] = False  # nothing comes before the very first token
    for row in steps:
        for sequence in row["sequences"]:
            for index, (document, start, end) in enumerate(sequence):
                if not 0 <= start < end <= lengths[document]:
                    return [_breach(f"step {row['step']} took tokens {start}..{end} of {lengths[document]}")]
                counts[starts[document] + start + (index == 0) : starts[document] + end] += 1
    trained = counts[can_train]
    if trained.max() - trained.min() > 1:
        return [_breach(f"tokens trained between {trained.min()} and {trained.max()} times, which no passes give")]
    return []


def _breach(text: str) -> Breach:
    return Breach(check=CHECK, text=text)
