"""Recipes of installed packages: listed, found by short names, copied with their data, refused in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import run_command
from installed import write_entry_points

from turnwise.config.load import load_config
from turnwise.config.shipped import GROUP, find_shipped, list_shipped
from turnwise.core.errors import ConfigError

RECIPE = """# Roses in a garden: they grow.

[run]
name = "roses"

[environment]
name = "search_qa"

[environment.args]
path = "recipes/roses/rows.jsonl"
other = "recipes/roses/nowhere.jsonl"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the path, as the folder where commands run is another."""
    (tmp_path / "site").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "site"


def install_recipes(
    folder: Path, package: str, value: str, *, requires: str = "", points: tuple[str, ...] = ()
) -> Path:
    """A package whose module names a folder of recipes, in entry points of these names or its own; the folder."""
    offers = dict.fromkeys(points or (package,), f"{package}:RECIPES")
    write_entry_points(folder, package, {GROUP: offers}, requires=requires)
    (folder / f"{package}.py").write_text(f"from pathlib import Path\n\nRECIPES = {value}\n")
    recipes = folder / f"recipes_of_{package}"
    (recipes / "roses").mkdir(parents=True)
    (recipes / "roses" / "red.toml").write_text(RECIPE)
    (recipes / "roses" / "rows.jsonl").write_text('{"question": "?", "answer": "!"}\n')
    return recipes


def beside(package: str) -> str:
    return f"Path(__file__).parent / 'recipes_of_{package}'"


def test_a_recipe_of_a_package_has_a_short_name_and_its_data(folder: Path) -> None:
    recipes = install_recipes(folder, "garden_red", beside("garden_red"))
    assert find_shipped("roses/red").path == recipes / "roses" / "red.toml"
    assert find_shipped("recipes/roses/red.toml").summarize() == "Roses in a garden"
    args = load_config([Path("roses/red")], ["model.path=x", "train.lr=1"]).environment.args
    # A file that the package has is found where it is; what it does not have, and what is here, stays as written.
    assert args == {"path": str(recipes / "roses" / "rows.jsonl"), "other": "recipes/roses/nowhere.jsonl"}
    listed = run_command("recipes")
    assert listed.returncode == 0
    lines = [" ".join(line.split()) for line in listed.stdout.splitlines()]
    assert "roses/red garden_red Roses in a garden" in lines
    assert "search_r1/tiny" in listed.stdout


def test_a_copy_has_the_data_beside_it_and_replaces_nothing(folder: Path) -> None:
    install_recipes(folder, "garden_copied", beside("garden_copied"))
    copied = run_command("recipes", "copy", "roses/red")
    assert copied.stdout == ("written to recipes/roses/red.toml; train with: turnwise train recipes/roses/red.toml\n")
    assert sorted(path.name for path in Path("recipes/roses").iterdir()) == ["red.toml", "rows.jsonl"]
    # In this folder the data path means the copy.
    args = load_config([Path("recipes/roses/red.toml")], ["model.path=x", "train.lr=1"]).environment.args
    assert args["path"] == "recipes/roses/rows.jsonl"
    again = run_command("recipes", "copy", "roses/red")
    assert again.returncode == 2
    assert again.stderr == (
        "error: recipes/roses/red.toml exists; name another folder: turnwise recipes copy roses/red FOLDER\n"
    )
    assert run_command("recipes", "copy", "roses/red", "other").stdout == (
        "written to other/recipes/roses/red.toml; train with: cd other && turnwise train recipes/roses/red.toml\n"
    )


def test_a_file_that_is_there_wins_over_an_installed_recipe(folder: Path) -> None:
    install_recipes(folder, "garden_hidden", beside("garden_hidden"))
    Path("roses").mkdir()
    Path("roses/red").write_text("[run]\nname = 'mine'\n")
    assert load_config([Path("roses/red")]).run.name == "mine"


def test_one_name_in_two_packages_is_refused_with_both(folder: Path) -> None:
    for package in ("garden_one", "garden_two"):
        install_recipes(folder, package, beside(package))
    with pytest.raises(ConfigError, match=r"'roses/red' is offered several times: garden_one \(.*\) and garden_two \("):
        load_config([Path("roses/red")])


def test_a_folder_that_two_entry_points_name_is_listed_once(folder: Path) -> None:
    recipes = install_recipes(folder, "garden_twice", beside("garden_twice"), points=("roses", "tulips"))
    assert find_shipped("roses/red").root == recipes
    assert [each.name for each in list_shipped()[0] if each.package == "garden_twice"] == ["roses/red"]


@pytest.mark.parametrize(
    ("value", "requires", "words"),
    [
        ("3", "", r"recipes='garden_bad' of the package garden_bad .* is '3'; name the path of a folder"),
        ("Path('nowhere')", "", r"is 'nowhere'; name the path of a folder of recipes"),
        ("1 / 0", "", r"cannot be imported .*ZeroDivisionError"),
        (beside("garden_bad"), "turnwise>=9", r"was made for 'turnwise>=9', and this is Turnwise .*; update one"),
    ],
)
def test_a_package_whose_recipes_cannot_be_listed_hinders_no_other(
    folder: Path, value: str, requires: str, words: str
) -> None:
    install_recipes(folder, "garden_bad", value, requires=requires)
    sys.modules.pop("garden_bad", None)
    with pytest.raises(ConfigError, match=words) as raised:
        load_config([Path("roses/red")])
    assert str(raised.value).startswith("recipe 'roses/red' does not exist, and no installed package has it; ")
    assert "\n" not in str(raised.value)
    shipped, [line] = list_shipped()
    assert line in str(raised.value)
    assert "search_r1/tiny" in {recipe.name for recipe in shipped}
    assert run_command("recipes").stdout.splitlines()[-1] == line
    assert load_config([Path("search_r1/tiny")]).run.name == "search_r1_tiny"


def test_a_misspelt_recipe_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'search_r1/tinny' does not exist.*; did you mean 'search_r1/tiny'\?$"):
        find_shipped("search_r1/tinny")
