"""`turnwise`: the command line. Commands import torch when they run, so that help answers at once."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from turnwise import __version__
from turnwise.cli import algorithms, check, data, extensions, models, new, recipes, sandbox
from turnwise.cli.audit import audit
from turnwise.cli.badcases import badcases
from turnwise.cli.card import card
from turnwise.cli.compare import compare
from turnwise.cli.diagnose import diagnose
from turnwise.cli.interrupts import end_as_interrupted, keep_interrupts
from turnwise.cli.mcp import mcp
from turnwise.cli.plan import plan
from turnwise.cli.recipe import check_flags, split_recipe
from turnwise.cli.reference import metrics, options
from turnwise.cli.serve import serve
from turnwise.cli.track import track
from turnwise.config.values import expand_home
from turnwise.core.errors import ConfigError, DataError, TurnwiseError

if TYPE_CHECKING:
    from turnwise.config.run import RunConfig
    from turnwise.runs.continuing import Continuation


class Stopped(Exception):
    """Raised on Ctrl-C. The message says what is kept and how to continue."""


FIRST = (
    *("train", "sft", "evaluate", "compare", "ask", "report", "diagnose", "badcases"),
    *("export", "audit", "tasks", "options", "metrics", "doctor"),
)
"""Commands that the help lists first, as a run needs them; the others follow."""


class Commands(TyperGroup):
    """The commands, those of installed packages last. Raises `Stopped` on Ctrl-C, before typer ends the process
    without a message."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every command name, for the help."""
        own = sorted(super().list_commands(ctx), key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
        return [*own, *extensions.list_commands(own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command with a name; None if there is none."""
        return super().get_command(ctx, cmd_name) or extensions.find_command(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that was called, and its arguments."""
        if args and args[0] in self.commands:
            extensions.warn_of_taken(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped("stopped; everything written so far is kept") from None


app = typer.Typer(
    name="turnwise",
    cls=Commands,
    help="Agentic RL: train LLM agents with reinforcement learning on multi-turn tool use.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(algorithms.app, name="algorithms")
app.add_typer(check.app, name="check")
app.add_typer(models.app, name="models")
app.add_typer(new.app, name="new")
app.add_typer(recipes.app, name="recipes")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(data.app, name="data")
app.command()(audit)
app.command()(compare)
app.command()(badcases)
app.command()(diagnose)
app.command()(card)
app.command()(models.export)
app.command()(mcp)
app.command()(metrics)
app.command(context_settings={"ignore_unknown_options": True})(options)  # other libraries' option names begin with --
app.command()(plan)
app.command()(serve)
app.command()(track)

Recipe = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILES... [a.b=value ...]",
        help="Recipe files, merged left to right, then overrides. a.b=1 sets one option; a.b={...} replaces the whole "
        "table (evaluate.controls={} empties it).",
    ),
]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda; default: the run's device.")]
UntilSure = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE|RUN[@STEP]|FILE",
        help="Stop as soon as it is known whether success is above or below this share, or this evaluation on the same "
        "tasks; wrong in at most 5% of cases (docs/evaluation.md).",
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def main() -> None:
    """Run the command line; an error prints one message instead of a traceback, unless `--debug` is given."""
    arguments = [_expand_home(a) for a in sys.argv[1:] if a != "--debug"]
    keep_interrupts()
    end_as_interrupted()
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a recipe may name a module beside it; such a module hides no installed one
    try:
        if arguments[:1] in (["train"], ["sft"]):
            check_flags(arguments[1:])
        app(args=arguments, standalone_mode=True)
    except KeyboardInterrupt:  # while the command was looked up
        print("stopped before anything was done", file=sys.stderr)
        raise SystemExit(130) from None
    except (TurnwiseError, Stopped, MemoryError) as error:
        if len(arguments) < len(sys.argv) - 1:
            raise
        from turnwise.reporting.transcript import clean_for_terminal

        message, code = explain(error)
        print(clean_for_terminal(message), file=sys.stderr)
        raise SystemExit(code) from None


def _expand_home(argument: str) -> str:
    """The argument with the home folder in place of a leading `~`, also in `--option=~/path`, which a shell does not
    expand."""
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    return option + equals + str(expand_home(value))


def explain(error: TurnwiseError | Stopped | MemoryError) -> tuple[str, int]:
    """Return the message for the user and the exit code: 130 after Ctrl-C, else 2."""
    if isinstance(error, Stopped):
        return str(error), 130
    if isinstance(error, MemoryError):
        return "error: out of memory; lower engine.max_concurrency, engine.max_context or train.micro_batch_tokens", 2
    return f"error: {error}", 2


def _version(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Declare the options before the command; `main` reads `--debug` anywhere."""


def _load(arguments: list[str] | None) -> RunConfig:
    from turnwise.config.load import load_config

    files, overrides = split_recipe(arguments)
    if not files and not overrides:
        raise ConfigError(
            "no recipe given; for example `turnwise train recipes/search_r1/tiny.toml`, or options alone: `turnwise "
            "train environment.name=countdown`"
        )
    return load_config(files, overrides)


@app.command()
def train(
    recipe: Recipe = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN|auto",
            help="Continue this run folder with its own recipe; overrides may set the options that can still change "
            '(docs/runs.md). "auto": continue the newest run with the recipe\'s name and seed, or start one.',
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(help="With --resume: seconds to wait while another process is writing to the run.", min=0)
    ] = 0.0,
    device: Annotated[
        str | None, typer.Option(help="With --resume: continue on auto, cpu or cuda instead of the run's device.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="With --resume: continue on this many ranks instead of the run's number.", min=1)
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="With --resume: if the run is damaged, go back to the last checkpoint that can be verified.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the resolved recipe and the plan for tokens and memory, run every start-up check, and write "
            "nothing.",
        ),
    ] = False,
) -> None:
    """Warm up, train with RL, evaluate before and after, write the report."""
    config, continuation = _read_start(recipe, resume, device=device, ranks=ranks, wait_s=wait, repair=repair)
    if dry_run:
        from turnwise.runs.rehearsal import describe_checks, read_rehearsed, rehearse_train

        rehearsed, is_new = read_rehearsed(config, continuation)
        fitted = _print_plan(rehearsed, is_new=is_new)
        for line in describe_checks(rehearse_train(config, resume=continuation)):
            print(line)
        print(f"{'time per RL step, at most':<31} {_predict_time(fitted)}")
        print("nothing was written; run the same command without --dry-run to start")
        return
    begun: list[Path] = []

    def announce(run: Path, config: RunConfig) -> None:
        begun.append(run)
        print(f"run folder  {run}", flush=True)
        _print_memory(config)

    try:
        from turnwise.runs.train import run_train

        _print_results(run_train(config, resume=continuation, display=True, announce=announce))
    except KeyboardInterrupt:
        kept = [run for run in begun if run.exists()]
        remedy = f"; continue with `turnwise train --resume {kept[0]}`" if kept else ", nothing was written yet"
        raise Stopped(f"stopped{remedy}") from None


def _read_start(
    recipe: list[str] | None, resume: str | None, *, device: str | None, ranks: int | None, wait_s: float, repair: bool
) -> tuple[RunConfig | None, Continuation | None]:
    """The recipe to train by (None: that of a run folder), and how to continue a run (None: a new one)."""
    if resume is None:
        if device is not None:
            raise ConfigError(f"--device {device} needs --resume; for a new run use model.device={device}")
        if ranks is not None:
            raise ConfigError(f"--ranks {ranks} needs --resume; for a new run use train.ranks={ranks}")
        if wait_s or repair:
            flag = "--repair" if repair else "--wait"
            raise ConfigError(f"{flag} needs a run to resume; name it: --resume RUN")
        return _load(recipe), None
    from turnwise.runs.continuing import AUTO, Continuation

    files, overrides = split_recipe(recipe)
    how = Continuation(run=AUTO, device=device, ranks=ranks, wait_s=wait_s, repair=repair)
    if resume == AUTO:
        return _load(recipe), how
    if files:
        raise ConfigError(
            f"--resume {resume} continues a run with its own recipe and cannot be combined with {files[0]}; set "
            "options that may change as a.b=value, or continue the newest run of a recipe with --resume auto"
        )
    return None, replace(how, run=Path(resume), overrides=overrides)


@app.command()
def sft(recipe: Recipe = None) -> None:
    """Run only the supervised warm-up and its evaluation."""
    config = _load(recipe)
    from turnwise.runs.sft import run_sft

    _print_results(run_sft(config, display=True))


@app.command()
def evaluate(
    run: RunPath,
    tasks: Annotated[int | None, typer.Option(min=1, help="Number of held-out tasks; default: the recipe's.")] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Attempts per task, for mean@k and pass@k; default: the recipe's.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Sampling temperature; 0 is greedy; default: the recipe's.")
    ] = None,
    step: Annotated[
        str | None, typer.Option(help="RL step of the checkpoint, best (held-out) or latest; default: latest.")
    ] = None,
    device: Device = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change one entry of environment.args, for example search=off.")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="An agent that plays the tasks: a function of a task, a base URL and an API key (docs/gateway.md).",
        ),
    ] = None,
    command: Annotated[
        str | None, typer.Option(help="A program that plays the tasks, instead of a function (docs/gateway.md).")
    ] = None,
    until_sure: UntilSure = None,
    on: Annotated[
        str,
        typer.Option(
            metavar="SET",
            help="A set of evaluate.sets, selection, or an environment family, whose arguments are those of --set.",
        ),
    ] = "",
    model: Annotated[
        str | None,
        typer.Option(metavar="URL#MODEL", help="A model behind an OpenAI-style API that plays the tasks instead."),
    ] = None,
    prompt_price: Annotated[
        float, typer.Option(min=0, help="Price of a million tokens that --model reads, in any currency.")
    ] = 0.0,
    reply_price: Annotated[float, typer.Option(min=0, help="Price of a million tokens that --model writes.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate a trained run again on held-out tasks."""
    from turnwise.reporting.console import Display
    from turnwise.runs.agents import find_agent
    from turnwise.runs.evaluate import run_evaluate
    from turnwise.runs.foreign import ForeignModel

    if model is not None and (agent is not None or command is not None):
        raise ConfigError("--model plays the tasks itself, and so does --agent or --command; give one of them")
    foreign = None
    if model is not None:
        foreign = ForeignModel(address=model, prompt_price=prompt_price, reply_price=reply_price)
    try:
        summary = run_evaluate(
            run,
            tasks=tasks,
            samples=samples,
            temperature=temperature,
            changes=_read_changes(change or []),
            step=step,
            device=device,
            agent=find_agent(agent, command),
            until_sure=until_sure,
            foreign=foreign,
            on=on,
            tell=Display(total_steps=0, title="").note,
        ).to_json()
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped before every task was played; this evaluation is not stored, and earlier ones of {run} are "
            "unchanged"
        ) from None
    if as_json:
        print(json.dumps(summary, indent=1))
    else:
        _print_evaluation(run, summary, is_foreign=foreign is not None)


def _print_evaluation(run: Path, summary: dict[str, Any], *, is_foreign: bool) -> None:
    """Print the results of `turnwise evaluate`, and what it was asked besides."""
    from turnwise.reporting.console import print_table, results_table
    from turnwise.reporting.other_evaluations import describe_foreign, load_foreign
    from turnwise.reporting.summaries import describe_decision

    print_table(results_table([summary]))
    if summary["decision"] is not None:
        print(describe_decision(summary["decision"]))
    if is_foreign:
        print(describe_foreign(load_foreign(run, str(summary["name"]))))


def _read_changes(items: list[str]) -> dict[str, Any]:
    """Return the changes of `environment.args` that `--set` gives. Raises ConfigError for one without a value."""
    from turnwise.config.load import parse_value

    changes: dict[str, Any] = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator:
            raise ConfigError(f"--set {item!r} is not of the form key=value")
        changes[key] = parse_value(value)
    return changes


@app.command()
def ask(
    run: RunPath,
    question: Annotated[str | None, typer.Argument(help="Your question; default: the held-out task's.")] = None,
    task: Annotated[
        int,
        typer.Option(
            min=0, help="Index of the held-out task whose world is used (and whose question, if you pass none)."
        ),
    ] = 0,
    step: Annotated[
        str | None,
        typer.Option(
            help="RL step of the checkpoint, 0 for the start of RL, best (held-out) or latest; default: latest."
        ),
    ] = None,
    device: Device = None,
) -> None:
    """Ask a trained agent a question and watch it use its tools."""
    from turnwise.reporting.transcript import wants_colour
    from turnwise.runs.ask import run_ask

    colour = wants_colour(sys.stdout.isatty(), os.environ)
    run_ask(run, question=question, index=task, show=print, step=step, device=device, colour=colour)


@app.command()
def report(run: RunPath) -> None:
    """Write report.html of a run again."""
    from turnwise.reporting.report import write_report
    from turnwise.store.run_folder import RunFolder

    print(write_report(RunFolder.open(run)))


@app.command()
def tasks(
    recipe: Recipe = None,
    split: Annotated[str, typer.Option(help="Split of the tasks: train or heldout.")] = "heldout",
    count: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 5,
    export: Annotated[Path | None, typer.Option(help="Write JSONL to this file instead of printing the tasks.")] = None,
) -> None:
    """Print or export tasks of a recipe's environment."""
    if split not in ("train", "heldout"):
        raise ConfigError(f"--split is {split!r}; it must be train or heldout")
    config = _load(recipe)
    from turnwise.runs.tasks import iterate_tasks

    rows = iterate_tasks(config, split, count, with_pictures=export is not None)  # type: ignore[arg-type]
    if export is None:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False, indent=1))
        return
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    try:
        export.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as cause:
        raise DataError(f"cannot write {export}: {cause.strerror}; name a file in an existing folder") from cause
    print(f"{len(lines)} tasks written to {export}")


@app.command()
def doctor(
    model: Annotated[
        str | None, typer.Argument(help="A model folder or name: show how it would be computed on this machine.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Number format to check the model in.")] = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what this machine offers, or which path a model takes and why."""
    from turnwise.cli.doctor import examine, examine_model

    findings = examine() if model is None else examine_model(model, dtype)
    if as_json:
        print(json.dumps(findings, indent=1))
        return
    width = max(len(name) for name in findings)
    for name, value in findings.items():
        print(f"{name:<{width}}  {value}")


def _print_plan(config: RunConfig, *, is_new: bool) -> RunConfig:
    """Print the resolved recipe, fitted to this machine, and its plan; returns it.

    Raises ConfigError after printing if a new run does not fit this machine.
    """
    from turnwise.building.checks import check_recipe
    from turnwise.building.forecasting import read_forecast_settings
    from turnwise.building.sizes import measure_recipe
    from turnwise.config.load import dump_resolved
    from turnwise.forecast.plan import compute_plan
    from turnwise.models.build import describe_device
    from turnwise.runs.build import find_device, fit_to_machine

    resolved = check_recipe(config)
    device = find_device(config)
    refusal = None
    if is_new:
        try:
            resolved = fit_to_machine(resolved)
        except ConfigError as error:
            refusal = error
    config = resolved.config
    print(json.dumps(dump_resolved(config), indent=1))
    print(f"{'device':<31} {describe_device(device)}")
    shapes = measure_recipe(config, resolved.copies)
    plan = compute_plan(read_forecast_settings(resolved), shapes=shapes, device=device.type)
    for label, text in plan.lines():
        print(f"{label:<31} {text}")
    if refusal is not None:
        raise refusal
    return config


def _predict_time(config: RunConfig) -> str:
    """Predict the seconds of an RL step, after measuring the machine for a second or two."""
    from turnwise.building.forecasting import read_forecast_settings
    from turnwise.building.resolved import resolve
    from turnwise.forecast.timing import plan_time
    from turnwise.models.calibration import measure_speed
    from turnwise.models.shape import read_policy_shape
    from turnwise.runs.build import find_device

    shape = read_policy_shape(config.model, vocab_size=config.tokenizer.vocab_size)
    if shape is None:
        return "unknown until the model is loaded"
    rows = min(config.engine.max_concurrency, config.rollout.tasks_per_step * config.rollout.group_size)
    speed = measure_speed(
        shape,
        rows=rows,
        dtype=config.model.dtype,
        device=find_device(config),
        training_threads=config.train.num_threads,
        sampling_threads=config.engine.num_threads,
    )
    seconds = plan_time(read_forecast_settings(resolve(config)), speed)
    assert seconds is not None
    return (
        f"about {seconds.sampling:,.1f} s sampling and {seconds.training:,.1f} s training, without tools "
        f"({speed.sampling / 1e9:,.0f} and {speed.training / 1e9:,.0f} GFLOP/s measured; docs/models.md has the error)"
    )


def _print_memory(config: RunConfig) -> None:
    """Print the predicted peak of memory in one line."""
    from turnwise.building.forecasting import read_forecast_settings
    from turnwise.building.resolved import resolve
    from turnwise.building.sizes import measure_recipe
    from turnwise.forecast.plan import compute_plan
    from turnwise.runs.build import find_device

    device = find_device(config)
    resolved = resolve(config)
    shapes = measure_recipe(config, resolved.copies)
    plan = compute_plan(read_forecast_settings(resolved), shapes=shapes, device=device.type)
    label, text = plan.memory_lines()[-1]
    print(f"{label} on {device.type}: {text}")


def _print_results(run: Path) -> None:
    """Print the table of evaluations and the paths of the run folder and of the report."""
    from turnwise.reporting.console import print_table, results_table
    from turnwise.reporting.selection import read_selection
    from turnwise.reporting.summaries import describe_best, describe_declines, load_summaries

    summaries = load_summaries(run)
    if summaries:
        print_table(results_table(summaries))
    for text in (describe_declines(summaries), describe_best(summaries), read_selection(run)):
        if text:
            print(text)
    print(f"run folder  {run}")
    print(f"report      {run / 'report.html'}")


if __name__ == "__main__":
    main()
