"""The reward of an episode: the grade of its submission, in fresh trees."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.core.types import Invalid, Reward, RewardPart, Scored, ToolRecord
from turnwise.environments.shared_sandbox import SharedSandbox
from turnwise_swe.environment.cases import Case
from turnwise_swe.environment.tools.test import ALL_PASS
from turnwise_swe.environment.workspace import Changes
from turnwise_swe.repositories.grading import Grade, grade_changes
from turnwise_swe.repositories.repository import is_leftover

ENDINGS = ("not_submitted", "no_edit", "protected", "too_large")
"""Reasons why nothing is graded, of which the first that applies counts: no `submit`; no file was changed, except those
that running tests leaves behind; only files that a patch may not change were changed; the changed files exceed the
quota. Otherwise the grade determines the ending."""


async def judge(
    sandbox: SharedSandbox, case: Case, changes: Changes | None, records: Sequence[ToolRecord], ending: str
) -> Reward:
    """Return 1 for a repair, else 0, with the part of its ending; Invalid if the infrastructure failed.

    `ending` is one of `ENDINGS` that is already known, or "". `changes` is None if nothing was submitted.
    """
    grade: Grade | None = None
    if not ending and changes is not None:
        edited = [path for path in changes if not is_leftover(path)]
        ending = "" if edited else "no_edit"
        if edited and all(map(case.repository.is_protected, edited)):
            ending = "protected"
    changed = case.why_changed()  # before the instance is laid over the tree, because it might not fit
    if not ending and changes is not None and changed is None:
        grade = await grade_changes(sandbox, case.repository, case.instance, changes)
        ending, changed = grade.ending, case.why_changed()
    if changed is not None:
        return Invalid(reason=changed, retryable=False)
    if grade is not None and grade.score is None:
        return Invalid(reason=f"grading failed: {grade.reason}", retryable=True)
    success = float(ending == "resolved")
    parts = {"success": success, ending: 1.0, **count_calls(records)}
    if grade is not None:
        parts["forgeable"] = float(grade.forgeable)
    if grade is not None and grade.resolution is not None:
        fixed, broken = grade.resolution.fixed, grade.resolution.broken
        parts |= {"fixed": len(fixed) / len(case.instance.fail_to_pass), "broken": float(len(broken))}
    return Scored(total=success, parts=tuple(RewardPart(name=name, value=value) for name, value in parts.items()))


def count_calls(records: Sequence[ToolRecord]) -> dict[str, float]:
    """Count the actions: `edits`, `tests`, `tested_first` (a test ran before the first edit), `red_after_edit` (a test
    failed after an edit)."""
    trail = []
    for record in records:
        if record.call.name.startswith("edit") and record.error is None:
            trail.append("edit")
        elif record.call.name == "test":
            trail.append("green" if record.observation.startswith(ALL_PASS) else "red")
    first_edit = trail.index("edit") if "edit" in trail else len(trail)
    return {
        "edits": float(trail.count("edit")),
        "tests": float(len(trail) - trail.count("edit")),
        "tested_first": float(first_edit > 0 and bool(trail)),
        "red_after_edit": float("red" in trail[first_edit:]),
    }
