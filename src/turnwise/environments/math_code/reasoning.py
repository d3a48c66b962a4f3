"""Problems of the reasoning-gym package (an optional dependency) that need computing and have one short answer.

The package's data sets are generators: an entry is a function of its index alone. Their own scorers judge, in a
separate process (`rewards.math_verifier`), because they were not written for hostile answers.
"""

from __future__ import annotations

import importlib
import json
from functools import cache
from importlib.util import find_spec
from random import Random
from typing import Any

from turnwise.core.errors import ConfigError, DataError, boundary
from turnwise.core.protocols import Split
from turnwise.environments.math_code.problems import MAX_DRAWS, split_of

DATASETS = (
    "base_conversion",
    "chain_sum",
    "count_bits",
    "count_primes",
    "decimal_chain_sum",
    "dice",
    "fraction_simplification",
    "gcd",
    "lcm",
    "leg_counting",
    "letter_counting",
    "power_function",
    "products",
    "simple_equations",
)
"""Data sets of reasoning-gym that a few lines of code solve, with entries of plain JSON and scorers that evaluate no
code."""

_NUM_ENTRIES = 2**31


def check_installed() -> None:
    """Raise ConfigError with the remedy if reasoning-gym is not installed."""
    if find_spec("reasoning_gym") is None:
        raise ConfigError("mode='reasoning_gym' needs the package; install it with: pip install \"turnwise[math]\"")


def draw_entry(dataset: str, split: Split, random: Random) -> dict[str, Any]:
    """Draw an entry (`question`, `answer`, `metadata`) of a data set from `random`; splits share no question.

    Raises ConfigError if the package lacks the data set or refuses it, DataError if its entries are not plain JSON.
    """
    source = _open_dataset(dataset)
    for _ in range(MAX_DRAWS):
        with boundary(ConfigError, f"reasoning-gym's data set {dataset!r}"):
            entry: dict[str, Any] = source[random.randrange(_NUM_ENTRIES)]
        if split_of(entry["question"]) == split:
            try:
                plain: dict[str, Any] = json.loads(json.dumps(entry))
            except (TypeError, ValueError) as cause:
                raise DataError(
                    f"reasoning-gym's data set {dataset!r} returned an entry that is not plain JSON ({cause}); drop "
                    "the data set"
                ) from cause
            return plain
    raise ConfigError(
        f"no {split} entry of reasoning-gym's data set {dataset!r} in {MAX_DRAWS} draws; drop it from "
        "environment.args.kinds"
    )


@cache
def _open_dataset(name: str) -> Any:
    with boundary(ConfigError, f"reasoning-gym's data set {name!r} cannot be opened"):
        return importlib.import_module("reasoning_gym").create_dataset(name, size=_NUM_ENTRIES, seed=0)
