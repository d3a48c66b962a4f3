"""reasoning-gym: one question and one reply, whose text is the answer; the data set's own scorer judges it.

The scorers were not written for hostile answers, so they run in a separate process (`rewards.math_verifier`), and an
answer that one raises an exception for is wrong. Scorers that evaluate the answer as Python, or give full marks to
wrong ones, are not used: for their data sets, only the data set's own answer is right.
"""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, SkipValidation

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.packages import require_package
from turnwise.core.seeds import rng
from turnwise.environments.arguments import Seconds, check_weights, read_arguments
from turnwise.rewards.math_verifier import ComparisonRaised, MathVerifier, to_plain
from turnwise_adapters.game_family import GameArguments, GameFamily
from turnwise_adapters.text_game import MAX_ACTION_CHARS, Outcome, ReplyKind, TextGame

EVALUATING = frozenset(
    {
        *("binary_matrix", "countdown", "intermediate_integration", "n_queens", "polynomial_multiplication"),
        *("puzzle24", "simple_integration", "spiral_matrix", "string_insertion"),
    }
)
"""Data sets whose scorers call `eval` on the answer, or sympy's parser, which does so."""

MISTAKEN = frozenset({"coin_flip", "complex_arithmetic", "game_of_life_halting"})
"""Data sets whose scorers give full marks to wrong answers: to a number that has one digit in common, to NaN, and to
any text."""

_NUM_ENTRIES = 2**31
_LISTED = ("acre", "gsm_symbolic", "list_functions", "word_ladder")
"""Data sets that build a list as long as their size when they are opened, so their size is smaller."""
_NUM_LISTED = 10_000


class ReasoningGymArguments(GameArguments):
    """Which data sets, and how their entries are generated."""

    datasets: Annotated[Mapping[str, float] | None, SkipValidation] = None
    """Data set to weight, such as {"maze": 1.0}."""
    options: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Arguments of data sets by name, such as {"maze": {"max_dist": 5}}."""
    compare_timeout_s: float = Field(10.0, gt=0, le=3600)
    """Most seconds that the scorer may take for one answer."""
    tool_timeout_s: Seconds = 90.0
    """Most seconds that an answer may take in total: the scorer, and the start of its process, which imports the
    package."""
    reply: ReplyKind = "text"
    """As in `GameArguments`."""
    split_by: Literal["seed", "opening"] = "opening"
    """As in `GameArguments`."""


class ReasoningGymGame(TextGame):
    """One question."""

    def __init__(self, chosen: ReasoningGymArguments, weights: Mapping[str, float], verifier: MathVerifier) -> None:
        """`weights` are the checked weights of `chosen.datasets`."""
        self._chosen = chosen
        self._weights = weights
        self._verifier = verifier

    def open(self, seed: int) -> str:
        """Return the question. Raises ConfigError if the data set is unknown or refuses its options."""
        self._dataset = choose_dataset(self._weights, seed)
        self._entry = self._draw(rng("entry", seed))
        return str(self._entry["question"])

    def _draw(self, random: Random) -> Mapping[str, Any]:
        with boundary(ConfigError, f"reasoning-gym's data set {self._dataset!r}"):
            source = open_dataset(self._dataset, json.dumps(self._chosen.options.get(self._dataset, {})))
            entry: Mapping[str, Any] = source[random.randrange(count_entries(self._dataset))]
            return entry

    def step(self, action: str) -> Outcome:
        """Judge the answer: 1 if the scorer gives full marks, else 0."""
        right = self.judge(action)
        return Outcome(text="", reward=float(right), done=True, won=right)

    def judge(self, answer: str) -> bool:
        """Return whether the data set's scorer gives full marks. Raises RewardError if it hangs or dies, or raises for
        the data set's own answer too."""
        how = scorer_of(self._dataset, self._entry)
        if how == "scorer":
            return len(answer) <= MAX_ACTION_CHARS and self._ask_scorer(answer)
        return answer.split() == str(self._entry["answer"]).split()

    def _ask_scorer(self, answer: str) -> bool:
        try:
            return self._verifier.score(answer, self._dataset, self._entry)
        except ComparisonRaised:
            self._verifier.score(str(self._entry["answer"] or ""), self._dataset, self._entry)
            return False  # the scorer works, so the answer broke it

    def expert_action(self) -> str | None:
        """Return the data set's own answer; None for an entry without one."""
        return None if self._entry["answer"] is None else str(self._entry["answer"])

    def random_action(self, random: Random) -> str:
        """Return the answer to another question of the data set."""
        return str(self._draw(random)["answer"])


def choose_dataset(weights: Mapping[str, float], seed: int) -> str:
    """Return the data set that a seed chooses."""
    return rng("data set", seed).choices(list(weights), list(weights.values()))[0]


def scorer_of(dataset: str, entry: Mapping[str, Any]) -> Literal["scorer", "text"]:
    """Return who judges: the data set's scorer, or equality of words if the scorer would evaluate the answer, if it is
    mistaken, or if the entry cannot be sent to the scoring process as a Python literal."""
    if dataset in EVALUATING | MISTAKEN:
        return "text"
    try:
        return "scorer" if ast.literal_eval(repr(to_plain(entry))) == entry else "text"
    except (SyntaxError, ValueError):
        return "text"


@cache
def open_dataset(name: str, options: str) -> Any:
    """Open a data set with its options as JSON; its entries are a function of their index."""
    create = importlib.import_module("reasoning_gym").create_dataset
    return create(name, size=count_entries(name), seed=0, **json.loads(options))


def count_entries(name: str) -> int:
    """Return from how many entries of a data set tasks are drawn."""
    return _NUM_LISTED if name in _LISTED else _NUM_ENTRIES


def list_datasets() -> list[str]:
    """Return the names of all data sets except `composite`, which only combines others."""
    return sorted(set(importlib.import_module("reasoning_gym.factory").DATASETS) - {"composite"})


class ReasoningGym(GameFamily):
    """Implements `EnvironmentFamily`."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `ReasoningGymArguments`. Raises ConfigError."""
        chosen = read_arguments(ReasoningGymArguments, arguments)
        require_package("reasoning-gym", "0.1.20", "math")
        self._weights = check_weights("datasets", chosen.datasets, list_datasets())
        verifier = MathVerifier(timeout_s=chosen.compare_timeout_s)
        weights = self._weights
        super().__init__("reasoning_gym", "", chosen, lambda: ReasoningGymGame(chosen, weights, verifier))

    def kind_of(self, seed: int) -> str:
        """Return the name of the data set."""
        return choose_dataset(self._weights, seed)
