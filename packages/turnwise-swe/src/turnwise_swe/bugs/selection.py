"""Select the tests that judge a candidate: those that enter the edit, and a few neighbours that must keep passing."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from turnwise.core.seeds import rng
from turnwise_swe.repositories.repository import Repository

MAX_ENTERING = 40
"""Maximum number of tests that a fork runs among those that enter the edited code."""
NUM_NEIGHBOURS = 4
"""Maximum number of tests of the same file's other functions, which must keep passing."""
MAX_FAILING, MAX_NEAR = 10, 6
"""Maximum number of tests in FAIL_TO_PASS, and of tests in PASS_TO_PASS that enter the edited code: enough to notice a
careless repair, few enough for a short line and a fast grading."""
MAX_TEST_S = 1.0
"""Tests that take at least this many seconds are not used: slow tests are often about time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Ids of tests, each tuple in the order of the suite."""

    entering: tuple[str, ...]
    """Tests that enter the edited function, or a method of the edited class; at most `MAX_ENTERING`."""
    neighbours: tuple[str, ...]
    """Tests that enter the same file but not the function; if there are none, any other tests."""

    @property
    def tests(self) -> tuple[str, ...]:
        """All of these tests."""
        return (*self.entering, *self.neighbours)

    def narrow(self, failing: Collection[str], chance: random.Random) -> Selection:
        """The tests for confirmation after some failed: at most `MAX_FAILING` of those, and `MAX_NEAR` others that
        enter."""
        broken = choose([test for test in self.entering if test in failing], MAX_FAILING, chance)
        near = choose([test for test in self.entering if test not in failing], MAX_NEAR, chance)
        chosen = {*broken, *near}
        return replace(self, entering=tuple(test for test in self.entering if test in chosen))


def choose(tests: Sequence[str], count: int, chance: random.Random) -> tuple[str, ...]:
    """At most `count` of the tests, in their order."""
    if len(tests) <= count:
        return tuple(tests)
    return tuple(tests[number] for number in sorted(chance.sample(range(len(tests)), count)))


class TestIndex:
    """The passing tests of a repository, by what they enter."""

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
        """The tests for an edit in the function or class `target`, as "path::qualified name"."""
        chance = rng(seed, "tests", target)
        entering = set(self.by_function.get(target, ()))
        if not entering:  # a class: its methods
            entering = {
                test
                for function, tests in self.by_function.items()
                if function.startswith(f"{target}.")
                for test in tests
            }
        others = self._by_path.get(target.split("::")[0], set()) - entering or set(self.tests) - entering
        return Selection(
            entering=choose(self.in_order(entering), MAX_ENTERING, chance),
            neighbours=choose(self.in_order(others), NUM_NEIGHBOURS, chance),
        )

    def select_all(self, targets: Sequence[str], *, seed: int) -> Selection:
        """The tests for an edit of several functions."""
        selections = [self.select(target, seed=seed) for target in targets]
        entering = {test for selection in selections for test in selection.entering}
        neighbours = {test for selection in selections for test in selection.neighbours} - entering
        return Selection(entering=self.in_order(entering), neighbours=self.in_order(neighbours))

    def in_order(self, tests: Iterable[str]) -> tuple[str, ...]:
        """The tests without duplicates, in the order of the suite."""
        return tuple(sorted(set(tests), key=self._order.__getitem__))


def cpu_limit_s(tests: Sequence[str], durations: Mapping[str, float]) -> int:
    """Processor seconds that a candidate may use for these tests: one, plus four times what they took before."""
    return 1 + int(4 * sum(durations.get(test, 0.0) for test in tests) + 0.999)
