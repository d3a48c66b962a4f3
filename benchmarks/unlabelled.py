"""What rewards without labels do to every question: its answers before RL, its success after, and when an alarm came.

    python benchmarks/unlabelled.py RUN...

Each RUN is the folder of a run that evaluated several attempts per task. Before is the evaluation of the run whose
checkpoint `model.path` names, or else of the run itself; after is the run's last. Runs with one name are seeds of one
line. packages/turnwise-rewards/docs/unlabelled.md has the commands that made the runs of its tables.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.core.types import Scored, TrajectoryGroup
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups
from turnwise_rewards.unlabelled.answers import AnswerOptions, count_answers, read_answer

SETTLED = 0.2
"""Lead of the most common answer before RL from which a question counts as decided."""
LEAST = 0.05
"""Least success that a run must lose for its fall to have a half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The attempts at one question in one evaluation."""

    right: int
    total: int
    label: str | None
    """The most common answer."""
    is_label_right: bool
    lead: float
    """Share of the most common answer, minus that of the second."""


def read_question(group: TrajectoryGroup) -> Question:
    """Count a group's attempts."""
    said = [(read_answer(t, AnswerOptions()), t.reward) for t in group.trajectories]
    right = [answer for answer, reward in said if isinstance(reward, Scored) and reward.total == 1]
    ranked = [*count_answers([answer for answer, _ in said]).most_common(2), (None, 0), (None, 0)]
    (label, most), (_, second) = ranked[:2]
    return Question(
        right=len(right),
        total=len(said),
        label=label,
        is_label_right=label is not None and label in right,
        lead=(most - second) / len(said),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run: its questions before and after, and its course."""

    name: str
    before: list[Question]
    after: list[Question]
    curve: list[tuple[int, float]]
    """Held-out success by step."""
    terms: dict[int, float]
    """Mean value of the reward's first term by step."""
    alarm: int | None
    """First step with the alarm that the reward loses the order of the truth."""

    @property
    def half(self) -> float | None:
        """Step at which half of what success loses is lost, between two evaluations in proportion; None if it loses
        less than `LEAST`."""
        (_, first), (_, last) = self.curve[0], self.curve[-1]
        if first - last < LEAST:
            return None
        middle = (first + last) / 2
        steps = zip(self.curve, self.curve[1:], strict=False)
        (begins, high), (ends, low) = next((was, now) for was, now in steps if now[1] <= middle)
        return begins + (high - middle) / (high - low) * (ends - begins)


def read_run(path: Path) -> Outcome:
    """Read a run and the evaluation before it."""
    config = json.loads((path / "config.json").read_text())
    start = Path(config["model"]["path"]).parents[1] if config["model"]["path"] else path
    names = sorted(each.name.removesuffix(".npz") for each in (path / "evaluations").glob("heldout_??????.npz"))
    rows = RunFolder.open(path).read_metrics()
    trained = [row for row in rows if row["phase"] == "train"]
    term = next((key for key in trained[0] if key.startswith("term/") and not key.endswith("_contribution")), "")
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    alarms = [event["text"] for event in events if "rollout/truth_order" in event.get("text", "")]
    return Outcome(
        name=config["run"]["name"],
        before=[read_question(group) for group in load_groups(start / "evaluations", "heldout_000000")],
        after=[read_question(group) for group in load_groups(path / "evaluations", names[-1])],
        curve=[(row["step"], row["evaluate/success"]) for row in rows if row["phase"] == "evaluate"],
        terms={row["step"]: row[term] for row in trained} if term else {},
        alarm=int(alarms[0].split(":")[0].removeprefix("step ")) if alarms else None,
    )


def write_share(questions: Sequence[Question]) -> str:
    """Success over all attempts, with its Wilson interval."""
    right, total = sum(q.right for q in questions), sum(q.total for q in questions)
    low, high = compute_wilson_interval(right, total)
    return f"{right / total:6.1%} [{low:.1%}, {high:.1%}]"


def describe(name: str, outcomes: Sequence[Outcome]) -> str:
    """One line about the seeds of one reward in one world."""
    before = [q for outcome in outcomes for q in outcome.before]
    after = [q for outcome in outcomes for q in outcome.after]
    pairs = list(zip(before, after, strict=True))
    decided = [(was, now) for was, now in pairs if was.lead >= SETTLED]
    kept = sum(was.label == now.label for was, now in decided)
    error = statistics.fmean(abs(now.right / now.total - was.is_label_right) for was, now in decided)
    lost = [f"{o.alarm or 'none'} ({'none' if o.half is None else f'{o.half:.1f}'})" for o in outcomes]
    predicted = sum(q.is_label_right for q in before) / len(before)
    return (
        f"{name:28} seeds {len(outcomes)}  before {write_share(before)}  maj@{before[0].total} {predicted:.1%}  "
        f"after {write_share(after)}  decided {len(decided)}/{len(pairs)}: label kept {kept / len(decided):.1%}, "
        f"|pass@1 - maj| {error:.3f}  alarm at step (half of the fall): {', '.join(lost)}"
    )


def main() -> None:
    """Print one line per name."""
    by_name: dict[str, list[Outcome]] = defaultdict(list)
    for each in sys.argv[1:]:
        outcome = read_run(Path(each))
        by_name[outcome.name].append(outcome)
    if not by_name:
        print(__doc__, file=sys.stderr)
        raise SystemExit(2)
    for name, outcomes in by_name.items():
        print(describe(name, outcomes))
        for outcome in outcomes:
            curve = "  ".join(
                f"{step}: {success:.2f}" + (f", {outcome.terms[step]:.2f}" if step in outcome.terms else "")
                for step, success in outcome.curve
            )
            print(f"   step: success, term   {curve}   term at step 1: {outcome.terms.get(1, float('nan')):.2f}")


if __name__ == "__main__":
    main()
