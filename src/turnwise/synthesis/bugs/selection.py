"""Which tests judge a candidate: those that enter what it edits, and a few neighbours that must go on passing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.seeds import rng
from turnwise.repositories.repository import Repository
from turnwise.synthesis.bugs.candidates import Candidate

MAX_SCREENING = 60
"""Tests that a fork runs."""
MAX_CONFIRMING = 200
"""Tests that a confirmation runs, without the neighbours."""
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
        self.tests = repository.baseline.passing
        self._order = {test: number for number, test in enumerate(self.tests)}
        self.by_function: dict[str, list[str]] = {}
        for test in self.tests:
            for function in repository.baseline.entered.get(test, ()):
                self.by_function.setdefault(function, []).append(test)
        self._by_path: dict[str, set[str]] = {}
        for function, tests in self.by_function.items():
            self._by_path.setdefault(function.split("::")[0], set()).update(tests)

    def select(self, candidate: Candidate, *, seed: int) -> Selection:
        """The tests of one candidate; the random choice depends on the seed and the function only."""
        target = f"{candidate.path}::{candidate.qualified_name}"
        chance = rng(seed, "tests", target)
        entering = set(self.by_function.get(target, ()))
        if not entering:  # a class: its methods
            entering = {
                test
                for function, tests in self.by_function.items()
                if function.startswith(f"{target}.")
                for test in tests
            }
        chosen = self._sample(entering, MAX_CONFIRMING, chance.random)
        others = self._by_path.get(candidate.path, set()) - entering or set(self.tests) - entering
        return Selection(
            entering=chosen,
            screening=self._sample(chosen, MAX_SCREENING, chance.random),
            neighbours=self._sample(others, NUM_NEIGHBOURS, chance.random),
        )

    def _sample(self, tests: Iterable[str], count: int, random: object) -> tuple[str, ...]:
        ordered = sorted(tests, key=self._order.__getitem__)
        keys = {test: random() for test in ordered}  # type: ignore[operator]
        kept = set(sorted(ordered, key=keys.__getitem__)[:count])
        return tuple(test for test in ordered if test in kept)


def cpu_limit_s(tests: Sequence[str], durations: Mapping[str, float]) -> int:
    """Processor seconds that a candidate may use for these tests: two, and four times what they took before."""
    return 2 + int(4 * sum(durations.get(test, 0.0) for test in tests) + 0.999)
