"""`turnwise repos`: add and show real repositories with measured suites, without Docker."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.core.errors import ConfigError, TurnwiseError

if TYPE_CHECKING:
    from turnwise_swe.repositories.library import Needs
    from turnwise_swe.repositories.repository import Repository

_MISSING = re.compile(r"No module named '([\w.]+)'")

app = typer.Typer(help="Real repositories: trees, dependencies, measured suites.", no_args_is_help=True)


@app.command()
def add(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME==VERSION | SDIST | FOLDER]...", help="Repositories to fetch and measure."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Add every repository in the list.")] = False,
    requires: Annotated[
        list[str] | None, typer.Option(help="For your own package: packages that its tests import, as named by pip.")
    ] = None,
    plugin: Annotated[list[str] | None, typer.Option(help="Module of a pytest plugin that its tests need.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="pytest argument that its tests need.")] = None,
) -> None:
    """Fetch a tree, install what its tests need, and run its suite four times in the sandbox, and twice apart from the
    package.

    Existing parts are not built again. A repository that cannot be used prints one line, and the exit status is then 2.
    """
    from turnwise_swe.repositories.packages import load_packages

    if bool(what) == all_:
        raise ConfigError("name the repositories to add, or pass --all; `turnwise repos list` shows the names")
    from turnwise.tools.sandboxed import ask_sandbox
    from turnwise_swe.repositories.library import Needs

    needs = Needs(requires=tuple(requires or ()), plugins=tuple(plugin or ()), options=tuple(option or ()))
    names = [package.key for package in load_packages()] if all_ else what or []
    failed = asyncio.run(ask_sandbox(_add(names, needs)))
    if failed:
        raise typer.Exit(2)


async def _add(names: list[str], needs: Needs) -> int:
    """Add each repository. Returns the number that failed; a failure does not stop the others."""
    from turnwise_sandbox import LocalSandbox
    from turnwise_swe.repositories.library import add_repository, default_library

    num_failed = 0
    async with LocalSandbox(num_slots=1) as sandbox:
        for name in names:
            try:
                print(_describe(await add_repository(sandbox, name, default_library(), needs)), flush=True)
            except TurnwiseError as error:
                num_failed += 1
                print(f"{name:<26} not added: {error}", flush=True)
    return num_failed


@app.command("list")
def list_repositories() -> None:
    """Show the repositories on this machine, and the packages that can be added by name."""
    from turnwise_swe.repositories.library import default_library, list_repositories, load_repository
    from turnwise_swe.repositories.packages import load_packages

    there = list_repositories(default_library())
    for key in there:
        print(_describe(load_repository(key, default_library())))
    for package in load_packages():
        if package.key not in there:
            print(f"{package.key:<26} {package.license:<14} `turnwise repos add {package.key}` fetches and measures it")


@app.command()
def show(
    key: Annotated[str, typer.Argument(metavar="NAME==VERSION", help="A repository listed by `turnwise repos list`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, including every test.")] = False,
) -> None:
    """Show where a repository is, how its suite behaves, and what is left out and why."""
    from turnwise_swe.repositories.library import default_library, load_repository

    repository = load_repository(key, default_library())
    rows = {
        "name": repository.name,
        "version": repository.version,
        "digest": repository.digest,
        "root": str(repository.root),
        "site_packages": str(repository.site_packages),
        "source_folders": list(repository.source_folders),
        "num_test_files": len(repository.test_files),
    }
    if as_json:
        print(json.dumps(rows | {"baseline": repository.baseline.to_row()}, indent=1))
        return
    for name, value in rows.items():
        print(f"{name:<15} {', '.join(value) if isinstance(value, list) else value}")
    print(_describe(repository))
    for test, reason in repository.baseline.left_out.items():
        print(f"  {test}: {reason}")


@app.command()
def apart(
    keys: Annotated[list[str] | None, typer.Argument(metavar="[NAME==VERSION]...", help="Default: all.")] = None,
) -> None:
    """Show the share of each suite's tests that run apart from the package, so that no patch can forge their outcome,
    and the kinds of reasons that prevent it for the others."""
    from turnwise_swe.repositories.library import default_library, list_repositories, load_repository, load_separability
    from turnwise_swe.repositories.separability import count_kinds

    num_apart = num_all = 0
    for key in keys or list_repositories(default_library()):
        passing = load_repository(key, default_library()).baseline.passing
        measured = load_separability(key, default_library())
        if measured is None:
            print(f"{key:<26} not measured; run `turnwise repos add {key}`")
            continue
        num_apart, num_all = num_apart + len(measured.durations), num_all + len(passing)
        kinds = ", ".join(f"{count} {kind}" for kind, count in count_kinds(measured.reasons).items())
        share = f"{len(measured.durations) / len(passing):>4.0%}"
        print(f"{key:<26} {len(measured.durations):>5} of {len(passing):>5} {share}; {kinds or 'all'}")
    if num_all:
        print(f"{'together':<26} {num_apart:>5} of {num_all:>5} {num_apart / num_all:>4.0%}")


def _describe(repository: Repository) -> str:
    """One line: number of tests, how many of them judge patches, how many of those apart from the package, processor
    seconds, and what is left out."""
    from turnwise_swe.repositories.baseline import count_reasons

    baseline = repository.baseline
    left_out = ", ".join(f"{count} {reason}" for reason, count in count_reasons(baseline.left_out).items())
    missing = sorted({found for reason in baseline.left_out.values() for found in _MISSING.findall(reason)})
    hint = f" (no module {', '.join(missing)}: add it again with --requires)" if missing else ""
    return (
        f"{repository.key:<26} {len(baseline.outcomes):>5} stable tests, {len(baseline.passing):>5} pass, "
        f"{len(repository.apart):>5} of them apart, "
        f"{baseline.cpu_s:>5.1f} CPU s; left out: {left_out or 'nothing'}{hint}"
    )
