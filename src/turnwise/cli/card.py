"""`turnwise card RECIPE`: can a number from this recipe be believed, and for what?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.recipe import split_recipe
from turnwise.core.errors import ConfigError


def card(
    recipe: Annotated[
        list[str] | None,
        typer.Argument(metavar="RECIPE [section.key=value ...]", help="A recipe, or config.json of a run folder."),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Held-out tasks that each policy plays; default: by their speed.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="Take the share of groups with signal from this run, not from scripted play.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the card beside the recipe, too.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Measure nothing: exit with 1 if the card beside the recipe is out of date.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how far a number from a recipe can be believed: size, gold answers, grader, headroom, contamination."""
    files, overrides = split_recipe(recipe)
    if not files:
        raise ConfigError("no recipe given; for example: turnwise card search_r1/tiny")
    if (write or check) and (overrides or len(files) > 1):
        changes = overrides[0] if overrides else str(files[-1])
        raise ConfigError(
            f"{changes} changes the recipe, and the card beside {files[0]} is of that recipe as it is; leave out "
            f"{'--write' if write else '--check'}"
        )
    from turnwise.runs.card import check_card, find_page, load_subject, make_card, read_continuity

    config, facts = load_subject(files, overrides)
    if check:
        problem = check_card(config, facts, find_page(files[0]))
        print(problem or f"the card of {facts.recipe} is up to date")
        if problem:
            raise typer.Exit(code=1)
        return
    made = make_card(config, facts, num_played=tasks, continuity=None if run is None else read_continuity(run))
    if write:
        find_page(files[0]).write_text(made.to_page(), encoding="utf-8")
    print(json.dumps(made.to_json(), indent=1, ensure_ascii=False) if as_json else made.to_page(), end="")
