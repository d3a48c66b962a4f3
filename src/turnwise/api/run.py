"""A run folder for people: its recipe, and its numbers and trajectories as tables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from turnwise.api.frames import Table, list_trajectory_rows, to_table
from turnwise.config.load import load_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import DataError
from turnwise.core.roles import split_roles
from turnwise.core.types import TrajectoryGroup
from turnwise.reporting.summaries import format_success, is_control, load_summaries, row_of
from turnwise.store.groups import GroupStore
from turnwise.store.ledger import load_accounts
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups


def load_run(path: str | os.PathLike[str]) -> RunReader:
    """Open a run folder, finished or not. Raises StoreError if it is none, ConfigError if its recipe is damaged."""
    folder = RunFolder.open(Path(path))
    return RunReader(path=folder.path, config=load_resolved(folder.path / "config.json"))


class _Fate(NamedTuple):
    """The fate of one role of a group."""

    draw: int
    role: str
    fate: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReader:
    """The results of a run. Tables are pandas data frames if pandas is installed, else lists of dictionaries.

    Every call reads the folder again, so that a run can be watched from another process.
    """

    path: Path
    """The run folder."""
    config: RunConfig
    """The resolved recipe."""

    @property
    def report(self) -> Path:
        """Path of the run's report.html, which exists once the run has ended."""
        return self.path / "report.html"

    def metrics(self, phase: Literal["cpt", "sft", "train", "evaluate"] | None = None) -> Table:
        """One row per step and phase: the metrics of the run. `phase` None: all of them."""
        rows = RunFolder.open(self.path).read_metrics()
        return to_table([row for row in rows if phase in (None, row["phase"])])

    def evaluations(self) -> Table:
        """One row per evaluation and kind of task ("all" is every kind), in the order of the steps, controls last.

        `success` has the 95% interval from `low` to `high` over `n` trajectories; `control` is true if something was
        taken away from the policy.
        """
        return to_table(
            [
                {key: summary[key] for key in ("name", "label", "step")} | {"control": is_control(summary), **row}
                for summary in load_summaries(self.path)
                for row in summary["rows"]
            ]
        )

    def groups(self, step: int) -> list[TrajectoryGroup]:
        """The groups that RL step `step` trained on, in the order of their draws. Raises DataError if there are none.

        They hold every token with its log-probability, mask and weight version.
        """
        store = GroupStore(self.path)
        draws = dict.fromkeys(fate.draw for fate in self._fates() if (fate.fate, fate.step) == ("trained", step))
        groups = [store.load(draw) for draw in draws]
        if not groups:
            raise DataError(f"{self.path} has no groups for step {step}; its last trained step is {self._last_step()}")
        return groups

    def trajectories(self, step: int | None = None, *, split: Literal["train", "heldout"] = "train") -> Table:
        """One row per trajectory, which is what one role said in one episode. `step` None: of every step.

        With "train" those of RL step `step`; `fate` is "trained", or why all trajectories of the role in the group were
        dropped. With "heldout" those of the evaluations after `step` RL steps, controls included; `evaluation` is the
        label. `reward` is None if a trajectory could not be judged, and `invalid` says why. `transcript` is the
        conversation as text.
        Raises DataError for a step without trajectories, StoreError for a damaged file.
        """
        rows: list[dict[str, Any]] = []
        if split == "train":
            store = GroupStore(self.path)
            wanted = [fate for fate in self._fates() if step in (None, fate.step)]
            for draw, fates in groupby(wanted, key=lambda fate: fate.draw):
                parts = {part.role: part for part in split_roles(store.load(draw))}
                for fate in fates:
                    rows += list_trajectory_rows(parts[fate.role], {"step": fate.step, "fate": fate.fate})
        else:
            for summary in load_summaries(self.path):
                if step in (None, summary["step"]):
                    first = {"step": summary["step"], "evaluation": summary["label"]}
                    for group in load_groups(self.path / "evaluations", summary["name"]):
                        rows += list_trajectory_rows(group, first)
        if step is not None and not rows:
            raise DataError(
                f"{self.path} has no {split} trajectories for step {step}; its last trained step is {self._last_step()}"
            )
        return to_table(rows)

    def _fates(self) -> list[_Fate]:
        """The fate of every role of every group that was trained or dropped, by draw."""
        return sorted(_Fate(each.draw, each.role, str(each.fate), each.step) for each in load_accounts(self.path))

    def _last_step(self) -> int:
        return max((fate.step for fate in self._fates() if fate.fate == "trained"), default=0)

    def __repr__(self) -> str:
        lines = [f"run {self.path}"]
        for summary in load_summaries(self.path):
            row = row_of(summary, "all")
            if row is not None:
                lines.append(f"  held-out success {summary['label']}: {format_success(row)} on {row['n']} tasks")
        return "\n".join(lines)
