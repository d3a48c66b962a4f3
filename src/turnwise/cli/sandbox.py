"""`turnwise sandbox`: show how well this machine isolates, run a program, measure the speed, and serve over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

import typer

from turnwise.core.errors import ConfigError

if TYPE_CHECKING:
    from turnwise_sandbox.levels import Level
    from turnwise_sandbox.types import Execution

T = TypeVar("T")

app = typer.Typer(help="Run untrusted code, isolated.", no_args_is_help=True)

LevelOption = Annotated[
    str, typer.Option("--level", help="Level of the sandbox: auto, full, uid, process, seccomp or none.")
]

EXIT_LIMIT = 124
"""Exit status of `run` if the program hit a limit, the same as timeout(1)'s."""


def _complete(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a new event loop. Raises SandboxError if the sandbox fails."""
    from turnwise.tools.sandboxed import ask_sandbox

    return asyncio.run(ask_sandbox(work))


@app.command()
def doctor(
    level: LevelOption = "auto", as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Show this machine's level of isolation, and what canaries inside it found about each property."""
    measured = _complete(_find_level(level))
    if not as_json:
        _show_level(measured)
        return
    properties = {
        name: {"enforced_by": item.enforced_by, "verified": item.verified} for name, item in measured.properties.items()
    }
    summary = {
        "level": measured.name,
        "properties": properties,
        "stronger_levels": dict(measured.reasons),
        "trees": measured.trees,
        "no_overlay": measured.no_overlay,
    }
    print(json.dumps(summary, indent=1))


async def _find_level(level: str) -> Level:
    from turnwise_sandbox.supervisor import LocalSandbox

    async with LocalSandbox(level=level, allow_unsafe=True) as sandbox:
        return await sandbox.level()


def _show_level(level: Level) -> None:
    from rich.table import Table

    from turnwise.reporting.console import print_table
    from turnwise_sandbox.canaries import PROPERTIES

    table = Table(title=f"sandbox level: {level.name}", title_justify="left")
    for column in ("property", "means", "enforced by", "withstood its canary"):
        table.add_column(column, overflow="fold")
    for name, item in level.properties.items():
        table.add_row(
            name, PROPERTIES[name], item.enforced_by or "nothing", "yes" if item.verified else "[red]no[/red]"
        )
    print_table(table)
    print(f"trees of layers: {_describe_trees(level)}")
    for stronger, reason in level.reasons.items():
        print(f"{stronger}: unavailable, because {reason}")
    if level.name == "none":
        print("This machine isolates nothing: code may do whatever your user may do.")


def _describe_trees(level: Level) -> str:
    if level.no_overlay is None:
        return "overlay, edits in memory"
    return f"copy, because {level.no_overlay}"


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python program (or a shell script ending in .sh).")],
    profile: Annotated[
        str, typer.Option(help="Preloaded libraries: auto, std, numpy, numpy_random, sympy, openai or pytest.")
    ] = "auto",
    timeout_s: Annotated[float, typer.Option(help="Wall-clock limit in seconds.")] = 5.0,
    memory_mib: Annotated[
        int, typer.Option(help="Memory limit in MiB for all processes of the program together.")
    ] = 1024,
    network: Annotated[str, typer.Option(help="Network access: none or loopback.")] = "none",
    seed: Annotated[int, typer.Option(help="Seed for every random generator of the program.")] = 0,
    level: LevelOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the full result as JSON.")] = False,
) -> None:
    """Run one program; its output and exit status become this command's. The status is 124 when it hit a limit."""
    from turnwise_sandbox.types import Network, Profile

    for name, value, choices in (("profile", profile, get_args(Profile)), ("network", network, get_args(Network))):
        if value not in choices:
            raise ConfigError(f"--{name} is {value!r}; it must be one of {', '.join(choices)}")
    try:
        source = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    stdin = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    execution = _complete(_run_file(file, source, stdin, profile, timeout_s, memory_mib, network, seed, level))
    if as_json:
        print(json.dumps(_to_json(execution), indent=1))
    else:
        sys.stdout.buffer.write(execution.stdout)
        sys.stdout.flush()
        sys.stderr.buffer.write(execution.stderr)
        if execution.limit:
            sys.stderr.write(
                f"stopped at the {execution.limit} limit after {execution.wall_s:.2f} s (level {execution.level})\n"
            )
        elif execution.signal:
            sys.stderr.write(f"ended by signal {execution.signal} (level {execution.level})\n")
    raise typer.Exit(_exit_status(execution))


async def _run_file(
    file: Path,
    source: bytes,
    stdin: bytes,
    profile: str,
    timeout_s: float,
    memory_mib: int,
    network: str,
    seed: int,
    level: str,
) -> Execution:
    from turnwise_sandbox.supervisor import LocalSandbox
    from turnwise_sandbox.types import Limits, Program

    language: Literal["bash", "python"] = "bash" if file.suffix == ".sh" else "python"
    program = Program(code=source, language=language, stdin=stdin, profile=profile, network=network, seed=seed)  # type: ignore[arg-type]
    async with LocalSandbox(num_slots=1, level=level, allow_unsafe=level == "none") as sandbox:
        return await sandbox.run(program, Limits(wall_s=timeout_s, memory_bytes=memory_mib << 20))


def _exit_status(execution: Execution) -> int:
    if execution.limit:
        return EXIT_LIMIT
    return 128 + (execution.signal or 0) if execution.exit_code is None else execution.exit_code


def _to_json(execution: Execution) -> dict[str, object]:
    return {
        "exit_code": execution.exit_code,
        "signal": execution.signal,
        "limit": execution.limit,
        "stdout": execution.stdout.decode("utf-8", "replace"),
        "stderr": execution.stderr.decode("utf-8", "replace"),
        "stdout_dropped": execution.stdout_dropped,
        "stderr_dropped": execution.stderr_dropped,
        "wall_s": round(execution.wall_s, 6),
        "cpu_s": round(execution.cpu_s, 6),
        "max_rss_bytes": execution.max_rss_bytes,
        "level": execution.level,
    }


@app.command()
def bench(
    rounds: Annotated[
        int, typer.Option(help="Number of rounds; each measures every program once, in alternation.")
    ] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use few executions per round, for a quick look rather than a measurement.")
    ] = False,
) -> None:
    """Compare the sandbox with subprocess, bubblewrap (if installed) and a bare fork, in turns; print JSON."""
    from turnwise_sandbox.benchmark import run_benchmark

    print(json.dumps(_complete(run_benchmark(rounds=rounds, quick=quick)), indent=1))


@app.command()
def serve(
    port: Annotated[int, typer.Option(help="Port on the loopback interface.")] = 8080,
    slots: Annotated[int, typer.Option(help="Number of programs to run at once; 0 means one per processor.")] = 0,
    level: LevelOption = "auto",
) -> None:
    """Serve the sandbox over HTTP on loopback. Clients send the token in TURNWISE_SANDBOX_TOKEN; without one, the
    command makes a token and prints it."""
    _complete(_serve(port, slots or None, level))


async def _serve(port: int, num_slots: int | None, level: str) -> None:
    from turnwise_sandbox.serve import SandboxServer, new_token
    from turnwise_sandbox.supervisor import LocalSandbox

    secret = os.environ.get("TURNWISE_SANDBOX_TOKEN")
    token = secret or new_token()
    async with LocalSandbox(num_slots=num_slots, level=level) as sandbox:
        server = SandboxServer(sandbox, token=token)
        url = await server.start(port=port)
        try:
            print(f"{url}  level {(await sandbox.level()).name}" + ("" if secret else f"\ntoken {token}"), flush=True)
            await asyncio.Event().wait()
        finally:
            await server.close()
