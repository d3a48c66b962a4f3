"""`turnwise questions`: formal and inverted questions, graphs of a user's own passages, BrowseComp's published file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from turnwise_synthesis.browsecomp.effort import Point
    from turnwise_synthesis.shaper.scene import Scene

app = typer.Typer(help="Formal questions that are expanded, inverted questions, and their files.", no_args_is_help=True)

Seed = Annotated[int, typer.Option(min=0, help="Seed of the world and of the choices.")]
Entities = Annotated[int, typer.Option(min=12, max=1000, help="Entities of the generated world.")]
Graph = Annotated[Path | None, typer.Option(help="Graph of your own passages, from `graph`; needs --corpus.")]
Corpus = Annotated[Path | None, typer.Option(help="The passages of --graph.")]
Count = Annotated[int, typer.Option(min=1, help="Most questions.")]
TopK = Annotated[int, typer.Option(min=1, help="Passages that a search returns.")]
Output = Annotated[Path | None, typer.Option(help="New JSONL file of questions; default: print them.")]


@app.command()
def graph(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="JSONL or Parquet passages: id, title, text.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="New JSONL file of facts.")],
    api: Annotated[str, typer.Option(help="Root of an OpenAI- or Anthropic-style API, or `scripted`.")],
    model: Annotated[str, typer.Option(help="Name of the model behind --api.")] = "",
    dialect: Annotated[Literal["openai", "anthropic"], typer.Option(help="What the API speaks.")] = "openai",
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a reply.")] = 1024,
    max_concurrent: Annotated[int, typer.Option(min=1, help="Passages that are read at the same time.")] = 8,
) -> None:
    """Read passages with a model and write the facts that they state, each with its passages."""
    from turnwise_synthesis.runs.questions import extract_corpus

    refuse_existing(output)
    extracted = extract_corpus(
        corpus, api=api, model=model, dialect=dialect, max_tokens=max_tokens, max_concurrent=max_concurrent
    )
    from turnwise_synthesis.shaper.extraction import describe
    from turnwise_synthesis.shaper.graph_files import write_graph

    write_lines(output, write_graph(extracted.graph))
    typer.echo(describe(extracted.readings, extracted.fates))
    for line in extracted.named:
        typer.echo(line)


@app.command()
def expand(
    seed: Seed = 0,
    entities: Entities = 120,
    graph: Graph = None,
    corpus: Corpus = None,
    count: Count = 50,
    width: Annotated[int, typer.Option(min=1, max=3, help="Most conditions before the expansion.")] = 2,
    layers: Annotated[int, typer.Option(min=0, max=4, help="Expansions.")] = 2,
    strategy: Annotated[Literal["layer", "sequence", "random"], typer.Option(help="What is expanded.")] = "layer",
    top_k: TopK = 3,
    keep_flawed: Annotated[bool, typer.Option(help="Keep questions with a flaw.")] = False,
    output: Output = None,
) -> None:
    """Build formal questions and expand them layer by layer; flawed ones are dropped and counted."""
    from turnwise_synthesis.runs.questions import expand_scene

    refuse_existing(output)
    rows, counts = expand_scene(
        open_scene(seed, entities, graph, corpus),
        seed=seed,
        count=count,
        width=width,
        layers=layers,
        strategy=strategy,
        top_k=top_k,
        keep_flawed=keep_flawed,
    )
    show_rows(rows, counts, output)


@app.command()
def invert(
    seed: Seed = 0,
    entities: Entities = 400,
    graph: Graph = None,
    corpus: Corpus = None,
    count: Count = 50,
    distance: Annotated[int, typer.Option(min=1, max=2, help="Facts between the answer and named entities.")] = 2,
    min_candidates: Annotated[int, typer.Option(min=2, help="Fewest entities that each condition leaves.")] = 2,
    max_conditions: Annotated[int, typer.Option(min=2, max=6, help="Most conditions.")] = 4,
    top_k: TopK = 5,
    output: Output = None,
) -> None:
    """Invert facts: conditions that one entity alone satisfies. Every row carries a canary string."""
    from turnwise_synthesis.browsecomp.invert import Plan
    from turnwise_synthesis.runs.questions import invert_scene

    refuse_existing(output)
    plan = Plan(min_candidates=min_candidates, max_conditions=max_conditions, distance=distance)
    rows, counts = invert_scene(
        open_scene(seed, entities, graph, corpus), seed=seed, count=count, plan=plan, top_k=top_k
    )
    show_rows(rows, counts, output)


@app.command()
def decrypt(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV in BrowseComp's layout.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="New JSONL file of questions, for heldout_path.")],
) -> None:
    """Decrypt questions in BrowseComp's published layout. The rows keep their canary, so that none is trained on."""
    from turnwise_synthesis.browsecomp.published import read_published, to_question_row

    refuse_existing(output)
    found = read_published(file)
    write_lines(output, (json.dumps(to_question_row(row), ensure_ascii=False) for row in found.rows))
    typer.echo(f"{len(found.rows)} questions; {found.copies} copies left out")


@app.command()
def encrypt(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSONL questions with a canary, as `invert` writes.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="New CSV file.")],
) -> None:
    """Write questions in BrowseComp's published layout, encrypted with their canaries."""
    from turnwise_synthesis.browsecomp.published import write_published
    from turnwise_synthesis.runs.questions import load_published_rows

    refuse_existing(output)
    rows = load_published_rows(file)
    output.write_text(write_published(rows), encoding="utf-8", newline="")
    typer.echo(f"{len(rows)} questions")


@app.command()
def canaries(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSONL, JSON or Parquet files.")],
) -> None:
    """Find rows that must not be trained on. Exits with 1 if there are any."""
    from turnwise_synthesis.runs.questions import find_canaries

    found = [line for file in files for line in find_canaries(file)]
    for line in found:
        typer.echo(line)
    typer.echo(f"{len(found)} rows with a canary in {len(files)} files")
    raise typer.Exit(1 if found else 0)


@app.command()
def effort(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    evaluation: Annotated[str, typer.Option(help="Name of an evaluation; default: the last one.")] = "",
    bin_size: Annotated[int, typer.Option(min=1, help="Answers per bin of the calibration error.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show success against effort, by votes, by confidence and at random, and the calibration error."""
    from turnwise_synthesis.runs.questions import measure_effort

    measured = measure_effort(run, evaluation, bin_size=bin_size)
    if as_json:
        typer.echo(json.dumps(measured.to_json(), indent=1))
        return
    typer.echo(f"{measured.evaluation}: {measured.questions} questions, {measured.invalid} invalid attempts left out")
    for point in (*measured.ways, *measured.budgets):
        typer.echo(describe_point(point))
    typer.echo(measured.describe_calibration())


def describe_point(point: Point) -> str:
    """One point in one line."""
    return (
        f"{point.way:<24} {point.attempts:>3}: {point.success:.3f} [{point.low:.3f}, {point.high:.3f}], "
        f"{point.searches:.1f} searches"
    )


def open_scene(seed: int, entities: int, graph: Path | None, corpus: Path | None) -> Scene:
    """The generated world of the seed, or the user's graph with its passages. Raises ConfigError for one without the
    other."""
    from turnwise_synthesis.runs.questions import load_scene
    from turnwise_synthesis.shaper.scene import build_world_scene

    if graph is None and corpus is None:
        return build_world_scene("heldout", seed, num_entities=entities, num_words=64, num_distractors=0)
    return load_scene(graph, corpus)


def show_rows(rows: list[dict[str, Any]], counts: dict[str, int], output: Path | None) -> None:
    """Write or print the questions, then the counts."""
    if output is not None:
        write_lines(output, (json.dumps(row, ensure_ascii=False) for row in rows))
    else:
        for number, row in enumerate(rows, 1):
            flaws = f"  [{'; '.join(row['flaws'])}]" if row.get("flaws") else ""
            typer.echo(f"{number:>3} {row['question']}  = {row['answers'][0]}{flaws}")
    typer.echo(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a new file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def refuse_existing(path: Path | None) -> None:
    """Raise ConfigError if the file to write exists, or its folder does not."""
    from turnwise.core.errors import ConfigError

    if path is not None and path.exists():
        raise ConfigError(f"{path} exists; name a new file")
    if path is not None and not path.parent.is_dir():
        raise ConfigError(f"{path.parent} is no folder; make it first")
