"""How an environment asks a judge while it scores, and how the questions and verdicts of an episode are kept.

The run has judges by name (`[judges.NAME]`); each episode of an environment that takes judges gets its own
`EpisodeJudges`, whose judgements are stored with the trajectory. A later re-check of the reward reads them instead of
asking again (`StoredJudge`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol, runtime_checkable

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import RewardError
from turnwise.core.messages import Message, text_message, without_pixels
from turnwise.core.protocols import Environment, EnvironmentFamily, ScriptedPolicy, Split
from turnwise.core.types import Task
from turnwise.core.verdicts import NOTHING_USED, RATING, Form, Judgement, Question, Usage, Verdict, find_verdict


class NoVerdict(RewardError):
    """A judge was asked and there is no verdict; `usage` is what that took."""

    def __init__(self, text: str, usage: Usage = NOTHING_USED) -> None:
        super().__init__(text)
        self.usage = usage


class Judge(Protocol):
    """Scores what it is asked about: a model, a server, a function."""

    async def judge(self, question: Question) -> Verdict:
        """Return a verdict with a finite score. Raises RewardError if there is none; the reward is then Invalid and the
        episode is repeated."""
        ...

    async def close(self) -> None:
        """Free what it holds. Further calls do nothing."""
        ...


@runtime_checkable
class CheckedJudge(Judge, Protocol):
    """A judge that may be out of reach and can tell before the first question."""

    async def check(self) -> None:
        """Raise ConfigError with the remedy if it cannot judge."""
        ...


@runtime_checkable
class ChangingJudge(Judge, Protocol):
    """A judge whose verdicts change as it learns."""

    @property
    def version(self) -> int:
        """Number of the version that gives the next verdict; those of other versions are not repeated."""
        ...


@runtime_checkable
class BusyJudge(Judge, Protocol):
    """A judge that answers only so many questions at once."""

    @property
    def has_place(self) -> bool:
        """Whether a question would be asked at once."""
        ...


class Slot(Protocol):
    """A place among the open trajectories."""

    def free(self) -> AbstractContextManager[None]:
        """Let another trajectory have the place while the block runs."""
        ...


def free_slot(judge: Judge, slot: Slot | None) -> AbstractContextManager[None]:
    """Keep the slot free while the block asks the judge, unless the judge has no place for the question."""
    waits = isinstance(judge, BusyJudge) and not judge.has_place
    return nullcontext() if slot is None or waits else slot.free()


class EpisodeJudges:
    """The judges that one episode may ask."""

    def __init__(self, judges: Mapping[str, Judge], slot: Slot | None = None) -> None:
        """`slot` is free while a judge is asked that has a place for the question, so that a judge that cannot keep
        up does not gather open episodes; None if nothing waits for the slot."""
        self._judges, self._slot = judges, slot
        self.judgements: list[Judgement] = []
        """Every question, in the order of the answers."""
        self._asked: list[tuple[str, Question]] = []

    async def ask(
        self,
        judge: str,
        about: str | Sequence[Message],
        *,
        answers: Sequence[str] = (),
        rubric: str = "",
        form: Form = RATING,
        truth: float | None = None,
    ) -> Verdict:
        """Ask the judge of this name to score a text or a conversation, or to compare `answers` to it.

        An equal question asked again has another seed. `truth` is the right score where it is known: the judge does not
        see it, and the run measures how far it agrees. Raises RewardError if the recipe has no such judge, or if it
        gives no verdict.
        """
        if judge not in self._judges:
            known = ", ".join(self._judges)
            has = f"the recipe has {known}" if known else "there are no judges here"
            raise RewardError(f"no judge is named {judge!r}: {has}; use a recipe with [judges.{judge}]")
        messages = (text_message("user", about),) if isinstance(about, str) else tuple(about)
        question = Question(messages=messages, answers=tuple(answers), rubric=rubric, form=form)
        kept = replace(question, messages=tuple(map(without_pixels, messages)))
        number = self._asked.count((judge, kept))
        self._asked.append((judge, kept))
        question, kept = replace(question, seed=number), replace(kept, seed=number)
        try:
            with free_slot(self._judges[judge], self._slot):
                verdict = await self._judges[judge].judge(question)
        except RewardError as error:
            usage = error.usage if isinstance(error, NoVerdict) else NOTHING_USED
            self.judgements.append(
                Judgement(judge=judge, question=kept, verdict=None, problem=str(error), usage=usage, truth=truth)
            )
            raise
        self.judgements.append(
            Judgement(judge=judge, question=kept, verdict=verdict, usage=verdict.usage, truth=truth)
        )
        return verdict


@runtime_checkable
class JudgedEnvironment(Protocol):
    """Optional for an environment: its `score` may ask judges."""

    def use_judges(self, judges: EpisodeJudges) -> None:
        """Keep the judges of this episode. Called once, before the environment is opened."""
        ...


def seat_judges(environment: object, judges: Mapping[str, Judge], slot: Slot | None = None) -> EpisodeJudges:
    """Give an environment that takes judges those of a new episode. Returns them; an environment that takes none never
    asks."""
    seated = EpisodeJudges(judges, slot)
    if isinstance(environment, JudgedEnvironment):
        environment.use_judges(seated)
    return seated


class JudgedFamily:
    """Implements `EnvironmentFamily`: a family whose environments get these judges when they are built, for those who
    play without a run. Everything else is the family's."""

    def __init__(self, family: EnvironmentFamily, judges: Mapping[str, Judge]) -> None:
        self._family, self._judges = family, judges

    def task(self, split: Split, index: int) -> Task:
        """See `EnvironmentFamily.task`."""
        return self._family.task(split, index)

    def build_environment(self, task: Task) -> Environment | AskingEnvironment:
        """See `EnvironmentFamily.build_environment`."""
        environment = self._family.build_environment(task)
        seat_judges(environment, self._judges)
        return environment

    def policy(self, name: str) -> ScriptedPolicy:
        """See `EnvironmentFamily.policy`."""
        return self._family.policy(name)

    def texts(self, count: int) -> Sequence[str]:
        """See `EnvironmentFamily.texts`."""
        return self._family.texts(count)


class StoredJudge:
    """Implements `Judge`: repeats the verdicts that are stored with a trajectory."""

    def __init__(self, name: str, judgements: Sequence[Judgement]) -> None:
        self._name, self._judgements = name, judgements

    async def judge(self, question: Question) -> Verdict:
        """Return the stored verdict. Raises RewardError if this question was never asked."""
        verdict = find_verdict(self._judgements, self._name, question)
        if verdict is None:
            raise RewardError(f"the judge {self._name!r} was not asked this question in the stored episode")
        return verdict

    async def close(self) -> None:
        """Do nothing: nothing is held."""


def list_stored_judges(judgements: Sequence[Judgement]) -> dict[str, Judge]:
    """Return a judge for every name that was asked, which repeats its verdicts."""
    names = dict.fromkeys(each.judge for each in judgements)
    return {name: StoredJudge(name, judgements) for name in names}
