"""The audit of continual pre-training finds every planted fault, and none where there is none."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnwise.audit.breaches import Tallies
from turnwise.audit.documents import AuditedDocuments, check_documents
from turnwise.batching.documents import plan_steps
from turnwise.core.types import to_ids
from turnwise.store.documents import append_step, digest_tokens, phase_folder, write_documents

TOKENS = tuple(to_ids(np.arange(start, start + length)) for start, length in ((0, 9), (20, 4), (40, 2)))
PHASE = AuditedDocuments(steps=6, batch_tokens=6, max_tokens=5, packing="separate", seed=3, token_ids=TOKENS)
Rows = list[dict[str, Any]]


def record(run: Path, phase: AuditedDocuments = PHASE) -> dict[int, dict[str, Any]]:
    """Write the record of a sound phase; returns its metrics by step."""
    write_documents(run, [(f"d{index}", ids) for index, ids in enumerate(TOKENS)])
    plan = plan_steps(
        [len(ids) for ids in TOKENS],
        batch_tokens=phase.batch_tokens,
        max_tokens=phase.max_tokens,
        packing=phase.packing,
        seed=phase.seed,
    )
    metrics = {}
    for step, planned in enumerate(islice(plan, phase.steps), start=1):
        ids = [np.concatenate([TOKENS[p.document][p.start : p.end] for p in each]) for each in planned.sequences]
        sequences = [[[p.document, p.start, p.end] for p in each] for each in planned.sequences]
        row = {"step": step, "epoch": planned.epoch, "sequences": sequences, "tokens": planned.num_trained}
        append_step(run, {**row, "digest": digest_tokens(ids)})
        metrics[step] = {"cpt/tokens": float(planned.num_trained)}
    return metrics


def audit(run: Path, metrics: dict[int, dict[str, Any]], phase: AuditedDocuments = PHASE) -> tuple[str, Tallies]:
    tallies = Tallies()
    check_documents(run, phase, metrics, is_over=True, tallies=tallies)
    return "; ".join(map(str, tallies["documents"].breaches)), tallies


def change(run: Path, name: str, edit: Callable[[Rows], None]) -> None:
    path = phase_folder(run) / name
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    edit(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("packing", ["separate", "joined"])
def test_a_sound_phase_holds(tmp_path: Path, packing: Any) -> None:
    phase = replace(PHASE, packing=packing)
    text, tallies = audit(tmp_path, record(tmp_path, phase), phase)
    assert (text, tallies["documents"].checked) == ("", 3)


def take_a_piece_twice(rows: Rows) -> None:
    rows[0]["sequences"].append(rows[0]["sequences"][0])
    rows[1]["sequences"].append(rows[0]["sequences"][0])


@pytest.mark.parametrize(
    ("name", "edit", "expected"),
    [
        ("steps.jsonl", lambda rows: rows.pop(), "the record has 5 steps, the recipe 6"),
        ("steps.jsonl", lambda rows: rows.pop(1), "line 2 of the steps is about step 3"),
        ("steps.jsonl", lambda rows: rows[2].update(digest="0" * 16), "its tokens are not those of its documents"),
        ("steps.jsonl", lambda rows: rows[2].update(tokens=1), "it records 1 trained tokens"),
        ("steps.jsonl", take_a_piece_twice, "it took other documents than the order"),
        ("steps.jsonl", take_a_piece_twice, "tokens trained between \\d and \\d times"),
        ("steps.jsonl", lambda rows: rows[0].pop("sequences"), "a line of the record is damaged"),
        ("documents.jsonl", lambda rows: rows[1].update(digest="0" * 16), r"document 1 \(d1\) has other tokens"),
        ("documents.jsonl", lambda rows: rows.pop(), "the source has 3 documents, the run recorded 2"),
        ("documents.jsonl", lambda rows: rows.clear(), "the run lists no documents"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, name: str, edit: Callable[[Rows], None], expected: str) -> None:
    metrics = record(tmp_path)
    change(tmp_path, name, edit)
    text, tallies = audit(tmp_path, metrics)
    assert tallies["documents"].checked == 0
    assert re.search(expected, text), text


def test_the_trainers_count_must_agree(tmp_path: Path) -> None:
    metrics = record(tmp_path)
    metrics[4]["cpt/tokens"] -= 1
    del metrics[5]
    metrics[9] = {"cpt/tokens": 3.0}
    text, _ = audit(tmp_path, metrics)
    assert "step 4: continual pre-training: the trainer counted" in text
    assert "step 5: continual pre-training: it has no metrics" in text
    assert "metrics of steps [9]" in text


def test_a_source_that_is_gone_is_said_and_the_rest_is_checked(tmp_path: Path) -> None:
    metrics = record(tmp_path)
    gone = replace(PHASE, token_ids=None, missing="there is no such file")
    text, tallies = audit(tmp_path, metrics, gone)
    assert text == ""
    assert dict(tallies["documents"].not_checked) == {"documents against their source: there is no such file": 3}
