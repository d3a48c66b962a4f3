"""Names of environments: built in, of installed packages, import paths; clashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from installed import write_entry_points

from turnwise.core.errors import ConfigError
from turnwise.environments.classes.family import ClassFamily
from turnwise.environments.registry import find_class, list_environments, load_family

MODULE = '''
class Coin:
    def reset(self, seed: int) -> str:
        return "Heads or tails?"

    def call(self, heads: bool) -> str:
        """Call it.

        Args:
            heads: Whether it is heads.
        """
        self.done = True
        return ""

    def get_reward(self) -> float:
        return 1.0
'''


def install(folder: Path, package: str, names: dict[str, str]) -> None:
    """What pip leaves of a package: a module and its entry points."""
    write_entry_points(folder, package, {"turnwise.environments": names})
    (folder / f"{package}.py").write_text(MODULE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_an_installed_package_names_its_environments(folder: Path) -> None:
    install(folder, "coin_package", {"coin": "coin_package:Coin"})
    assert ("coin", "coin_package:Coin", "coin_package") in [
        (each.name, each.path, each.source) for each in list_environments()
    ]
    family = load_family("coin", {})
    assert isinstance(family, ClassFamily)
    assert family.task("train", 0).environment == "Coin"


def test_a_package_cannot_take_a_name_that_is_taken(folder: Path) -> None:
    install(folder, "first_package", {"coin": "first_package:Coin", "search_qa": "first_package:Coin"})
    install(folder, "second_package", {"coin": "second_package:Coin"})
    with pytest.raises(ConfigError, match=r"'coin' is provided more than once \(first_package and second_package\)"):
        load_family("coin", {})
    with pytest.raises(ConfigError, match=r"'search_qa' is provided more than once \(built in and first_package\)"):
        load_family("search_qa", {})
    assert find_class("math_code").__module__.startswith("turnwise.")
    assert load_family("second_package:Coin", {}).task("train", 0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_name", "neither a known name .*search_qa"),
        ("no_such_module:Thing", "is its folder on PYTHONPATH"),
        ("json:NoSuchClass", "json has no 'NoSuchClass'; it has "),
        ("json:JSONEncoder", "lacks one of task"),
        ("turnwise.environments.tool_environment:ToolEnvironment", "lacks one of task"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_family(name, {})


def test_a_package_that_is_broken_is_named_only_when_it_is_used(folder: Path) -> None:
    install(folder, "broken_package", {"broken": "broken_package:Coin"})
    (folder / "broken_package.py").write_text("raise RuntimeError('broken at import')\n")
    assert "broken" in [each.name for each in list_environments()]
    with pytest.raises(ConfigError, match=r"'broken' of the package broken_package .* cannot .*broken at import"):
        load_family("broken", {})


def test_a_module_that_is_found_and_broken_is_not_looked_for(folder: Path) -> None:
    (folder / "half_a_coin.py").write_text("Coin = dict(1)\n")
    with pytest.raises(ConfigError, match=r"'half_a_coin:Coin' cannot be imported: TypeError: 'int' object"):
        load_family("half_a_coin:Coin", {})


def test_what_is_no_environment_is_told_what_is_there(folder: Path) -> None:
    text = MODULE + "\n\nclass Other:\n    pass\n\n\nclass Group:\n    Inner = Coin\n\n\ncoin = Coin()\n"
    (folder / "few_coins.py").write_text(text)
    wrong = {
        "Coim": "few_coins has no 'Coim'; it has Coin, Other, Group",
        "coin": "'few_coins:coin' is an object of class Coin; name the class itself, which is built for every episode",
        "Other": "is not a class with a reset method and tools either",
    }
    for name, said in wrong.items():
        with pytest.raises(ConfigError, match=said):
            load_family(f"few_coins:{name}", {})
    assert load_family("few_coins:Group.Inner", {})
