"""Several environment families in one run, interleaved by weight."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import (
    Environment,
    EnvironmentFamily,
    GoldAnswers,
    Opinion,
    ScriptedPolicy,
    SecondOpinion,
    Split,
)
from turnwise.core.types import Message, Task
from turnwise.environments.arguments import check_index


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One family of a mixture."""

    family: EnvironmentFamily
    weight: float
    """Weight above 0; the family's share of the tasks is its weight divided by the sum of all weights."""


class Interleaving:
    """An endless sequence of labels: among any first n, each label occurs `n * share` times, with a deviation below
    one.

    The j-th occurrence of a label (from 1) lies at a position from `floor((j - 1) / share)` to `ceil(j / share) - 1`;
    of the labels allowed at a position, the one with the earliest deadline comes first, with ties in alphabetical
    order. Unit jobs with such windows always fit on one machine in that order, since the shares sum to 1. The weights
    are read as decimal fractions and the arithmetic is exact, so that the sequence repeats after a whole number of
    positions.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        """Raises ConfigError if there is no weight, or one is not a finite number above 0."""
        for label, weight in weights.items():
            if isinstance(weight, bool) or not (math.isfinite(weight) and weight > 0):
                raise ConfigError(f"the weight of {label!r} is {weight!r}; it must be a finite number above 0")
        if not weights:
            raise ConfigError("a mixture needs at least one family; add families with weights")
        self._labels = sorted(weights)
        exact = [Fraction(repr(weights[label])) for label in self._labels]
        shares = [weight / sum(exact) for weight in exact]
        self._period = math.lcm(*(share.denominator for share in shares))
        self._quotas = [int(share * self._period) for share in shares]
        """Occurrences of each label per period."""
        self._counts = [0] * len(shares)
        self._places: list[tuple[int, tuple[int, ...]]] = []
        """(index of the label, how often each label occurs before) per position of the period, as far as computed."""
        self._lock = threading.Lock()

    def place(self, index: int) -> tuple[str, dict[str, int]]:
        """Return the label at a position, from 0, and how often each label occurs before it."""
        rounds, position = divmod(index, self._period)
        with self._lock:
            while len(self._places) <= position:
                self._extend()
            at, counts = self._places[position]
        totals = (rounds * quota + count for quota, count in zip(self._quotas, counts, strict=True))
        return self._labels[at], dict(zip(self._labels, totals, strict=True))

    def _extend(self) -> None:
        position = len(self._places)
        deadlines = [
            (-(-(count + 1) * self._period // quota), at)
            for at, (count, quota) in enumerate(zip(self._counts, self._quotas, strict=True))
            if count * self._period // quota <= position
        ]
        _, chosen = min(deadlines)
        self._places.append((chosen, tuple(self._counts)))
        self._counts[chosen] += 1


class MixedFamily:
    """Implements `EnvironmentFamily`: the tasks of several families, interleaved by weight.

    Each family's tasks come in their own order without gaps, so splits stay disjoint. `Task.environment` is the label
    of the family, to which every call about the task goes. A mixture with a finite data set ends when that set has no
    task for its next place.
    """

    def __init__(self, members: Mapping[str, Member]) -> None:
        """`members` by label, at least one. Use `mix_families`, which also offers what all members offer."""
        self._interleaving = Interleaving({label: member.weight for label, member in members.items()})
        self.families: Mapping[str, EnvironmentFamily] = {label: members[label].family for label in sorted(members)}
        """The families by label."""
        self._reached: dict[tuple[Split, str], int] = {}
        """Largest index at which a family is known to have a task."""

    def task(self, split: Split, index: int) -> Task:
        """Return the index-th task of a split. Raises IndexError for a negative index, or if the mixture has ended."""
        check_index(split, index)
        chosen, counts = self._interleaving.place(index)
        for label, count in counts.items():
            if count - 1 > self._reached.get((split, label), -1):
                self._take(split, label, count - 1, index)
        task = self._take(split, chosen, counts[chosen], index)
        return task if task.environment == chosen else replace(task, environment=chosen, id="")

    def _take(self, split: Split, label: str, inner: int, index: int) -> Task:
        try:
            task = self.families[label].task(split, inner)
        except IndexError as end:
            raise IndexError(
                f"task {index} of split {split!r}: the mixture ends there, because family {label!r} has no task "
                f"{inner} ({end})"
            ) from None
        self._reached[split, label] = max(inner, self._reached.get((split, label), -1))
        return task

    def build_environment(self, task: Task) -> Environment | AskingEnvironment:
        """Build a fresh environment of the task's family."""
        return self.family_of(task).build_environment(task)

    def policy(self, name: str) -> ScriptedPolicy:
        """Return the families' policies of this name, each used for its own tasks. Raises ConfigError if a family has
        none."""
        return _MixedPolicy(self, {label: family.policy(name) for label, family in self.families.items()})

    def texts(self, count: int) -> list[str]:
        """Return `count` texts of which each family has its share, in the order of the tasks."""
        _, shares = self._interleaving.place(count)
        texts = {label: self.families[label].texts(share) for label, share in shares.items() if share}
        places = map(self._interleaving.place, range(count))
        return [texts[label][counts[label]] for label, counts in places]

    def place(self, split: Split, index: int) -> str | None:
        """Return file and line of a task; None if its family's tasks do not come from files."""
        chosen, counts = self._interleaving.place(index)
        find = getattr(self.families[chosen], "place", None)
        return None if find is None else find(split, counts[chosen])

    async def give_opinion(self, task: Task, replies: Sequence[Message]) -> Opinion | None:
        """Return the second opinion of the task's family; None if it offers none."""
        family = self.family_of(task)
        return await family.give_opinion(task, replies) if isinstance(family, SecondOpinion) else None

    def family_of(self, task: Task) -> EnvironmentFamily:
        """Return the family that made a task. Raises ConfigError if none did."""
        if task.environment not in self.families:
            raise ConfigError(
                f"task {task.id} belongs to environment {task.environment!r}; this mixture has "
                f"{', '.join(self.families)}"
            )
        return self.families[task.environment]


class _MixedFamilyWithAnswers(MixedFamily):
    """A mixture in which every family also implements `GoldAnswers`."""

    def gold_answer(self, task: Task) -> str:
        """Return the task's right answer according to its family."""
        return self._answers_of(task).gold_answer(task)

    def answer_reply(self, task: Task, answer: str) -> Message:
        """Return the reply that states the answer, in the form of the task's family."""
        return self._answers_of(task).answer_reply(task, answer)

    def _answers_of(self, task: Task) -> GoldAnswers:
        family = self.family_of(task)
        assert isinstance(family, GoldAnswers)  # mix_families has checked it
        return family


def mix_families(members: Mapping[str, Member]) -> MixedFamily:
    """Mix families by label; the mixture implements `GoldAnswers` if all of them do.

    Raises ConfigError if there is no family or a weight is not a finite number above 0.
    """
    answers = all(isinstance(member.family, GoldAnswers) for member in members.values())
    return _MixedFamilyWithAnswers(members) if answers else MixedFamily(members)


def list_families(family: EnvironmentFamily) -> Iterable[EnvironmentFamily]:
    """Return the families of a mixture, or the one family, for checks of each."""
    return family.families.values() if isinstance(family, MixedFamily) else (family,)


class _MixedPolicy:
    """Implements `ScriptedPolicy`: uses for every task the policy of its family."""

    def __init__(self, family: MixedFamily, policies: Mapping[str, ScriptedPolicy]) -> None:
        self._family = family
        self._policies = policies

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        self._family.family_of(task)
        return self._policies[task.environment].reply(task, messages, rng)
