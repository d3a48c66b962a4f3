"""Recipes that come with Turnwise and with installed packages: their short names, their files, the data they need.

A package offers a folder of recipes in the entry-point group `turnwise.recipes`; `games/kuhn.toml` in it is the recipe
`games/kuhn`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.offers import Offer, import_object, list_offers
from turnwise.core.packages import describe_home

GROUP = "turnwise.recipes"
"""An entry point is the path of a folder."""
FOLDER = "recipes"
"""The folder that recipes are in, as documents and data paths name it."""
OWN = "turnwise"
"""The package with the recipes of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """A recipe of an installed package."""

    name: str
    """Its folder and file, without suffix: `search_r1/tiny`."""
    root: Path
    """The package's folder of recipes."""
    package: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.root / f"{self.name}.toml"

    def summarize(self) -> str:
        """What its first comment says it is: the first clause, or the first sentence if that clause is very short."""
        lines = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            lines.append(line.lstrip("# "))
        text = " ".join(lines)
        clause = re.split(r": |\. |\.$", text)[0]
        return clause if len(clause.split()) > 2 else re.split(r"\. |\.$", text)[0]


def list_shipped() -> tuple[list[Shipped], list[str]]:
    """Every recipe that is installed, this package's first, and a line per package whose recipes cannot be listed.

    A folder that several entry points name is listed once."""
    packages, broken = {Path(__file__).parents[1] / FOLDER: OWN}, []
    for offer in list_offers(GROUP):
        try:
            packages.setdefault(_read_folder(offer).resolve(), offer.package)
        except ConfigError as cause:
            broken.append(str(cause))
    return [recipe for root, package in packages.items() for recipe in _list_folder(root, package)], broken


def _read_folder(offer: Offer) -> Path:
    """The folder that an offer names. Raises ConfigError if it cannot be imported or is no folder."""
    folder = import_object(FOLDER, offer.name, offer)
    if isinstance(folder, str | Path) and Path(folder).is_dir():
        return Path(folder)
    raise ConfigError(
        f"{FOLDER}={offer.name!r} of the package {offer.package} ({offer.path}) is {str(folder)!r:.80}; name the path "
        "of a folder of recipes"
    )


def _list_folder(root: Path, package: str) -> Iterator[Shipped]:
    for path in sorted(root.rglob("*.toml")):
        yield Shipped(name=path.relative_to(root).with_suffix("").as_posix(), root=root, package=package)


def find_shipped(name: str) -> Shipped:
    """The recipe with a short name such as `search_r1/tiny`; `recipes/search_r1/tiny.toml` names it too.

    Raises ConfigError if there is none, or if several packages have it."""
    short = name.removeprefix("./").removeprefix(f"{FOLDER}/").removesuffix(".toml")
    shipped, broken = list_shipped()
    matches = [each for each in shipped if each.name == short]
    if len(matches) > 1:
        owners = " and ".join(f"{each.package} ({each.path})" for each in matches)
        raise ConfigError(f"recipe {name!r} is offered several times: {owners}; name the file of one")
    if not matches:
        home = describe_home(GROUP, short.partition("/")[0]) if "/" in short else ""
        near = difflib.get_close_matches(short, [each.name for each in shipped], n=1, cutoff=0.8)
        hint = f"did you mean {near[0]!r}?" if near else "`turnwise recipes` lists theirs"
        remedy = home or f"does not exist, and no installed package has it; {hint}"
        raise ConfigError("; ".join([f"recipe {name!r} {remedy}", *broken]))
    return matches[0]


def is_recipe(name: str) -> bool:
    """Whether a name on a command line is that of a recipe, and not of an environment."""
    return name.endswith(".toml") or "/" in name


def place_data(table: Any, root: Path) -> Any:
    """A recipe's tables in which every text that names a file of the folder `root` of recipes
    (`recipes/mcp/train.jsonl`), and no file here, is that file's path."""
    if isinstance(table, dict):
        return {name: place_data(value, root) for name, value in table.items()}
    if isinstance(table, list):
        return [place_data(value, root) for value in table]
    if isinstance(table, str) and (file := find_data(table, root)) and not Path(table).exists():
        return str(file)
    return table


def list_data(table: Any, root: Path) -> Iterator[Path]:
    """The files of a folder of recipes that a recipe's tables name."""
    if isinstance(table, dict | list):
        for value in table.values() if isinstance(table, dict) else table:
            yield from list_data(value, root)
    elif isinstance(table, str) and (file := find_data(table, root)):
        yield file


def find_data(text: str, root: Path) -> Path | None:
    """The file that a text names, `recipes/` being the folder `root`; None if it names none."""
    if not text.startswith(f"{FOLDER}/") or "\0" in text or len(text) > 200:
        return None
    file = root / text.removeprefix(f"{FOLDER}/")
    return file if file.is_file() and ".." not in file.parts else None
