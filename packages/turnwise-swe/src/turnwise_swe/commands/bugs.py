"""`turnwise bugs`: plant bugs in real repositories, check them, and show which were kept and dropped."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.core.errors import ConfigError, TurnwiseError

if TYPE_CHECKING:
    from turnwise_swe.bugs.ledger import Ledger
    from turnwise_swe.bugs.making import Maker
    from turnwise_swe.bugs.writers import Ask
    from turnwise_swe.repositories.repository import Repository

app = typer.Typer(help="Bugs for real repositories, found by their own tests.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="JSONL of instances written by `bugs make`.")]


def ledger_path(file: Path) -> Path:
    """The path of the ledger: `bugs.ledger.jsonl` beside `bugs.jsonl`."""
    return file.with_name(f"{file.stem}.ledger.jsonl")


@app.command()
def make(
    repositories: Annotated[
        list[str], typer.Argument(metavar="NAME==VERSION...", help="Repositories listed by `turnwise repos list`.")
    ],
    out: Annotated[Path, typer.Option(help="JSONL file to append instances to; the ledger is written beside it.")],
    num: Annotated[int, typer.Option(min=1, help="Instances per repository.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed for which edits are tried, and in which order.")] = 0,
    kinds: Annotated[
        str, typer.Option(help="Kinds of edits, separated by commas; modifiers, slips and all are groups.")
    ] = "all",
    combined: Annotated[int, typer.Option(min=0, help="Combinations of kept bugs to make per repository.")] = 0,
    slots: Annotated[int, typer.Option(min=1, help="Number of programs to run at once.")] = 2,
) -> None:
    """Draw edits, screen them by fork, confirm each in a fresh process, and grade each again at the end.

    The same command again continues."""
    from turnwise_swe.bugs.combining import combine_bugs
    from turnwise_swe.bugs.edits.table import choose_kinds

    chosen = choose_kinds([name for name in kinds.split(",") if name != "all"])

    async def work(maker: Maker, num_programs: int) -> str:
        num_kept = await maker.make(chosen, num, num_programs=num_programs)
        num_combined = await combine_bugs(maker, combined) if combined else 0
        return f"{num_kept:>5} bugs, {num_combined:>4} combined"

    _run(_work_on(repositories, out, seed, slots, work), out)


def _run(work: Awaitable[int], out: Path) -> None:
    """Do the work and print the table; exit status 2 if a repository failed."""
    from turnwise.tools.sandboxed import ask_sandbox

    failed = asyncio.run(ask_sandbox(work))
    _print_table(out)
    if failed:
        raise typer.Exit(2)


async def _work_on(
    repositories: list[str], out: Path, seed: int, slots: int, work: Callable[[Maker, int], Awaitable[str]]
) -> int:
    """Work on the repositories, as many at a time as there are slots, and share the slots among them, because one large
    program costs less than two. Returns the number of repositories that failed; a failure does not stop the others."""
    from turnwise_sandbox import LocalSandbox
    from turnwise_swe.bugs.start import locked, open_maker
    from turnwise_swe.bugs.verifying import verify
    from turnwise_swe.repositories.library import default_library, load_repository

    loaded = [load_repository(key, default_library()) for key in dict.fromkeys(repositories)]
    free = asyncio.Semaphore(slots)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(locked(ledger_path(out)))
        sandbox = await stack.enter_async_context(LocalSandbox(num_slots=slots))

        async def work_on(repository: Repository) -> bool:
            async with free:
                try:
                    maker = open_maker(sandbox, repository, out, ledger_path(out), seed)
                    before, num_programs = {*maker.instances}, max(1, slots // len(loaded))
                    print(f"{repository.key:<26} {await work(maker, num_programs)}", flush=True)
                    new = [name for name in maker.instances if name not in before]
                    for name, problem in (await verify(maker, new, num_programs=num_programs)).items():
                        print(f"{repository.key:<26} left out {name}: {problem}", flush=True)
                except TurnwiseError as error:
                    print(f"{repository.key:<26} stopped: {error}", flush=True)
                    return False
                return True

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work_on(repository)) for repository in loaded]
    return sum(not task.result() for task in tasks)


@app.command()
def write(
    repositories: Annotated[
        list[str], typer.Argument(metavar="NAME==VERSION...", help="Repositories listed by `turnwise repos list`.")
    ],
    out: Annotated[Path, typer.Option(help="JSONL file to append instances to; the ledger is written beside it.")],
    api: Annotated[str, typer.Option(help="Root of an OpenAI-style API, for example http://127.0.0.1:8000/v1.")] = "",
    model: Annotated[str, typer.Option(help="Model name in the API.")] = "",
    run: Annotated[
        Path | None, typer.Option(help="Trained run whose latest checkpoint writes the bugs instead.")
    ] = None,
    kind: Annotated[str, typer.Option(help="lm_modify, lm_rewrite or pr_mirror.")] = "lm_modify",
    changes: Annotated[
        Path | None, typer.Option(help="Folder of past changes (*.diff, *.patch) that pr_mirror reverts.")
    ] = None,
    num: Annotated[int, typer.Option(min=1, help="Instances per repository.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed for which functions are chosen, and for the replies.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum number of tokens per reply.")] = 4096,
    slots: Annotated[int, typer.Option(min=1, help="Number of programs to run at once.")] = 2,
) -> None:
    """Let a model write bugs, and screen and confirm them as `make` does. The same command again continues."""
    from turnwise_swe.bugs.writing import KINDS_OF_FUNCTIONS, MIRROR, mirror_changes, read_changes, write_bugs

    if kind not in (*KINDS_OF_FUNCTIONS, MIRROR):
        raise ConfigError(f"--kind is {kind!r}; it must be one of {', '.join((*KINDS_OF_FUNCTIONS, MIRROR))}")
    if (run is None) == (not api) or bool(api) != bool(model):
        raise ConfigError("pass --api URL and --model NAME, or --run RUN")
    if (kind == MIRROR) != (changes is not None):
        raise ConfigError(f"use --changes FOLDER with --kind {MIRROR}, and only with it")
    diffs = read_changes(changes) if changes else {}

    async def work_with_model() -> int:
        async with _open_model(api, model, run, seed, max_tokens) as ask:

            async def work(maker: Maker, num_programs: int) -> str:
                if kind == MIRROR:
                    return f"{await mirror_changes(maker, ask, diffs):>5} bugs"
                return f"{await write_bugs(maker, ask, kind, num, num_programs=num_programs):>5} bugs"

            return await _work_on(repositories, out, seed, slots, work)

    _run(work_with_model(), out)


@contextlib.asynccontextmanager
async def _open_model(api: str, model: str, run: Path | None, seed: int, max_tokens: int) -> AsyncIterator[Ask]:
    """Open the model behind an API, or that of a run."""
    if run is None:
        from turnwise.tools.chat_api import ChatApi

        client = ChatApi(api, model, max_tokens=max_tokens, seed=seed)
        try:
            yield client.ask
        finally:
            await client.close()
        return
    from turnwise.runs.evaluate import load_trained_system
    from turnwise_swe.bugs.writers import ask_engine

    _, system, _ = load_trained_system(run, None)
    try:
        yield ask_engine(system.engine, system.renderer, max_tokens=max_tokens, seed=seed)
    finally:
        await system.close()


@app.command()
def check(
    file: File,
    slots: Annotated[int, typer.Option(min=1, help="Number of programs to run at once.")] = 2,
) -> None:
    """Grade each instance twice: without a change it must fail, with the gold patch it must be resolved."""
    from turnwise_swe.bugs.checking import check_instances
    from turnwise_swe.repositories.instance import load_instances

    instances = load_instances(file)
    problems = asyncio.run(check_instances(instances, num_slots=slots))
    for instance_id, problem in problems.items():
        print(f"{instance_id}: {problem}")
    print(
        f"{len(instances) - len(problems)} of {len(instances)} instances are valid: unchanged they fail, with the gold "
        "patch they pass"
    )
    if problems:
        raise typer.Exit(1)


@app.command()
def table(file: File, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show what was tried, kept and dropped, by kind and by repository, and what it cost."""
    if as_json:
        from turnwise_swe.bugs.tables import summarize

        print(json.dumps([summary.to_row() for summary in summarize(_load(file))], indent=1))
    else:
        _print_table(file)


def _load(file: Path) -> Ledger:
    from turnwise_swe.bugs.ledger import load_ledger

    path = ledger_path(file)
    if not path.exists():
        raise ConfigError(
            f"{path} does not exist; `turnwise bugs make ... --out {file}` writes it next to its instances"
        )
    return load_ledger(path)


def _print_table(file: Path) -> None:
    from turnwise_swe.bugs.tables import table_lines

    for line in table_lines(_load(file), file):
        print(line)
