"""What the confidences that a run states are worth, from its stored evaluations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.core.errors import DataError
from turnwise.core.roles import split_roles
from turnwise.core.types import Scored, TrajectoryGroup
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups
from turnwise_rewards.shaping.calibration import is_right
from turnwise_rewards.shaping.confidence import read_confidence
from turnwise_rewards.shaping.decomposition import Coverage, Decomposition, compute_risk_area, decompose, trace_coverage


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedConfidences:
    """The confidences of one evaluation."""

    evaluation: str
    outcomes: Mapping[str, int]
    """How many replies stated one, and what the others did (`Outcome`); "invalid" could not be scored."""
    accuracy: float
    """Share of right answers among all that were scored, with a confidence or without."""
    decomposition: Decomposition | None
    """Over the replies that stated one; None if none did."""
    coverage: Sequence[Coverage]
    risk_area: float | None


def measure_run(run: Path, *, evaluation: str = "", tag: str = "confidence", success: str = "success") -> list[
    StatedConfidences
]:
    """Measure the run's own evaluations, or the one named `evaluation`.

    Raises StoreError without a run, DataError if it has no such evaluation, ConfigError if rewards have no part
    `success`.
    """
    folder = RunFolder.open(run).path / "evaluations"
    names = sorted(path.name.removesuffix(".summary.json") for path in folder.glob("*.summary.json"))
    chosen = [name for name in names if name == evaluation] if evaluation else names
    if not chosen:
        raise DataError(f"{run} has no evaluation {evaluation or 'at all'}; it has {', '.join(names) or 'none'}")
    return [measure_groups(name, load_groups(folder, name), tag=tag, success=success) for name in chosen]


def measure_groups(name: str, groups: Sequence[TrajectoryGroup], *, tag: str, success: str) -> StatedConfidences:
    """Measure the confidences in the last replies of these groups, of learning roles."""
    outcomes: Counter[str] = Counter()
    pairs: list[tuple[float, bool]] = []
    rights: list[bool] = []
    for group in groups:
        for member in (member for part in split_roles(group) for member in part.trajectories if member.learns):
            if not isinstance(member.reward, Scored):
                outcomes["invalid"] += 1
                continue
            stated = read_confidence(member.turns[-1].message.text if member.turns else "", tag)
            outcomes[stated.outcome.value] += 1
            rights.append(is_right(member, success))
            if stated.value is not None:
                pairs.append((stated.value, rights[-1]))
    return StatedConfidences(
        evaluation=name,
        outcomes=dict(outcomes),
        accuracy=sum(rights) / len(rights) if rights else 0.0,
        decomposition=decompose(pairs) if pairs else None,
        coverage=trace_coverage(pairs),
        risk_area=compute_risk_area(pairs) if pairs else None,
    )
