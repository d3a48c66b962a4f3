"""`turnwise synthesize`: documents for continual pre-training, and a look at them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from turnwise.config.run import RunConfig
    from turnwise_synthesis.documents.ledger import Ledger

app = typer.Typer(help="Make documents for continual pre-training, and look at them.", no_args_is_help=True)

Source = Annotated[
    list[str],
    typer.Argument(
        metavar="CORPUS | RECIPE... [a.b=value ...]",
        help="A corpus with questions (JSONL or Parquet), or recipe files and overrides.",
    ),
]
Out = Annotated[Path, typer.Option(help="File of the documents; what was dropped is written beside it.")]
Items = Annotated[int, typer.Option(min=1, help="Number of training tasks, questions or stored conversations.")]
First = Annotated[int, typer.Option(min=0, help="First training task; RL and demonstrations use those before it.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of drafts and of orders.")]
Heldout = Annotated[int, typer.Option(min=0, help="Held-out tasks whose entities no document may name.")]


@app.command()
def fas(
    source: Source,
    out: Out,
    writer: Annotated[
        str, typer.Option(help="Who writes: scripted:POLICY, run:RUN, model:NAME or api:URL#MODEL.")
    ] = "scripted:oracle",
    items: Items = 1000,
    first: First = 1_000_000,
    tries: Annotated[int, typer.Option(min=1, help="Drafts per item and kind.")] = 1,
    kind: Annotated[Literal["plan", "reason", "both"], typer.Option(help="Kinds of documents.")] = "both",
    seed: Seed = 0,
    heldout: Heldout = 200,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of one draft.")] = 160,
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature of the writer.")] = 0.7,
    device: Annotated[str | None, typer.Option(help="Device of the writer: auto, cpu or cuda.")] = None,
) -> None:
    """Write first-order actions: the first search on a question, and the way from passages to the answer."""
    from turnwise_synthesis.runs.synthesis import Synthesis, synthesize_first_order

    plan = Synthesis(
        source=_read_source(source),
        writer=writer,
        num_items=items,
        first=first,
        tries=tries,
        seed=seed,
        heldout=heldout,
        max_tokens=max_tokens,
        temperature=temperature,
        device=device,
    )
    _print(synthesize_first_order(plan, ("plan", "reason") if kind == "both" else (kind,), out), out)


@app.command()
def has(
    source: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE... [a.b=value ...]]", help="Recipe files and overrides.")
    ] = None,
    out: Out = Path("has.jsonl"),
    run: Annotated[Path | None, typer.Option(help="A run whose stored training trajectories are told.")] = None,
    policies: Annotated[
        str, typer.Option(help="Scripted policies that play (without --run) and propose alternatives.")
    ] = "oracle,naive,random",
    plain: Annotated[bool, typer.Option(help="Write the same trajectories as they are: the control.")] = False,
    alternatives: Annotated[int, typer.Option(min=1, help="Most alternatives of one step.")] = 2,
    items: Items = 1000,
    first: First = 1_000_000,
    seed: Seed = 0,
    heldout: Heldout = 200,
) -> None:
    """Write higher-order actions: the steps of trajectories as choices, with the outcome at the end."""
    from turnwise.core.errors import ConfigError
    from turnwise_synthesis.runs.synthesis import Synthesis, synthesize_choices

    if (run is None) == (not source):
        raise ConfigError("name either a recipe, whose scripted policies play, or a run with --run")
    plan = Synthesis(
        source=Path() if run is not None else _read_source(source or []),
        writer="",
        num_items=items,
        first=first,
        seed=seed,
        heldout=heldout,
    )
    names = [name.strip() for name in policies.split(",") if name.strip()]
    _print(synthesize_choices(plan, run, names, out, alternatives=alternatives, plain=plain), out)


@app.command()
def show(
    documents: Annotated[
        Path, typer.Argument(metavar="DOCUMENTS", help="A file of documents, or of what was dropped.")
    ],
    kind: Annotated[str, typer.Option(help='Only ids of this kind ("plan", "reason", "has", ...).')] = "",
    count: Annotated[int, typer.Option(min=1, help="Number of documents per kind.")] = 50,
    seed: Seed = 0,
) -> None:
    """Print documents drawn at random, to be read by eye."""
    from turnwise_synthesis.documents.show import draw_documents

    for line in draw_documents(documents, kind=kind, count=count, seed=seed):
        print(line)


def _read_source(arguments: list[str]) -> Path | RunConfig:
    from turnwise.cli.recipe import split_recipe
    from turnwise.config.load import load_config
    from turnwise.environments.data_rows import ENDINGS

    files, overrides = split_recipe(arguments)
    if len(files) == 1 and files[0].suffix in ENDINGS and not overrides:
        return files[0]
    return load_config(files, overrides)


def _print(ledger: Ledger, out: Path) -> None:
    from turnwise_synthesis.runs.synthesis import name_ledger

    for line in ledger.describe():
        print(line)
    if text := ledger.describe_million():
        print(text)
    print(f"documents  {out}")
    print(f"dropped    {name_ledger(out)}")
