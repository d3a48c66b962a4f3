"""Predictions in SWE-bench's formats, and the report on their grades in its field names."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise_swe.repositories.grading import Grade
from turnwise_swe.repositories.instance import Instance, read_rows


def load_predictions(path: Path, instances: Sequence[Instance]) -> dict[str, str]:
    """Instance id to patch, for the instances that have one. Raises DataError as `load_samples`, and for a second
    prediction."""
    first, *others = load_samples(path, instances)
    if others:
        name = next(iter(others[0]))
        raise DataError(f"{path} has a second prediction for {name}; keep one per instance")
    return first


def load_samples(path: Path, instances: Sequence[Instance]) -> list[dict[str, str]]:
    """One mapping of instance id to patch for the first prediction of each instance, one for the second, and so on. The
    file is JSONL, a JSON list, or a JSON object by instance id.

    Each prediction has `instance_id` and `model_patch`; null is an empty patch. Raises DataError naming the prediction
    that lacks a field or belongs to no instance.
    """
    known = {instance.instance_id for instance in instances}
    rounds: list[dict[str, str]] = [{}]
    for place, row in _read_predictions(path):
        name, patch = row.get("instance_id"), row.get("model_patch", "")
        if not isinstance(name, str):
            raise DataError(f"{place} has no instance_id; it must be a string")
        if "model_patch" not in row or not isinstance(patch, str | None):
            raise DataError(f"{place} has no model_patch; it must be a unified diff, or null")
        if name not in known:
            raise DataError(f"{place} is for {name}, which is not among the {len(known)} instances")
        free = next((patches for patches in rounds if name not in patches), None)
        if free is None:
            rounds.append(free := {})
        free[name] = patch or ""
    if rounds == [{}]:
        raise DataError(f"{path} has no predictions; add one per instance, with model_patch null for no patch")
    return rounds


def _read_predictions(path: Path) -> list[tuple[str, dict[str, Any]]]:
    if path.suffix == ".jsonl":
        return list(read_rows(path))
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as cause:
        raise DataError(
            f"cannot read {path} as JSON: {cause}; predictions are JSON, or JSONL in a .jsonl file"
        ) from None
    if isinstance(value, dict):
        for name, row in value.items():
            if isinstance(row, dict) and row.get("instance_id", name) != name:
                raise DataError(f"{path} has {row['instance_id']!r} under the key {name!r}; make them equal")
        value = [{"instance_id": name, **row} if isinstance(row, dict) else row for name, row in value.items()]
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise DataError(f"{path} is neither a list nor an object of predictions")
    return [(f"{path} prediction {number}", row) for number, row in enumerate(value, 1)]


def join_reports(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The report itself for one prediction each; for several, a common summary and the report of every round.

    `mean_resolved` is the mean over instances of the share of its predictions that resolve it, 0 without a prediction
    (an estimate of pass@1); `any_resolved` counts the instances resolved by at least one of their predictions.
    """
    if len(reports) == 1:
        return reports[0]
    tried = Counter(name for report in reports for name in report["submitted_ids"])
    resolved = Counter(name for report in reports for name in report["resolved_ids"])
    total = reports[0]["total_instances"]
    return {
        "total_instances": total,
        "submitted_predictions": tried.total(),
        "resolved_predictions": resolved.total(),
        "mean_resolved": sum(resolved[name] / number for name, number in tried.items()) / total,
        "any_resolved_instances": len(resolved),
        "any_resolved_ids": sorted(resolved),
        "rounds": list(reports),
    }


_ERRORS = ("patch_refused", "patch_failed", "infrastructure")
"""Endings that SWE-bench counts as errors."""


def build_report(
    instances: Sequence[Instance], patches: Mapping[str, str | None], grades: Sequence[Grade]
) -> dict[str, Any]:
    """The report: SWE-bench's counts and lists of ids, the number of each ending, and the grades.

    Instances without a prediction count as not resolved.
    """
    by_ending: dict[str, list[str]] = {}
    for grade in grades:
        by_ending.setdefault(grade.ending, []).append(grade.instance_id)
    errors = [grade.instance_id for grade in grades if grade.ending in _ERRORS]
    no_patch = [name for name in by_ending.get("no_patch", []) if name in patches]
    ran = [grade for grade in grades if grade.instance_id not in {*errors, *by_ending.get("no_patch", [])}]
    lists = {
        "submitted": sorted(patches),
        "completed": sorted(grade.instance_id for grade in ran),
        "resolved": sorted(by_ending.get("resolved", [])),
        "unresolved": sorted(grade.instance_id for grade in ran if grade.ending != "resolved"),
        "empty_patch": sorted(no_patch),
        "error": sorted(errors),
        "incomplete": sorted(instance.instance_id for instance in instances if instance.instance_id not in patches),
    }
    return {
        "total_instances": len(instances),
        **{f"{name}_instances": len(ids) for name, ids in lists.items()},
        **{f"{name}_ids": ids for name, ids in lists.items()},
        "forgeable_instances": sum(grade.forgeable for grade in ran),
        "endings": {ending: len(ids) for ending, ids in sorted(by_ending.items())},
        "grades": [grade.to_row() for grade in grades],
    }
