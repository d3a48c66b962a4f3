"""`turnwise data`: tasks and trajectories in other projects' formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from turnwise.core.errors import ConfigError

app = typer.Typer(name="data", help="Convert tasks and trajectories from and to other formats.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Batches = Annotated[
    list[str] | None,
    typer.Option("--batch", help="Evaluation or training step, such as heldout_000060 or step_000012; default: all."),
]


@app.command()
def convert(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="Input: a .jsonl or .parquet file, or a folder (harbor).")
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Output: a .jsonl or .parquet file, or a new folder.")],
    source_format: Annotated[
        str, typer.Option("--from", help="Format of the input: turnwise, verl, trl, skyrl, or harbor (turnwise-swe).")
    ],
    target_format: Annotated[
        str, typer.Option("--to", help="Format of the output: turnwise, verl, trl, skyrl, or harbor (turnwise-swe).")
    ],
    columns: Annotated[
        list[str] | None,
        typer.Option("--set", help="Add a column with a constant value to every row, for example env_class=gsm8k."),
    ] = None,
    drop: Annotated[list[str] | None, typer.Option("--drop", help="Remove a column from every row.")] = None,
) -> None:
    """Convert tasks from one layout to another."""
    from turnwise.config.load import parse_value
    from turnwise.exchange.convert import convert as run_convert

    values: dict[str, Any] = {}
    for item in columns or []:
        name, separator, value = item.partition("=")
        if not separator or not name:
            raise ConfigError(f"--set {item!r} is not of the form column=value")
        values[name] = parse_value(value)
    count = run_convert(
        source, target, source_format=source_format, target_format=target_format, columns=values, drop=drop or ()
    )
    print(f"{count} tasks written to {target}")


@app.command()
def accept(run: Run) -> None:
    """Let a run continue with data files that were changed since it began."""
    from turnwise.runs.data_files import accept_data_files

    changes = accept_data_files(run)
    print("\n".join(changes) if changes else f"the data files of {run} are the same as when it started")


@app.command()
def sft(
    run: Run,
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Output: a .jsonl or .parquet file.")],
    batches: Batches = None,
    min_reward: Annotated[float | None, typer.Option(help="Skip trajectories with a lower reward.")] = None,
    pictures: Annotated[
        str, typer.Option(help="How pictures are written: data (data URLs) or paths (the run's files).")
    ] = "data",
) -> None:
    """Write a run's trajectories as rows of messages and tools for supervised fine-tuning."""
    from turnwise.runs.transcripts import export_sft

    if pictures not in ("data", "paths"):
        raise ConfigError(f"--pictures {pictures}: give data or paths")
    kept, left_out = export_sft(run, target, names=batches or [], min_reward=min_reward, pictures=pictures)  # type: ignore[arg-type]
    print(f"{kept} conversations written to {target}, {left_out} skipped")


@app.command()
def transcripts(
    run: Run,
    to: Annotated[Path, typer.Option(help="Folder for the logs.")],
    batches: Batches = None,
) -> None:
    """Write a run's transcripts as logs for `inspect view --log-dir DIR`."""
    from turnwise.runs.transcripts import export_inspect

    for path in export_inspect(run, to, names=batches or []):
        print(path)
