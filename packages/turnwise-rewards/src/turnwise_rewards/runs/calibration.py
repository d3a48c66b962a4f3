"""What the confidences that a run states are worth, from its stored evaluations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.config.engine_kinds.kind import read_options
from turnwise.config.load import load_resolved
from turnwise.config.rewards import RewardSection
from turnwise.core.errors import DataError
from turnwise.core.roles import take_measured
from turnwise.core.types import Scored, TrajectoryGroup
from turnwise.credit.reward_table import find_reward
from turnwise.store.run_folder import CONFIG, RunFolder
from turnwise.store.trajectories import load_groups
from turnwise_rewards.shaping.calibration import CalibrationOptions, is_right
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
    """Mean risk over all coverages (`compute_risk_area`); None as above."""


def measure_run(
    run: Path, *, evaluation: str = "", changes: Mapping[str, Any] | None = None
) -> list[StatedConfidences]:
    """Measure all evaluations of a run, or the one named `evaluation`.

    Confidences are read as the recipe's reward of kind `calibration` says, or by its defaults; `changes` are options
    instead of those. Raises StoreError without a run, DataError if it has no such evaluation, ConfigError for a wrong
    option and if rewards have no part `success`.
    """
    path = RunFolder.open(run).path
    folder = path / "evaluations"
    names = sorted(file.name.removesuffix(".summary.json") for file in folder.glob("*.summary.json"))
    chosen = [name for name in names if name == evaluation] if evaluation else names
    if not chosen:
        raise DataError(f"{run} has no evaluation {evaluation or 'at all'}; it has {', '.join(names) or 'none'}")
    options = find_options(load_resolved(path / CONFIG).rewards, changes or {})
    return [measure_groups(name, load_groups(folder, name), options) for name in chosen]


def find_options(rewards: Mapping[str, RewardSection], changes: Mapping[str, Any]) -> CalibrationOptions:
    """Return the options of the recipe's first reward that scores confidences, or the defaults, with changes."""
    for name, section in rewards.items():
        if section.kind != "task" and find_reward(name, section).options is CalibrationOptions:
            return read_options(
                section.kind, CalibrationOptions, {**section.options, **changes}, where=f"rewards.{name}"
            )
    return read_options("calibration", CalibrationOptions, changes, where="rewards.calibration")


def measure_groups(name: str, groups: Sequence[TrajectoryGroup], options: CalibrationOptions) -> StatedConfidences:
    """Measure the confidences in the last replies of the trajectories that measure the policy."""
    outcomes: Counter[str] = Counter()
    pairs: list[tuple[float, bool]] = []
    rights: list[bool] = []
    for member in (member for group in groups for member in take_measured(group)):
        if not isinstance(member.reward, Scored):
            outcomes["invalid"] += 1
            continue
        last = member.turns[-1].message.text if member.turns else ""
        stated = read_confidence(last, options.tag, options.scale)
        outcomes[stated.outcome.value] += 1
        rights.append(is_right(member, options.success))
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
