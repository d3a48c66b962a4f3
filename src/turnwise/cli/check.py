"""`turnwise check env NAME`: play an environment before anything trains on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.core.errors import ConfigError

if TYPE_CHECKING:
    from turnwise.config.run import RunConfig
    from turnwise.core.judging import Judge
    from turnwise.core.protocols import EnvironmentFamily

app = typer.Typer(help="Check the parts of a run.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Make `env` a subcommand, even while it is the only one."""


@app.command()
def env(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Short name, package.module:Class, or recipe; without it, list the names."),
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[key=value ...]", help="As environment.args.")
    ] = None,
    control: Annotated[
        list[str] | None,
        typer.Option(
            help="Argument under which the oracle must fail, such as search=off, in addition to the recipe's."
        ),
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Number of held-out tasks per policy.")] = 40,
    max_turns: Annotated[int, typer.Option(min=1, help="Maximum number of replies per episode.")] = 16,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Report whether an environment is solvable, hard to cheat, repeatable and without leaks; exit with 1 if not."""
    if name is None:
        _print_names()
        return
    from turnwise.config.load import parse_value
    from turnwise.config.shipped import is_recipe
    from turnwise.testing import CheckPlan, check_environment

    def read(item: str) -> tuple[str, Any]:
        key, separator, value = item.partition("=")
        if not separator:
            raise ConfigError(f"{item!r} is not of the form key=value")
        return key.removeprefix("environment.args."), parse_value(value)  # read like an override of a recipe

    chosen = dict(map(read, arguments or []))
    build, controls = _from_recipe(Path(name), chosen) if is_recipe(name) else (_builder(name, chosen), {})
    controls.update({item: dict([read(item)]) for item in control or []})
    build()  # a wrong name or argument is an error of the command, not of the environment
    lines = check_environment(build, controls=controls, plan=CheckPlan(num_tasks=tasks, max_turns=max_turns))
    if as_json:
        print(json.dumps([asdict(line) for line in lines], indent=1))
    else:
        width = max(len(line.check) for line in lines)
        for line in lines:
            print(f"{line.verdict}  {line.check:<{width}}  {line.text}")
    if any(line.verdict == "fail" for line in lines):
        raise typer.Exit(code=1)


def _print_names() -> None:
    from turnwise.environments.registry import list_environments

    named = list_environments()
    width = max(len(each.name) for each in named)
    for each in named:
        print(f"{each.name:<{width}}  {each.path}  ({each.source})")


def _builder(name: str, arguments: dict[str, Any]) -> Any:
    from turnwise.environments.registry import load_family

    def build(**changes: Any) -> EnvironmentFamily:
        return load_family(name, {**arguments, **changes})

    return build


def _from_recipe(path: Path, arguments: dict[str, Any]) -> tuple[Any, dict[str, dict[str, Any]]]:
    """A function that builds the recipe's environment with `arguments` over its own and the recipe's judges, and the
    environment's controls."""
    from turnwise.building.families import build_family
    from turnwise.config.load import load_config
    from turnwise.core.judging import JudgedFamily

    config = load_config([path], [])
    judges = _build_judges(config)

    def build(**changes: Any) -> EnvironmentFamily:
        family = build_family(config, {**arguments, **changes})
        return JudgedFamily(family, judges) if judges else family

    return build, {name: dict(changes) for name, changes in config.evaluate.controls.items()}


def _build_judges(config: RunConfig) -> Mapping[str, Judge]:
    if not config.judges:
        return {}
    from turnwise.runs.judges import build_judges, refuse_model, refuse_policy

    return build_judges(config, refuse_model, refuse_policy)
