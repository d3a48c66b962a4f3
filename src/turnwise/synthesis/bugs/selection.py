"""Which tests judge a candidate: those that enter what it edits, and a few neighbours that must go on passing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.seeds import rng
from turnwise.repositories.repository import Repository

MAX_SCREENING = 60
"""Tests that a fork runs."""
MAX_CONFIRMING = 200
"""Tests that a confirmation runs, without the neighbours."""
MAX_TEST_S = 1.0
"""Seconds from which on a test takes no part: long ones are often those about time."""
NUM_NEIGHBOURS = 20
"""Tests of the same file's other functions that a confirmation runs as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Ids of tests, each in the order of the suite."""

    entering: tuple[str, ...]
    """Those that enter the edited function, or a method of the edited class; at most `MAX_CONFIRMING`."""
    screening: tuple[str, ...]
    """The part of `entering` that a fork runs."""
    neighbours: tuple[str, ...]
    """Those that enter the same file and not the function; if there is none, any others."""

    @property
    def confirming(self) -> tuple[str, ...]:
        """All that a confirmation runs."""
        return (*self.entering, *self.neighbours)


class TestIndex:
    """The tests of a repository that pass, by what they enter."""

    __test__ = False

    def __init__(self, repository: Repository) -> None:
        durations = repository.baseline.durations
        self.tests = tuple(test for test in repository.baseline.passing if durations.get(test, 0.0) <= MAX_TEST_S)
        self._order = {test: number for number, test in enumerate(self.tests)}
        self.by_function: dict[str, list[str]] = {}
        for test in self.tests:
            for function in repository.baseline.entered.get(test, ()):
                self.by_function.setdefault(function, []).append(test)
        self._by_path: dict[str, set[str]] = {}
        for function, tests in self.by_function.items():
            self._by_path.setdefault(function.split("::")[0], set()).update(tests)

    def select(self, target: str, *, seed: int) -> Selection:
        """The tests of an edit in the function or class `target`, as "path::qualified name"."""
        chance = rng(seed, "tests", target)
        entering = set(self.by_function.get(target, ()))
        if not entering:  # a class: its methods
            entering = {
                test
                for function, tests in self.by_function.items()
                if function.startswith(f"{target}.")
                for test in tests
            }
        chosen = self._sample(entering, MAX_CONFIRMING, chance)
        others = self._by_path.get(target.split("::")[0], set()) - entering or set(self.tests) - entering
        return Selection(
            entering=chosen,
            screening=self._sample(chosen, MAX_SCREENING, chance),
            neighbours=self._sample(others, NUM_NEIGHBOURS, chance),
        )

    def _sample(self, tests: Iterable[str], count: int, chance: random.Random) -> tuple[str, ...]:
        ordered = self.in_order(tests)
        if len(ordered) <= count:
            return ordered
        return self.in_order(chance.sample(ordered, count))

    def in_order(self, tests: Iterable[str]) -> tuple[str, ...]:
        """The tests without repetition, in the order of the suite."""
        return tuple(sorted(set(tests), key=self._order.__getitem__))


def cpu_limit_s(tests: Sequence[str], durations: Mapping[str, float]) -> int:
    """Processor seconds that a candidate may use for these tests: one, and four times what they took before."""
    return 1 + int(4 * sum(durations.get(test, 0.0) for test in tests) + 0.999)
