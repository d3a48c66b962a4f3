"""The audit of a run: re-reads what it stored and proves that what trained is what was sampled.

Every finished step is checked; the last one of a running run may be in flight and is left alone. What a check could not
look at it counts, with the reason: an audit that says nothing is wrong also says how much it saw."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel
from turnwise.runs.accounting import list_truncated
from turnwise.runs.sampling import read_greedy_rewards
from turnwise.store.integrity import (
    Breach,
    check_groups,
    check_ledger,
    check_masks,
    check_totals,
    check_turns,
    has_order,
    name_of,
)

from turnwise.algorithms.credit import StatefulCredit
from turnwise.audit.recheck import replay_trajectory
from turnwise.batching.samples import from_turns, to_samples
from turnwise.config.run import RunConfig
from turnwise.core.errors import CheckpointError, StoreError, TrainingError
from turnwise.core.paths import split_paths
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Completion, Invalid, Sample, Trajectory, TrajectoryGroup
from turnwise.credit.assignment import compute_advantages, pad_turns, to_credit_trajectories
from turnwise.runs.build import System, build_system, find_device, load_placed, set_threads
from turnwise.runs.evaluate import load_run
from turnwise.runs.methods import build_credit_method, penalises_tokens
from turnwise.store.checkpoint_folder import verify_checkpoint
from turnwise.store.ledger import DropReason, StepLedger, load_ledgers
from turnwise.store.sampled import token_versions
from turnwise.store.trajectories import TurnAdvantages, load_arrays, load_groups, load_rows
from turnwise.training.forward import score_logprobs
from turnwise.training.parity import BOUNDS
from turnwise.training.state import STATE_FILE

CHECKS: Mapping[str, tuple[str, str]] = {
    "files": ("steps", "every finished step is stored whole"),
    "masks": ("tokens", "each token belongs to one turn, and the mask follows from who wrote it"),
    "turns": ("trajectories", "turns form a tree in time, every observation was answered, records fit"),
    "groups": ("groups", "members are complete and unique, and share one task"),
    "ledger": ("tokens", "sampled = trained + dropped, and what is stored is what trained"),
    "prompts": ("turns", "each prompt extends the one before, or a branch is on record"),
    "checkpoints": ("checkpoints", "every file is what was written"),
    "logprobs": ("tokens", "the recorded weight version gives the recorded log-probabilities"),
    "rewards": ("trajectories", "scoring again gives the recorded reward"),
    "advantages": ("trajectories", "credit from the stored rewards gives the stored advantages"),
    "tools": ("calls", "running a tool again gives the recorded answer"),
}
"""Name of each check, what it counts, and what it proves, in the order of the report."""
NOT_STORED = {"values", "reference_logprobs", "implicit_rewards", "final_value", "squared_mass"}
"""What credit methods may read and the store does not keep."""
LEFT_OUT = {DropReason.FILTERED_GROUP, DropReason.OVER_BUDGET}
"""Why a group that was rolled out is not compared with others."""
MAX_OPEN = 32
"""Environments open at once."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """One check's outcome."""

    checked: int = 0
    breaches: list[Breach] = field(default_factory=list)
    not_checked: Counter[str] = field(default_factory=Counter)
    """How many, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit found."""

    run: Path
    steps: int
    """Finished steps that were read."""
    tallies: Mapping[str, Tally]
    facts: Mapping[str, float]
    """Numbers beside the verdict: the bound on log-probabilities and the differences found."""

    @property
    def breaches(self) -> list[Breach]:
        """All breaches, in the order of the checks."""
        return [breach for tally in self.tallies.values() for breach in tally.breaches]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "run": str(self.run),
            "steps": self.steps,
            "ok": not self.breaches,
            "facts": dict(self.facts),
            "checks": [
                {
                    "name": name,
                    "proves": CHECKS[name][1],
                    "unit": CHECKS[name][0],
                    "checked": tally.checked,
                    "not_checked": dict(tally.not_checked),
                    "breaches": [str(breach) for breach in tally.breaches],
                }
                for name, tally in self.tallies.items()
            ],
        }


def run_audit(run: Path, *, replay_tools: bool = False, device: str | None = None) -> AuditReport:
    """Audit a finished or running run. `replay_tools` runs every recorded tool call again; `device` None scores on the
    run's own.

    Raises StoreError when the folder holds no run or its metrics cannot be read, ConfigError when the device is not to
    be had; everything else that is wrong is a breach."""
    folder, config = load_run(run, device=device)
    find_device(config)
    audit = _Audit(folder.path, config, replay_tools=replay_tools)
    rows = {int(row["step"]): row for row in folder.read_metrics() if row["phase"] == "train"}
    last = max(rows, default=0)
    for step in sorted(set(range(1, last + 1)) - rows.keys()):
        audit.breach("files", step, "", "metrics.jsonl has later steps and not this one")
    for step in sorted(rows):
        audit.check_step(step, rows[step])
    return audit.report(len(rows))


class _Audit:
    """The objects an audit needs, and its tallies."""

    def __init__(self, run: Path, config: RunConfig, *, replay_tools: bool) -> None:
        self._run = run
        self._config = config
        self._replay_tools = replay_tools
        self._tallies = {name: Tally() for name in CHECKS}
        self._bound = BOUNDS[config.model.dtype]
        self._gaps: list[np.ndarray] = []
        try:
            self._ledgers: dict[int, StepLedger] | None = load_ledgers(run)
        except StoreError as cause:
            self._ledgers = None
            self.breach("ledger", 0, "", str(cause))
        self._checkpoints = self._read_checkpoints()
        newest = max(self._checkpoints.values(), default=None)
        self._system: System | None = build_system(config, newest) if newest is not None else None
        self._model: tuple[int, PreTrainedModel] | None = None
        set_threads(config.train.num_threads)

    def breach(self, check: str, step: int, trajectory: str, text: str) -> None:
        """Note one thing that is wrong."""
        self._tallies[check].breaches.append(Breach(check=check, step=step, trajectory=trajectory, text=text))

    def report(self, steps: int) -> AuditReport:
        """The outcome."""
        facts = {"logprob_bound_mean": self._bound.mean, "logprob_bound_max": self._bound.max}
        checked, skipped = self._tallies["logprobs"].checked, self._tallies["logprobs"].not_checked.total()
        if checked + skipped:
            facts["logprob_share_checked"] = checked / (checked + skipped)
        if self._gaps:
            gaps = np.concatenate(self._gaps)
            facts |= {"logprob_gap_mean": float(gaps.mean()), "logprob_gap_max": float(gaps.max())}
            if facts["logprob_gap_mean"] > self._bound.mean:
                text = (
                    f"the mean difference over {len(gaps)} tokens is {gaps.mean():.3g} nats, above the bound "
                    f"{self._bound.mean:g}"
                )
                self.breach("logprobs", 0, "", text)
        return AuditReport(run=self._run, steps=steps, tallies=self._tallies, facts=facts)

    def check_step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Everything about one finished step."""
        folder, name = self._run / "trajectories", f"step_{step:06d}"
        try:
            rows, arrays = load_rows(folder, name), load_arrays(folder, name)
            wrong = check_masks(step, rows, arrays)
            self._take(wrong)
            if any(breach.check == "files" for breach in wrong):
                return
            groups, advantages = load_groups(folder, name)
            self._take(check_groups(step, groups, rows, group_size=self._config.rollout.group_size))
        except (StoreError, KeyError, TypeError, ValueError) as cause:
            self.breach(
                "files",
                step,
                "",
                str(cause) if isinstance(cause, StoreError) else f"a stored row is damaged: {cause!r}",
            )
            return
        self._tallies["files"].checked += 1
        self._tallies["masks"].checked += len(arrays["token_ids"])
        self._tallies["groups"].checked += len(groups)
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        retried = self._load_retried(step)
        thrown_away = [(group, t) for group in retried for t in group.trajectories]
        self._tallies["turns"].checked += len(trajectories) + len(thrown_away)
        for trajectory in (*trajectories, *(t for _, t in thrown_away)):
            alone = [path.trajectory for path in split_paths(trajectory)] if has_order(trajectory) else [trajectory]
            self._take(list(dict.fromkeys(breach for path in alone for breach in check_turns(step, path))))
        self._check_accounts(step, groups, advantages, retried, metrics)
        sound = [(group, t) for group in groups for t in group.trajectories if has_order(t)]
        if len(sound) == len(trajectories):
            self._check_advantages(step, groups, advantages)
        else:
            self._tallies["advantages"].not_checked["trajectories of a step in which a turn has no place"] += len(
                trajectories
            )
        sound += [(group, t) for group, t in thrown_away if has_order(t)]
        if self._system is not None:
            asyncio.run(self._replay(step, self._system, sound))
        else:
            self._tallies["prompts"].not_checked["turns of a run without a checkpoint"] += sum(
                len(t.turns) for _, t in sound
            )
        self._check_logprobs(step, [trajectory for _, trajectory in sound])

    def _take(self, breaches: Sequence[Breach]) -> None:
        for breach in breaches:
            self._tallies[breach.check].breaches.append(breach)

    def _load_retried(self, step: int) -> list[TrajectoryGroup]:
        """The attempts of a step that were thrown away; none where there is no file or it is damaged."""
        folder, name = self._run / "trajectories", f"step_{step:06d}_retried"
        if not (folder / f"{name}.jsonl").exists():
            return []
        try:
            wrong = check_masks(step, load_rows(folder, name), load_arrays(folder, name))
            self._take(wrong)
            return [] if any(breach.check == "files" for breach in wrong) else load_groups(folder, name)[0]
        except (StoreError, KeyError, TypeError, ValueError) as cause:
            text = str(cause) if isinstance(cause, StoreError) else f"a stored row is damaged: {cause!r}"
            self.breach("files", step, "", f"retried attempts: {text}")
            return []

    def _check_accounts(
        self,
        step: int,
        groups: Sequence[TrajectoryGroup],
        advantages: Mapping[tuple[str, int], TurnAdvantages],
        retried: Sequence[TrajectoryGroup],
        metrics: Mapping[str, Any],
    ) -> None:
        sampled = sum(t.num_sampled_tokens for group in (*groups, *retried) for t in group.trajectories)
        if not self._ledgers:
            self._tallies["ledger"].not_checked["tokens of a run without a readable ledger"] += sampled
            return
        ledger = self._ledgers.get(step)
        self._take(check_ledger(ledger, step, groups, advantages, retried))
        if ledger is not None:
            self._tallies["ledger"].checked += ledger.sampled
            self._take(check_totals(ledger, metrics))

    def _check_advantages(
        self, step: int, groups: Sequence[TrajectoryGroup], advantages: Mapping[tuple[str, int], TurnAdvantages]
    ) -> None:
        """Float32 rounding apart, the same numbers."""
        tally = self._tallies["advantages"]
        if (reason := why_not_recomputable(self._config)) is not None:
            tally.not_checked[reason] += len(advantages)
            return
        ledger = (self._ledgers or {}).get(step)
        filtered = {e.group_id for e in ledger.entries if LEFT_OUT & e.dropped.keys()} if ledger is not None else set()
        compared = [group for group in groups if group.group_id not in filtered]
        greedy = f"step_{step:06d}_greedy"
        try:
            stored = (
                load_groups(self._run / "trajectories", greedy)[0]
                if (self._run / "trajectories" / f"{greedy}.jsonl").exists()
                else []
            )
            seen = to_credit_trajectories(
                compared, shaping=self._config.credit.shaping, greedy_rewards=read_greedy_rewards(stored)
            )
            again = compute_advantages(build_credit_method(self._config), compared, seen)
        except (TrainingError, StoreError) as cause:
            self.breach("advantages", step, "", f"credit cannot be computed from the stored rewards: {cause}")
            return
        truncated = list_truncated(compared, self._config)
        again = {key: credit for key, credit in again.items() if key not in truncated}
        whole = {(group.group_id, t.member): t for group in compared for t in group.trajectories}
        for key in sorted(again.keys() | advantages.keys()):
            tally.checked += 1
            label = f"{key[0]}/{key[1]}"
            if key not in again or key not in advantages:
                side = "stored but not recomputed" if key in advantages else "recomputed but not stored"
                self.breach("advantages", step, label, f"its advantages are {side}")
                continue
            for number, (new, old) in enumerate(zip(pad_turns(again[key], whole[key]), advantages[key], strict=True)):
                if new is None and old is None:
                    continue
                if new is None:
                    self.breach("advantages", step, label, f"turn {number} never trains and yet has advantages")
                    break
                if old is None or new.shape != old.shape or not np.allclose(new, old, rtol=1e-5, atol=1e-6):
                    on_record = "none" if old is None else f"{old[:1]}"
                    self.breach(
                        "advantages",
                        step,
                        label,
                        f"turn {number}: stored {on_record}, recomputed {new[:1]} (first token)",
                    )
                    break

    async def _replay(self, step: int, system: System, sound: Sequence[tuple[TrajectoryGroup, Trajectory]]) -> None:
        """Prompts, rewards and, where asked for, tools."""
        config, gate = self._config, asyncio.Semaphore(MAX_OPEN)
        seed = derive_seed(config.run.seed, "rollout")

        async def replay(group: TrajectoryGroup, trajectory: Trajectory, num_shared: int) -> None:
            async with gate:
                found = await replay_trajectory(
                    trajectory,
                    group.task,
                    family=system.family,
                    renderer=system.renderer,
                    seed=derive_seed(seed, "environment", trajectory.group_id, trajectory.task_id),
                    run_tools=self._replay_tools,
                    timeout_s=config.rollout.trajectory_timeout_s,
                )
            failed = dict(found.not_checked)
            num_turns = len(trajectory.turns) - num_shared
            self._tallies["prompts"].checked += 0 if "prompts" in failed else num_turns
            self._tallies["rewards"].checked += found.reward_checked
            self._tallies["tools"].checked += found.num_calls
            if not self._replay_tools and trajectory.num_tool_calls:
                self._tallies["tools"].not_checked["calls, as --replay-tools was not given"] += (
                    trajectory.num_tool_calls
                )
            if self._replay_tools and isinstance(trajectory.reward, Invalid):
                self._tallies["tools"].not_checked["calls of attempts that could not be scored"] += (
                    trajectory.num_tool_calls
                )
            for check, reason in found.not_checked:
                self._tallies[check].not_checked[reason] += num_turns if check == "prompts" else 1
            for check, text in found.breaches:
                self.breach(check, step, name_of(trajectory), text)

        await asyncio.gather(
            *(
                replay(group, path.trajectory, path.num_shared)
                for group, trajectory in sound
                for path in split_paths(trajectory)
            )
        )

    def _check_logprobs(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        """Score every token again under the version that sampled it, where a checkpoint of that version exists."""
        tally = self._tallies["logprobs"]
        by_version: dict[int, list[tuple[Sample, NDArray[np.bool_]]]] = {}
        for trajectory in trajectories:
            versions = [_list_versions(turn.completion) for turn in trajectory.turns]
            for sample, of_sample in zip(to_samples(trajectory), from_turns(trajectory, versions), strict=True):
                for number in np.unique(of_sample):
                    version, own = int(number), of_sample == number
                    if version in self._checkpoints:
                        by_version.setdefault(version, []).append((sample, own))
                        continue
                    reason = "tokens sampled by weights of which no checkpoint is kept"
                    if version < 0:
                        reason = "tokens of replies that do not say which of several weight versions sampled which"
                    tally.not_checked[reason] += int(own.sum())
        for version, parts in sorted(by_version.items()):
            model = self._load(version)
            samples = [sample for sample, _ in parts]
            scores = score_logprobs(
                model,
                samples,
                self._config.rollout.temperature,
                micro_batch_tokens=self._config.train.micro_batch_tokens,
            )
            for (sample, own), again in zip(parts, scores, strict=True):
                recorded = sample.behavior_logprobs[sample.loss_mask]
                gap = np.abs(np.asarray(again, np.float64) - recorded)[own]
                tally.checked += len(gap)
                self._gaps.append(gap)
                if not (gap <= self._bound.max).all():
                    worst = int(np.flatnonzero(own)[np.nanargmax(np.where(np.isfinite(gap), gap, np.inf))])
                    text = (
                        f"sampled token {worst} of branch {sample.origin.branch} has log-probability "
                        f"{recorded[worst]:.6f} on record and "
                        f"{float(again[worst]):.6f} under weight version {version}; the bound is {self._bound.max:g}"
                    )
                    self.breach("logprobs", step, f"{sample.origin.group_id}/{sample.origin.member}", text)

    def _load(self, version: int) -> PreTrainedModel:
        """The model of a version; the one before it is forgotten."""
        if self._model is None or self._model[0] != version:
            self._model = version, load_placed(self._config, self._checkpoints[version])
        return self._model[1]

    def _read_checkpoints(self) -> dict[int, Path]:
        """Intact checkpoints by the weight version they hold."""
        found: dict[int, Path] = {}
        for path in sorted((self._run / "checkpoints").glob("step_*")):
            step = int(path.name.rpartition("_")[2])
            try:
                verify_checkpoint(path)
                with safe_open(path / STATE_FILE, framework="pt") as file:
                    found[int(json.loads(file.metadata()["counters"])["version"])] = path
            except (CheckpointError, OSError, SafetensorError, KeyError, TypeError, ValueError) as cause:
                self.breach("checkpoints", step, "", str(cause))
                continue
            self._tallies["checkpoints"].checked += 1
        return found


def _list_versions(completion: Completion) -> NDArray[np.float64]:
    """`[N]` weight version of every token, -1 where it is not known."""
    versions = token_versions(completion)
    return np.full(len(completion.token_ids), -1.0) if versions is None else versions.astype(np.float64)


def why_not_recomputable(config: RunConfig) -> str | None:
    """Why advantages do not follow from what is stored; None when they do."""
    if config.train.algorithm != "policy_gradient":
        return f"trajectories of train.algorithm={config.train.algorithm!r}, which has no advantages"
    credit = build_credit_method(config)
    if config.critic.kind != "none" or set(credit.method.needs) & NOT_STORED:
        return f"trajectories credited by {config.credit.method!r}, which reads more than the store keeps"
    if isinstance(credit.function, StatefulCredit):
        return f"trajectories credited by {config.credit.method!r}, which remembers earlier steps"
    if penalises_tokens(config) or (config.loss.teacher.path and config.loss.teacher.kind == "sampled"):
        return "trajectories whose advantages hold scores of another model"
    return None
