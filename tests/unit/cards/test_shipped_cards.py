"""Every recipe has its card, and none is out of date; what `turnwise card` says to bad input."""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import run_command

from turnwise.cards.card import SUFFIX, read_page
from turnwise.config.shipped import Shipped, find_shipped, list_shipped
from turnwise.core.errors import ConfigError, DataError
from turnwise.runs.card import check_card, find_page, load_subject, names_no_environment, read_below, write_part_page

ROOT = Path(__file__).parents[3]
PLAYED = ("search_r1/tiny", "retool/tiny", "games/nim", "toolrl/tiny")
"""Recipes whose first tasks are played again, here in well under a second."""
of_all_packages = pytest.mark.skipif(find_spec("turnwise_worlds") is None, reason="the page tells of every package")


def read_card(shipped: Shipped) -> str:
    path = shipped.path.with_name(shipped.path.stem + SUFFIX)
    assert path.is_file(), f"{shipped.name} has no card; `make cards` or `turnwise card {shipped.name} --write`"
    return path.read_text(encoding="utf-8")


def test_no_card_is_out_of_date() -> None:
    problems = []
    for shipped in list_shipped()[0]:
        text = read_card(shipped)
        if names_no_environment(shipped.path):
            assert text == write_part_page(shipped)
            continue
        _, facts = load_subject([Path(shipped.name)])
        stored = read_page(text)
        assert stored is not None, shipped.name
        assert facts.ability, f"{shipped.name} does not say what its number stands for (card.ability)"
        if stored.digest != facts.compute_digest():
            problems.append(shipped.name)
    assert not problems, f"out of date, write again with `make cards`: {', '.join(problems)}"


@pytest.mark.parametrize("name", PLAYED)
def test_the_first_tasks_of_a_card_are_scored_as_they_were(name: str) -> None:
    if find_spec("turnwise_worlds") is None and not (ROOT / "recipes" / f"{name}.toml").is_file():
        pytest.skip("its package is not installed")
    config, facts = load_subject([Path(name)])
    assert check_card(config, facts, find_page(Path(name))) == ""


def test_a_change_of_recipe_or_of_code_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shutil.copyfile(find_page(Path("search_r1/tiny")), page)
    config, facts = load_subject([Path("search_r1/tiny")], ["evaluate.tasks=601"])
    assert "the recipe's tasks, evaluation or card have changed" in check_card(config, facts, page)
    config, facts = load_subject([Path("search_r1/tiny")])
    page.write_text(re.sub(r"probe `\w+`", "probe `0123456789abcdef`", page.read_text()))
    assert "its first tasks are other ones or are scored otherwise" in check_card(config, facts, page)
    # What cards do not depend on.
    changed = load_subject([Path("search_r1/tiny")], ["train.lr=0.5", "evaluate.every=3", "run.seed=9"])[1]
    assert changed.compute_digest() == facts.compute_digest()


def test_no_card_and_a_page_that_is_none_are_one_line(tmp_path: Path) -> None:
    config, facts = load_subject([Path("search_r1/tiny")])
    with pytest.raises(DataError, match=r"nowhere.md cannot be read \(No such file or directory\); write it with"):
        check_card(config, facts, tmp_path / "nowhere.md")
    (tmp_path / "page.md").write_text("# Something")
    with pytest.raises(DataError, match=r"page.md is no card; write it with `turnwise card search_r1/tiny`"):
        check_card(config, facts, tmp_path / "page.md")


@of_all_packages
def test_the_page_lists_every_card_and_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import cards

    page = (ROOT / "docs" / "cards.md").read_text(encoding="utf-8")
    shipped = [each for each in list_shipped()[0] if each.root.is_relative_to(ROOT)]
    assert cards.fill(page, shipped) == page, "write it again with `python benchmarks/cards.py NONE`"
    words = {read_card(each).partition(": ")[0] for each in shipped}
    assert words == {"believe", "do not believe", "cannot say"}


def test_a_part_is_measured_over_the_recipes_that_it_names(tmp_path: Path) -> None:
    part = tmp_path / "part.toml"
    part.write_text('[evaluate]\ntasks = 7\n[card]\nover = ["search_r1/tiny"]\n')
    assert read_below(part) == [Path("search_r1/tiny")]
    _, facts = load_subject([part])
    assert (facts.heldout_tasks, facts.environment.keys()) == (7, {"search_qa": 0}.keys())
    assert facts.ability == find_ability("search_r1/tiny")
    part.write_text("[card]\nover = 3\n")
    with pytest.raises(ConfigError, match=r"card.over is 3; it must be a list"):
        load_subject([part])


def find_ability(name: str) -> str:
    found = re.search(r'ability = "(.*)"', find_shipped(name).path.read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no recipe given; for example: turnwise card search_r1/tiny"),
        (["search_r1/tiny", "evaluate.tasks=3", "--check"], "evaluate.tasks=3 changes the recipe, and the card beside"),
        (["search_r1/tinny"], "did you mean 'search_r1/tiny'?"),
        (["search_r1/tiny", "--run", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str) -> None:
    result = run_command("card", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_command_prints_a_card_of_a_changed_recipe() -> None:
    result = run_command("card", "search_r1/tiny", "evaluate.tasks=15", "--tasks", "2")
    assert result.returncode == 0
    assert result.stdout.startswith("do not believe: success, because 15 held-out tasks leave an interval of ±")
    assert "| 7 headroom | oracle 100.0%" in result.stdout
