"""`turnwise recipes`: the recipes that are installed, and a copy of one to change."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from turnwise.core.errors import ConfigError

HERE = Path(".")
app = typer.Typer(help="List the recipes that are installed, or copy one.", invoke_without_command=True)


@app.callback()
def show(ctx: typer.Context) -> None:
    """List the installed recipes: name, what it is, package. `turnwise train NAME` trains one."""
    if ctx.invoked_subcommand is not None:
        return
    from turnwise.config.shipped import list_shipped

    shipped, broken = list_shipped()
    names, packages = (max(len(getattr(each, field)) for each in shipped) for field in ("name", "package"))
    for each in shipped:
        print(f"{each.name:<{names}}  {each.package:<{packages}}  {each.summarize()}")
    for line in broken:
        print(line)


@app.command()
def copy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its short name, such as search_r1/tiny.")],
    folder: Annotated[Path, typer.Argument(help="The copy is FOLDER/recipes/NAME.toml, its data beside it.")] = HERE,
) -> None:
    """Copy a recipe, and the data files that it names, to change it. Files that exist are kept."""
    from turnwise.config.shipped import FOLDER, find_shipped, list_data

    recipe = find_shipped(name)
    files = [recipe.path, *list_data(tomllib.loads(recipe.path.read_text(encoding="utf-8")), recipe.root)]
    targets = [folder / FOLDER / file.relative_to(recipe.root) for file in files]
    if targets[0].exists():
        raise ConfigError(f"{targets[0]} exists; name another folder: turnwise recipes copy {recipe.name} FOLDER")
    try:
        for file, target in zip(files, targets, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copyfile(file, target)
    except OSError as cause:
        raise ConfigError(f"cannot copy to {folder}: {cause}; name a folder that can be written") from cause
    where = f"cd {folder} && " if folder != HERE else ""
    print(f"written to {targets[0]}; train with: {where}turnwise train {targets[0].relative_to(folder)}")
