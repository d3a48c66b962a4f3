"""Check whether the recorded weight versions give the recorded log-probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.audit.breaches import Breach, Tallies
from turnwise.audit.materials import AuditMaterials
from turnwise.batching.samples import from_turns, to_samples
from turnwise.config.roles import find_binding
from turnwise.core.sampled import keep_version_experts, token_versions
from turnwise.core.types import Completion, Sample, Trajectory
from turnwise.store.checkpoint_folder import policy_folder
from turnwise.training.parity import BOUNDS, HALF_FORMATS, widen

MAX_EXACT = 16
"""Samples of the first version that are scored in float32, where a half-precision model is above its bound."""

UNSAID = -1
"""Stands for the version of a token that does not record which weights sampled it."""


class LogprobCheck:
    """Rescores tokens under the version that sampled them, if a checkpoint of that version exists."""

    def __init__(self, materials: AuditMaterials, checkpoints: Mapping[int, Path], tallies: Tallies) -> None:
        self._materials = materials
        self._checkpoints = checkpoints
        self._tallies = tallies
        self._bound = BOUNDS[materials.settings.dtype]
        self._gaps: list[NDArray[Any]] = []
        self._kept: list[tuple[Path, Sample, NDArray[Any]]] = []

    def check(self, trajectories: Iterable[tuple[int | None, Trajectory]]) -> None:
        """Check every sampled token of some trajectories, each given with the step that trained or dropped it."""
        by_version: dict[tuple[int, str], list[tuple[int | None, Sample, NDArray[np.bool_]]]] = {}
        for step, trajectory in trajectories:
            learner = find_binding(self._materials.settings.roles, trajectory.id.role).learner
            versions = [_list_versions(turn.completion) for turn in trajectory.turns]
            samples: dict[int, list[Sample]] = {}
            for index, of_sample in enumerate(from_turns(trajectory, versions)):
                for number in np.unique(of_sample):
                    version, of_version = int(number), of_sample == number
                    if version in self._checkpoints:
                        if version not in samples:
                            samples[version] = to_samples(keep_version_experts(trajectory, version))
                        part = (step, samples[version][index], of_version)
                        by_version.setdefault((version, learner), []).append(part)
                        continue
                    reason = "tokens sampled by weights of which no checkpoint is kept"
                    if version == UNSAID:
                        reason = "tokens of replies that do not say which of several weight versions sampled which"
                    self._tallies.skip("logprobs", reason, int(of_version.sum()))
        for (version, learner), parts in sorted(by_version.items()):
            path = policy_folder(self._checkpoints[version], learner)
            scores = self._materials.score(path, [sample for _, sample, _ in parts])
            if not self._kept:
                rows = zip(parts[:MAX_EXACT], scores, strict=False)
                self._kept = [(path, sample, np.asarray(row)) for (_, sample, _), row in rows]
            for (step, sample, of_version), recomputed in zip(parts, scores, strict=True):
                self._compare(step, sample, of_version, np.asarray(recomputed, np.float64), version)

    def finish(self) -> dict[str, float]:
        """The bounds and the differences seen; a mean above its bound is a breach."""
        tally = self._tallies["logprobs"]
        gaps = np.concatenate(self._gaps) if self._gaps else np.zeros(0)
        if len(gaps) and not gaps.mean() <= self._bound.mean and self._materials.settings.dtype in HALF_FORMATS:
            self._widen()
        facts = {"logprob_bound_mean": self._bound.mean, "logprob_bound_max": self._bound.max}
        skipped = tally.not_checked.total()
        if tally.checked + skipped:
            facts["logprob_share_checked"] = tally.checked / (tally.checked + skipped)
        if len(gaps):
            facts |= {"logprob_gap_mean": float(gaps.mean()), "logprob_gap_max": float(gaps.max())}
            if not facts["logprob_gap_mean"] <= self._bound.mean:
                text = (
                    f"the mean difference over {len(gaps)} tokens is {gaps.mean():.3g} nats, above the bound "
                    f"{self._bound.mean:g}"
                )
                tally.breaches.append(Breach(check="logprobs", text=text))
        return facts

    def _widen(self) -> None:
        """Widen the bound to what the rounding of this model explains."""
        path = self._kept[0][0]
        exact = self._materials.score_exact(path, [sample for _, sample, _ in self._kept])
        self._bound = widen(self._bound, np.concatenate([row for _, _, row in self._kept]), np.concatenate(exact))

    def _compare(
        self, step: int | None, sample: Sample, of_version: NDArray[np.bool_], recomputed: NDArray[Any], version: int
    ) -> None:
        recorded = sample.behavior_logprobs[sample.loss_mask]
        gaps = np.abs(recomputed - recorded)[of_version]
        tally = self._tallies["logprobs"]
        tally.checked += len(gaps)
        self._gaps.append(gaps)
        if not (gaps <= self._bound.max).all():
            worst = int(np.flatnonzero(of_version)[np.nanargmax(np.where(np.isfinite(gaps), gaps, np.inf))])
            text = (
                f"sampled token {worst} of branch {sample.origin.branch} has log-probability {recorded[worst]:.6f} on "
                f"record and {float(recomputed[worst]):.6f} under weight version {version}; "
                f"the bound is {self._bound.max:g}"
            )
            tally.breaches.append(Breach(check="logprobs", step=step, trajectory=sample.origin.trajectory, text=text))


def _list_versions(completion: Completion) -> NDArray[np.float64]:
    """`[N]` weight version of every token; `UNSAID` if not recorded."""
    versions = token_versions(completion)
    return np.full(len(completion.token_ids), UNSAID) if versions is None else versions.astype(np.float64)
