"""`turnwise new env NAME`: an installable package with an environment, its test and a recipe that trains on it."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Annotated

import typer

from turnwise import __version__
from turnwise.core.errors import ConfigError, StoreError

app = typer.Typer(help="Start something of your own.", no_args_is_help=True)

FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"

[project]
name = "@name@"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["turnwise>=@version@"]

[project.entry-points."turnwise.environments"]
@name@ = "@name@:@Class@"

[tool.setuptools]
py-modules = ["@name@"]
""",
    "@name@.py": '''\
"""Guess a number: replace this with an environment of your own."""

from random import Random


class @Class@:
    """Public methods are tools. A fresh object plays every episode."""

    def reset(self, seed: int, high: int = 3) -> str:
        """Open the episode; the parameters are the columns of a row. Returns what the model reads first."""
        self.low, self.high, self.tries = 1, high, 0
        self.secret, self.right, self.done = Random(seed).randint(1, high), False, False
        return f"Guess my number from 1 to {high}."

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: The guess.
        """
        self.tries += 1
        self.right = number == self.secret
        self.done = self.right or self.tries == 2  # ends the episode
        if number < self.secret:
            self.low = max(self.low, number + 1)
            return "higher"
        self.high = min(self.high, number - 1)
        return "lower"

    def get_reward(self) -> float:
        """Called once, at the end."""
        return float(self.right)

    def _oracle(self) -> tuple[str, dict[str, int]]:
        """The right call in this state: proves that tasks can be solved, and demonstrates."""
        return "guess", {"number": (self.low + self.high) // 2}
''',
    "tests/test_@name@.py": """\
from turnwise.environments.registry import load_family
from turnwise.testing import check_environment

import @name@


def test_the_environment_keeps_its_promises() -> None:
    lines = check_environment(lambda **changes: load_family("@name@:@Class@", changes))
    assert [line for line in lines if line.verdict == "fail"] == []


def test_a_right_guess_ends_the_episode() -> None:
    environment = @name@.@Class@()
    assert environment.reset(seed=1) == "Guess my number from 1 to 3."
    environment.guess(environment.secret)
    assert environment.done
    assert environment.get_reward() == 1.0
""",
    "tiny.toml": """\
# Trains a small model from random weights in some minutes on a CPU: turnwise train tiny.toml
environment = { name = "@name@", args = { random_calls = 2 } }
engine = { max_context = 64 }
rollout = { max_tokens = 64, max_turn_tokens = 12 }
sft = { steps = 40, num_demonstrations = 1024, batch_size = 32, lr = 1e-2 }
train = { steps = 100, lr = 4e-3 }
evaluate = { tasks = 300 }
""",
    "README.md": """\
# @name@

An environment for [Turnwise](https://pypi.org/project/turnwise/), in `@name@.py`.

    pip install -e .
    pytest
    turnwise check env @name@
    turnwise train tiny.toml

The model meets the rows that `reset` is called with; `environment.args.path` names a JSONL file of them.
""",
}
"""Path and text of every file, with the package's name for `@name@` and its class's name for `@Class@`."""


@app.callback()
def _group() -> None:
    """Make `env` a subcommand, even while it is the only one."""


@app.command()
def env(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the package and the environment; letters and digits.")
    ],
    folder: Annotated[Path, typer.Option("--in", help="Folder in which to create the package's folder.")] = Path(),
) -> None:
    """Write a package with an environment, a test and a recipe, to be changed into your own."""
    target = write_package(name, folder)
    for path in sorted(path for path in target.rglob("*") if path.is_file()):
        print(path)
    print(f"next: cd {target} && pip install -e . && pytest && turnwise train tiny.toml")


def write_package(name: str, folder: Path) -> Path:
    """Write the package `name` into a new folder of that name; returns the folder.

    Raises ConfigError for a name that is invalid or taken, StoreError if the folder cannot be written.
    """
    from turnwise.environments.registry import list_environments

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(f"name {name!r} cannot be imported; use lower-case letters, digits and underscores")
    taken = {each.name: each.source for each in list_environments()}
    if name in taken:
        raise ConfigError(f"name {name!r} is already used by an environment ({taken[name]}); choose another")
    target = folder / name
    if target.exists():
        raise ConfigError(f"{target} already exists; choose another name, or another folder with --in")
    owner = "Python" if name in sys.stdlib_module_names else ", ".join(packages_distributions().get(name, ()))
    if owner:
        raise ConfigError(f"name {name!r} is also a module of {owner}, which the package would hide; choose another")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    for path, text in FILES.items():
        values = {"@name@": name, "@Class@": class_name, "@version@": __version__}
        for mark, value in values.items():
            path, text = path.replace(mark, value), text.replace(mark, value)
        try:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(text, encoding="utf-8")
        except OSError as cause:
            raise StoreError(f"cannot write {target / path}: {cause.strerror}") from cause
    return target
