"""`turnwise swe`: grade patches of real repositories."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.core.errors import DataError, TurnwiseError

if TYPE_CHECKING:
    from turnwise_swe.repositories.grading import Grade
    from turnwise_swe.repositories.instance import Instance

app = typer.Typer(help="Software engineering tasks in SWE-bench's formats.", no_args_is_help=True)

GOLD, NOOP = "gold", "noop"


@app.command()
def grade(
    predictions: Annotated[
        str,
        typer.Argument(
            metavar="PREDICTIONS",
            help=f"JSON or JSONL with instance_id and model_patch; {GOLD!r}: the patches that remove the bugs, all of "
            f"which must resolve; {NOOP!r}: the unchanged bugs, none of which may resolve.",
        ),
    ],
    instances: Annotated[Path, typer.Option(help="JSONL of instances, with SWE-bench's field names.")],
    output: Annotated[Path | None, typer.Option(help="Write the report to this file instead of printing it.")] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Number of patches to grade at once; default: one per processor.")
    ] = None,
) -> None:
    """Apply each patch to its repository in the sandbox, run its tests, and print a JSON report.

    Several predictions of an instance are graded in rounds, the first of each instance first."""
    from turnwise.tools.sandboxed import ask_sandbox
    from turnwise_swe.repositories.instance import load_instances
    from turnwise_swe.repositories.predictions import build_report, join_reports, load_samples

    tasks = load_instances(instances)
    rounds: Sequence[Mapping[str, str | None]]
    if predictions == GOLD:
        rounds = [{task.instance_id: task.gold for task in tasks}]
    elif predictions == NOOP:
        rounds = [dict.fromkeys((task.instance_id for task in tasks), None)]
    else:
        rounds = load_samples(Path(predictions), tasks)
    grades = [asyncio.run(ask_sandbox(_grade(tasks, patches, slots))) for patches in rounds]
    report = join_reports([build_report(tasks, *graded) for graded in zip(rounds, grades, strict=True)])
    text = json.dumps(report, indent=1)
    if output is None:
        print(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as cause:
        raise DataError(f"cannot write {output}: {cause.strerror}; name a file in an existing folder") from cause
    resolved = report.get("resolved_instances", report.get("any_resolved_instances"))
    several = f" in one of {len(rounds)} rounds, {report['mean_resolved']:.1%} on average" if len(rounds) > 1 else ""
    print(f"{resolved} of {report['total_instances']} resolved{several}; report in {output}")


@app.command()
def show(
    instances: Annotated[Path, typer.Option(help="JSONL of instances, with SWE-bench's field names.")],
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[INSTANCE_ID]...", help="Default: all instances of the file.")
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(help="JSON or JSONL with instance_id and model_patch; these patches are graded as well."),
    ] = None,
) -> None:
    """Show instances as Markdown: the bug, the issue, the first failing test, the grades of no patch, of the gold patch
    and of a prediction."""
    from turnwise.tools.sandboxed import ask_sandbox
    from turnwise_swe.repositories.instance import load_instances
    from turnwise_swe.repositories.predictions import load_predictions

    tasks = load_instances(instances)
    known = {task.instance_id: task for task in tasks}
    if unknown := [name for name in ids or () if name not in known]:
        raise DataError(f"{instances} has no instance {unknown[0]}; it has {', '.join(list(known)[:5])} ...")
    patches = load_predictions(predictions, tasks) if predictions else {}
    asyncio.run(ask_sandbox(_show([known[name] for name in ids or known], patches)))


@app.command("export")
def export_tasks(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="An empty or new folder for the task folders.")],
    instances: Annotated[Path, typer.Option(help="JSONL of instances, with SWE-bench's field names.")],
) -> None:
    """Write instances as Harbor's task folders, each with its tree, its judge and its solution."""
    from turnwise_swe.harbor.instances import write_instance
    from turnwise_swe.repositories.instance import load_instances
    from turnwise_swe.repositories.library import default_library, load_repository

    tasks = load_instances(instances)
    repositories = {key: load_repository(key, default_library()) for key in {task.repository for task in tasks}}
    for task in tasks:
        write_instance(folder, task, repositories[task.repository])
    print(f"{len(tasks)} task folders in {folder}")


@app.command("import")
def import_tasks(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A Harbor task folder, or a folder of task folders.")
    ],
    output: Annotated[Path, typer.Argument(metavar="INSTANCES", help="The JSONL file to write.")],
) -> None:
    """Read instances from Harbor's task folders whose repository is on this machine; the others are named."""
    from turnwise_swe.harbor.instances import check_tree, read_instance_folder
    from turnwise_swe.harbor.tasks import find_tasks
    from turnwise_swe.repositories.instance import write_instances
    from turnwise_swe.repositories.library import default_library, load_repository

    read: list[Instance] = []
    refused = 0
    for task in find_tasks(folder):
        try:
            instance = read_instance_folder(task)
            repository = load_repository(instance.repository, default_library())
            check_tree(task, repository)
            instance.bug_layer(repository)
            read.append(instance)
        except TurnwiseError as error:
            refused += 1
            print(f"not read: {error}")
    if not read:
        raise DataError(f"{folder}: none of its {refused} task folders can be used here")
    write_instances(output, read)
    print(f"{len(read)} instances in {output}, {refused} folders skipped")


async def _show(tasks: Sequence[Instance], patches: Mapping[str, str]) -> None:
    from turnwise.reporting.transcript import clean_for_terminal
    from turnwise_sandbox import LocalSandbox
    from turnwise_swe.repositories.library import default_library, load_repository
    from turnwise_swe.repositories.showing import show_instance

    async with LocalSandbox(num_slots=1) as sandbox:
        for task in tasks:
            repository = load_repository(task.repository, default_library())
            page = await show_instance(sandbox, repository, task, patches.get(task.instance_id))
            print(f"{clean_for_terminal(page)}\n", flush=True)


async def _grade(tasks: Sequence[Instance], patches: Mapping[str, str | None], slots: int | None) -> list[Grade]:
    from turnwise_sandbox import LocalSandbox
    from turnwise_swe.repositories.grading import grade_all
    from turnwise_swe.repositories.library import default_library, load_repository

    repositories = {key: load_repository(key, default_library()) for key in {task.repository for task in tasks}}
    async with LocalSandbox(num_slots=slots) as sandbox:
        return await grade_all(sandbox, repositories, tasks, patches)
