"""`turnwise bugs`: plant bugs in real repositories, check them, and show what was kept and dropped."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.core.errors import ConfigError, TurnwiseError

if TYPE_CHECKING:
    from turnwise.synthesis.bugs.ledger import Ledger

app = typer.Typer(help="Bugs for real repositories, found by their own tests.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="JSONL of instances that `bugs make` wrote.")]


def ledger_path(file: Path) -> Path:
    """`bugs.ledger.jsonl` beside `bugs.jsonl`."""
    return file.with_name(f"{file.stem}.ledger.jsonl")


@app.command()
def make(
    repositories: Annotated[
        list[str], typer.Argument(metavar="NAME==VERSION...", help="Repositories that `turnwise repos list` shows.")
    ],
    out: Annotated[Path, typer.Option(help="JSONL that instances are appended to; its ledger lies beside it.")],
    num: Annotated[int, typer.Option(min=1, help="Instances per repository.")] = 100,
    seed: Annotated[int, typer.Option(help="Decides which edits are tried, in which order.")] = 0,
    kinds: Annotated[
        str, typer.Option(help="Kinds of edits, separated by commas; modifiers, slips and all are groups.")
    ] = "all",
    combined: Annotated[int, typer.Option(min=0, help="Combinations of kept bugs per repository.")] = 0,
    slots: Annotated[int, typer.Option(min=1, help="Programs at a time.")] = 2,
) -> None:
    """Draw edits, screen them by fork, confirm each in a fresh process. The same command again goes on."""
    from turnwise.tools.sandboxed import ask_sandbox

    failed = asyncio.run(ask_sandbox(_make(repositories, out, num, seed, kinds, combined, slots)))
    _print_table(out)
    if failed:
        raise typer.Exit(2)


async def _make(repositories: list[str], out: Path, num: int, seed: int, kinds: str, combined: int, slots: int) -> int:
    """Work on each repository; the number that failed. One repository's failure does not stop the others."""
    from turnwise.repositories.library import default_library, load_repository
    from turnwise.synthesis.bugs.combining import combine_bugs
    from turnwise.synthesis.bugs.edits.table import choose_kinds
    from turnwise.synthesis.bugs.start import open_maker
    from turnwise_sandbox import LocalSandbox

    chosen = choose_kinds([name for name in kinds.split(",") if name != "all"])
    loaded = [load_repository(key, default_library()) for key in repositories]
    num_failed = 0
    async with LocalSandbox(num_slots=slots) as sandbox:
        for repository in loaded:
            try:
                maker = open_maker(sandbox, repository, out, ledger_path(out), seed)
                num_kept = await maker.make(chosen, num, num_programs=slots)
                num_combined = await combine_bugs(maker, combined) if combined else 0
                print(f"{repository.key:<26} {num_kept:>5} bugs, {num_combined:>4} combined", flush=True)
            except TurnwiseError as error:
                num_failed += 1
                print(f"{repository.key:<26} stopped: {error}", flush=True)
    return num_failed


@app.command()
def check(
    file: File,
    slots: Annotated[int, typer.Option(min=1, help="Programs at a time.")] = 2,
) -> None:
    """Grade each instance twice: without a change it must fail, with the gold patch it must be resolved."""
    from turnwise.repositories.instance import load_instances
    from turnwise.synthesis.bugs.checking import check_instances

    instances = load_instances(file)
    problems = asyncio.run(check_instances(instances, num_slots=slots))
    for instance_id, problem in problems.items():
        print(f"{instance_id}: {problem}")
    print(f"{len(instances) - len(problems)} of {len(instances)} instances: nothing fails them, gold resolves them")
    if problems:
        raise typer.Exit(1)


@app.command()
def table(file: File, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show what was tried, kept and dropped, by kind and by repository, and what it cost."""
    if as_json:
        from turnwise.synthesis.bugs.tables import summarize

        print(json.dumps([summary.to_row() for summary in summarize(_load(file))], indent=1))
    else:
        _print_table(file)


def _load(file: Path) -> Ledger:
    from turnwise.synthesis.bugs.ledger import load_ledger

    path = ledger_path(file)
    if not path.exists():
        raise ConfigError(
            f"{path} does not exist; `turnwise bugs make ... --out {file}` writes it beside its instances"
        )
    return load_ledger(path)


def _print_table(file: Path) -> None:
    from turnwise.synthesis.bugs.tables import table_lines

    for line in table_lines(_load(file), file):
        print(line)
