"""`turnwise reward-model`: train reward models on a run's attempts, evaluate them, and choose answers with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from turnwise_rewards.reward_models.calibration import Quality
    from turnwise_rewards.reward_models.selection import Rated

app = typer.Typer(help="Outcome and process reward models of a run's policy.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Step = Annotated[
    str | None, typer.Option(help="RL step of the checkpoint, best (held-out) or latest; default: latest.")
]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda; default: the run's device.")]
Stored = Annotated[bool, typer.Option(help="Label what the run has stored, instead of sampling.")]
Tasks = Annotated[int, typer.Option(min=1, help="Training tasks to sample.")]
Attempts = Annotated[int, typer.Option(min=1, help="Attempts per task.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def train(
    run: Run,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="New folder for the model.")],
    labels: Annotated[
        Literal["outcome", "soft", "hard", "returns", "quality", "progress"],
        typer.Option(help="outcome: of whole attempts. The others label every step."),
    ] = "soft",
    stored: Stored = False,
    tasks: Tasks = 200,
    attempts: Attempts = 4,
    continuations: Annotated[int, typer.Option(min=1, help="Continuations per state: soft, hard, quality.")] = 4,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 300,
    batch: Annotated[int, typer.Option(min=1, help="Attempts per optimizer step.")] = 32,
    lr: Annotated[float, typer.Option(min=1e-9, help="Learning rate, which falls linearly to 0.")] = 1e-3,
    step: Step = None,
    device: Device = None,
) -> None:
    """Train a reward model, which starts as a copy of the run's policy."""
    from turnwise_rewards.runs.reward_models import TrainingPlan, train_reward_model

    plan = TrainingPlan(
        labels=labels,
        stored=stored,
        tasks=tasks,
        attempts=attempts,
        continuations=continuations,
        steps=steps,
        batch=batch,
        lr=lr,
    )
    train_reward_model(run, out, plan, show=typer.echo, step=step, device=device)


@app.command()
def questions(
    run: Run,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="New JSONL file; a tenth goes to FILE.heldout.jsonl.")],
    labels: Annotated[
        Literal["outcome", "soft", "hard", "returns", "quality", "progress"],
        typer.Option(help="A label of 0.5 or more makes a step right."),
    ] = "progress",
    stored: Stored = False,
    tasks: Tasks = 200,
    attempts: Attempts = 4,
    continuations: Annotated[int, typer.Option(min=1, help="Continuations per state.")] = 4,
    window: Annotated[int, typer.Option(min=0, help="Messages before the reply; 0: all.")] = 0,
    step: Step = None,
    device: Device = None,
) -> None:
    """Write labelled steps as questions with known verdicts, on which a judge of steps can be trained."""
    from turnwise_rewards.runs.reward_models import TrainingPlan, export_questions

    plan = TrainingPlan(labels=labels, stored=stored, tasks=tasks, attempts=attempts, continuations=continuations)
    for path, count in export_questions(run, out, plan, window=window, step=step, device=device).items():
        print(f"{count:,} questions: {path}")


@app.command()
def evaluate(
    run: Run,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder of a reward model.")],
    tasks: Annotated[int, typer.Option(min=1, help="Held-out tasks.")] = 100,
    attempts: Attempts = 4,
    step: Step = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Compare a model's scores with the outcomes of held-out attempts: AUC, Brier score, calibration."""
    from turnwise_rewards.runs.reward_models import evaluate_reward_model

    evaluation = evaluate_reward_model(run, model, tasks=tasks, attempts=attempts, step=step, device=device)
    if as_json:
        print(json.dumps(evaluation.to_json(), indent=1))
        return
    print(f"{evaluation.attempts} attempts, {evaluation.success:.1%} right")
    for name, quality in (("whole attempts", evaluation.ends), ("turns before the last", evaluation.turns)):
        if quality is not None:
            for line in describe_quality(name, quality):
                print(line)


@app.command("best-of")
def best_of(
    run: Run,
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Folders of reward models.")],
    tasks: Annotated[int, typer.Option(min=1, help="Held-out tasks.")] = 100,
    attempts: Annotated[int, typer.Option(min=1, help="Most attempts per task; 1, 2, 4, ... are rated.")] = 8,
    step: Step = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Choose one of n attempts at held-out tasks by each model, beside the majority, random scores and an oracle."""
    from turnwise_rewards.runs.reward_models import rate_best_of

    counts = [1 << power for power in range(attempts.bit_length() - 1)] + [attempts]
    rated = rate_best_of(run, models, tasks=tasks, attempts=counts, step=step, device=device)
    if as_json:
        print(
            json.dumps([{**asdict(each), "share": each.share, "interval": each.interval} for each in rated], indent=1)
        )
        return
    for line in describe_rated(rated):
        print(line)


def describe_quality(name: str, quality: Quality) -> Iterator[str]:
    """The measures in a line, then a line per bin of scores."""
    auc = "none" if quality.auc is None else f"{quality.auc:.3f}"
    yield (
        f"{name}: AUC {auc}, Brier {quality.brier:.3f}, calibration error {quality.calibration_error:.3f}, "
        f"{quality.count} scores"
    )
    for each in quality.bins:
        yield (
            f"  scored {each.score:.2f}: {each.right:.2f} right [{each.low:.2f}, {each.high:.2f}] of {each.count}"
            f"  {'#' * round(20 * each.right)}"
        )


def describe_rated(rated: list[Rated]) -> Iterator[str]:
    """A line per way to choose: its share of right answers at each number of attempts, the last with its interval."""
    names = list(dict.fromkeys(each.name for each in rated))
    counts = list(dict.fromkeys(each.attempts for each in rated))
    width = max(map(len, names))
    yield f"{'right answers among n attempts':<{width}}" + "".join(f"{count:>8}" for count in counts)
    for name in names:
        row = [each for each in rated if each.name == name]
        low, high = row[-1].interval
        yield f"{name:<{width}}" + "".join(f"{each.share:>8.3f}" for each in row) + f"  [{low:.3f}, {high:.3f}]"
