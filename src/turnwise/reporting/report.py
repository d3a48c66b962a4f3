"""Write report.html: what a run did and why its success changed, in one file that needs no network.

Reads the run folder and nothing else, so that a report can be written again at any time, also without torch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from turnwise import __version__
from turnwise.config.shown import ShownRecipe, read_shown
from turnwise.pictures.store import open_pictures
from turnwise.reporting.badcases import draw_badcases, load_badcases
from turnwise.reporting.curriculum import draw_curriculum
from turnwise.reporting.examples import Batch, choose_examples, draw_example
from turnwise.reporting.installed import Reported, draw_installed
from turnwise.reporting.other_evaluations import draw_foreign, draw_sets
from turnwise.reporting.pictures import PictureDrawer
from turnwise.reporting.sections import (
    draw_curves,
    draw_failures,
    draw_headline,
    draw_results,
    draw_schedule,
    draw_time,
)
from turnwise.reporting.selection import draw_selection
from turnwise.reporting.style import NO_NETWORK, STYLE
from turnwise.reporting.summaries import Summary, is_control, load_summaries
from turnwise.store.run_folder import RunFolder, write_bytes_atomic
from turnwise.store.trajectories import load_arrays, load_rows

REPORT = "report.html"


def write_report(run: RunFolder) -> Path:
    """Write `report.html` into the run folder, atomically, and return its path.

    The report states whether a run is unfinished or was not evaluated. Raises ConfigError or StoreError naming the
    file if one in the folder is damaged."""
    recipe = read_shown(run.path / "config.json")
    metrics = run.read_metrics()
    summaries = load_summaries(run.path)
    drawer = PictureDrawer(open_pictures(run.path))
    batches = [_load_batch(run.path, summary, drawer) for summary in _first_and_last(summaries)]
    rows_by_label = [(batch.label, batch.rows) for batch in batches]
    sections = (
        ("results", "Held-out results", draw_results(summaries)),
        ("selection", "The checkpoint that was chosen", draw_selection(run.path)),
        ("sets", "Other sets of tasks", draw_sets(run.path)),
        ("foreign", "Other models on these tasks", draw_foreign(run.path, summaries)),
        ("curves", "Learning curves", draw_curves(metrics)),
        ("curriculum", "What was drawn", draw_curriculum(metrics)),
        ("schedule", "Asynchronous training", draw_schedule(metrics) if recipe.max_staleness else ""),
        ("changes", "What changed", _draw_examples(batches, recipe)),
        ("badcases", "Badcases", draw_badcases(run.path, load_badcases(run.path))),
        ("failures", "How trajectories ended", draw_failures(rows_by_label, metrics)),
        ("time", "Where the time went", draw_time(metrics, overlap=recipe.max_staleness > 0)),
    )
    end = ("config", "The run", _draw_run(run, recipe))
    reported = Reported(run=run, recipe=recipe, metrics=metrics, summaries=summaries)
    installed = draw_installed(reported, [name for name, _, _ in (*sections, end)])
    body = "".join(
        f'<section id="{name}"><h2>{title}</h2>{content}</section>'
        for name, title, content in (*sections, *installed, end)
        if content
    )
    steps = sum(row["phase"] == "train" for row in metrics)
    warmup_steps = sum(row["phase"] == "sft" and row["step"] > 0 for row in metrics)
    documents = sum(row["phase"] == "cpt" for row in metrics)
    pretrained = f"{documents} steps of continual pre-training, " if documents else ""
    about = (
        f"{escape(recipe.model)} in the environment {escape(recipe.environment)}: {pretrained}"
        f"{warmup_steps} warm-up steps, {steps} of {recipe.steps} RL steps, seed {recipe.seed}"
    )
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{NO_NETWORK}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(recipe.name)} · Turnwise</title><style>{STYLE}</style></head>"
        f"<body><main><header id=headline><h1>{escape(recipe.name)}</h1><p class=dim>{about}</p>"
        f"{draw_headline(summaries)}</header>{body}</main></body></html>\n"
    )
    path = run.path / REPORT
    # Text may hold half a surrogate pair, which UTF-8 cannot encode: it becomes "?".
    write_bytes_atomic(path, page.encode("utf-8", "replace"))
    return path


def _first_and_last(summaries: Sequence[Summary]) -> list[Summary]:
    """The first and the last evaluation without controls, or the only one."""
    plain = [summary for summary in summaries if not is_control(summary)]
    return [plain[0], plain[-1]] if len(plain) > 1 else plain


def _load_batch(run: Path, summary: Summary, drawer: PictureDrawer) -> Batch:
    folder, name = run / "evaluations", summary["name"]
    return Batch(label=summary["label"], rows=load_rows(folder, name), arrays=load_arrays(folder, name), drawer=drawer)


def _draw_examples(batches: Sequence[Batch], recipe: ShownRecipe) -> str:
    """Draw tasks that both evaluations have."""
    if len(batches) < 2:
        return '<p class="dim">Needs an evaluation before and one after training.</p>'
    before, after = batches
    chosen = choose_examples(before.rows, after.rows, recipe.examples)
    if not chosen:
        return '<p class="dim">No held-out task is in both evaluations (or report.examples is 0).</p>'
    intro = (
        "<p>The same held-out questions before and after training, as the model saw and wrote them. They are chosen to "
        "show what changed and are not a fair sample.</p>"
    )
    drawn = (draw_example(verdict, (old, before), (new, after)) for verdict, old, new in chosen)
    return intro + _draw_token_keys(recipe.mask_observations) + "".join(drawn)


def _draw_token_keys(mask_observations: bool) -> str:
    """Draw the legend of the token colours."""
    observations = "never trains" if mask_observations else "trained in this run"
    return (
        '<p class="tokenkeys"><span><span class="prompt">prompt</span> (never trains)</span>'
        '<span class="sampled"><i class="p0">sampled</i><i class="p2">by the</i><i class="p4">model</i> '
        "(stronger green: more probable; hover for numbers)</span>"
        f'<span><span class="observation">observation</span> ({observations})</span>'
        '<span><span class="forgotten">grey</span> (in no later context of the role)</span></p>'
    )


def _draw_run(run: RunFolder, recipe: ShownRecipe) -> str:
    text = json.dumps(recipe.table, indent=2, ensure_ascii=False)
    return (
        f"<p class=dim>Folder {escape(str(run.path))}, seed {recipe.seed}, report by Turnwise {__version__}.</p>"
        f"<details><summary>The resolved recipe</summary><pre>{escape(text)}</pre></details>"
    )
