"""`turnwise rewards check FAMILY_OR_RECIPE`: attack a reward before a policy does."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from turnwise_rewards.redteam.check import Line


def check(
    name: Annotated[
        str, typer.Argument(metavar="FAMILY_OR_RECIPE", help="Short name, package.module:Class, or recipe.")
    ],
    more: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE ...] [key=value ...]", help="Recipes laid over it; arguments as environment.args."
        ),
    ] = None,
    tasks: Annotated[int, typer.Option(min=2, help="Number of held-out tasks per attack.")] = 20,
    max_turns: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of replies per conversation; default: the recipe's, or 16."),
    ] = None,
    attack: Annotated[list[str] | None, typer.Option(help="Play only this attack; may be given several times.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Play every attack that applies and compare the reward with the truth; exit with 1 for a hole that is not
    listed."""
    from turnwise.config.shipped import is_recipe
    from turnwise_rewards.redteam.attacks.table import choose_attacks
    from turnwise_rewards.redteam.check import check_reward
    from turnwise_rewards.redteam.known import list_holes
    from turnwise_rewards.runs.targets import find_target

    chosen = choose_attacks(attack or ())
    over = [item for item in more or () if "=" not in item and is_recipe(item)]
    arguments = _read_arguments([item for item in more or () if item not in over])
    target = find_target(name, arguments, over=over, max_turns=max_turns)
    lines = check_reward(
        target.arena,
        num_tasks=tasks,
        attacks=chosen,
        listed=list_holes(target.environments, target.arguments, target.rewards),
    )
    if as_json:
        print(json.dumps([asdict(line) for line in lines], indent=1))
    else:
        print("\n".join(format_table(lines)))
    if any(line.state == "hole" for line in lines):
        raise typer.Exit(code=1)


def _read_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """Read `key=value` as overrides of a recipe are read. Raises ConfigError."""
    from turnwise.config.load import parse_value
    from turnwise.core.errors import ConfigError

    read = {}
    for item in arguments:
        key, separator, value = item.partition("=")
        if not separator:
            raise ConfigError(f"{item!r} is not of the form key=value")
        read[key.removeprefix("environment.args.")] = parse_value(value)
    return read


def format_table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the table, then a line of counts."""
    width = max(len(line.attack) for line in lines)
    roles = max(len(line.role) for line in lines)
    yield f"{'attack':<{width}}  {'role':<{max(roles, 4)}}  reward   truth  oracle  random  verdict"
    for line in lines:
        numbers = "  ".join(
            f"{'-' if value is None else format(value, '.2f'):>6}"
            for value in (line.reward, line.truth, line.oracle_reward, line.random_reward)
        )
        why = f": {line.why}" if line.why else ""
        yield f"{line.attack:<{width}}  {line.role:<{max(roles, 4)}}  {numbers}  {line.state}{why}"
    counts = [
        f"{state} {sum(line.state == state for line in lines)}"
        for state in ("holds", "hole", "listed", "does not apply")
    ]
    yield ", ".join(counts)
