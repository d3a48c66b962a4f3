"""Judges made of other judges of the recipe: several that vote, and one that reads a debate."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.errors import ConfigError
from turnwise.core.judging import ChangingJudge, Judge, NoVerdict
from turnwise.core.messages import text_message
from turnwise.core.verdicts import NOTHING_USED, Question, Usage, Verdict
from turnwise.judging.judge_kind import JudgeKind, JudgeParts
from turnwise.questions.forms import argument


class EnsembleOptions(Section):
    """Options of kind = "ensemble"."""

    judges: list[str] = Field(min_length=2)
    """Names of other judges of the recipe. The score is the median of theirs."""
    min_verdicts: int | None = Field(None, ge=1)
    """Fewest verdicts for a verdict; unset means of all."""
    max_spread: float = Field(1.0, ge=0)
    """Largest difference of two of their scores; above it the ensemble abstains, and the reward is Invalid."""


class Ensemble:
    """Implements `ChangingJudge`: asks all members at once."""

    def __init__(self, members: Mapping[str, Judge], *, min_verdicts: int, max_spread: float) -> None:
        self._members, self._min_verdicts, self._max_spread = members, min_verdicts, max_spread

    @property
    def version(self) -> int:
        """Changes with each member's."""
        return sum_versions(list(self._members.values()))

    async def judge(self, question: Question) -> Verdict:
        """Return the median. Raises NoVerdict if too few members give a verdict, or if they differ too much."""
        asked = await asyncio.gather(*(try_judge(judge, question) for judge in self._members.values()))
        answers = dict(zip(self._members, asked, strict=True))
        given = {name: answer for name, answer in answers.items() if isinstance(answer, Verdict)}
        usage = reduce(Usage.plus, (answer.usage for answer in asked), NOTHING_USED)
        said = "; ".join(
            f"{name}: {answer.score:g}" if isinstance(answer, Verdict) else f"{name}: {answer}"
            for name, answer in answers.items()
        )
        if len(given) < self._min_verdicts:
            raise NoVerdict(
                f"{len(given)} of {len(asked)} gave a verdict, fewer than {self._min_verdicts} ({said})", usage
            )
        scores = [verdict.score for verdict in given.values()]
        if max(scores) - min(scores) > self._max_spread:
            raise NoVerdict(
                f"it abstains: the scores differ by more than max_spread={self._max_spread:g} ({said})", usage
            )
        marks = _vote([verdict.marks for verdict in given.values()])
        return Verdict(score=statistics.median(scores), marks=marks, text=said, usage=usage)

    async def close(self) -> None:
        """Do nothing: the run closes every judge once."""


class DebateOptions(Section):
    """Options of kind = "debate"."""

    debater: str
    """Name of the judge of the recipe that argues for both sides; it has to write (api, frozen, policy)."""
    judge: str
    """Name of the judge that reads the debate and decides."""
    rounds: int = Field(1, ge=1)
    """How often either side speaks; from the second round on it has read the other."""


SIDES = (
    "that it is good, and in a comparison that answer 1 is best",
    "that it is bad, and in a comparison that answer 1 is not best",
)


class Debate:
    """Implements `ChangingJudge`: the question is argued from two sides, and the judge reads it with the arguments
    after it. Both sides speak at once, so that neither has the last word."""

    def __init__(self, debater: Judge, judge: Judge, *, rounds: int) -> None:
        self._debater, self._judge, self._rounds = debater, judge, rounds

    @property
    def version(self) -> int:
        """Changes with either's."""
        return sum_versions([self._debater, self._judge])

    async def judge(self, question: Question) -> Verdict:
        """Return the judge's verdict. Raises NoVerdict if a side does not speak or the judge does not decide."""
        usage, heard = NOTHING_USED, question
        for _ in range(self._rounds):
            cases = [replace(heard, form=argument(side)) for side in SIDES]
            spoken = await asyncio.gather(*(try_judge(self._debater, case) for case in cases))
            usage = reduce(Usage.plus, (answer.usage for answer in spoken), usage)
            for answer in spoken:
                if not isinstance(answer, Verdict):
                    raise NoVerdict(f"a side of the debate is missing: {answer}", usage)
            texts = [answer.text for answer in spoken if isinstance(answer, Verdict)]
            sides = (f"Case {side}:\n{text}" for side, text in zip(SIDES, texts, strict=True))
            heard = replace(heard, messages=(*heard.messages, *(text_message("user", each) for each in sides)))
        decided = await try_judge(self._judge, heard)
        usage = usage.plus(decided.usage)
        if not isinstance(decided, Verdict):
            raise NoVerdict(str(decided), usage)
        return replace(decided, usage=usage)

    async def close(self) -> None:
        """Do nothing: the run closes every judge once."""


async def try_judge(judge: Judge, question: Question) -> Verdict | NoVerdict:
    """Return the verdict, or why there is none."""
    try:
        return await judge.judge(question)
    except NoVerdict as problem:
        return problem


def sum_versions(judges: Sequence[Judge]) -> int:
    """Return a number that grows whenever one of the judges changes."""
    return sum(judge.version for judge in judges if isinstance(judge, ChangingJudge))


def _vote(verdicts: Sequence[tuple[tuple[str, str], ...]]) -> tuple[tuple[str, str], ...]:
    """For every mark the commonest value, the first of them in the order of the members; numbers: their median."""
    voted = []
    for written in zip(*verdicts, strict=False):
        name, values = written[0][0], [value for _, value in written]
        try:
            voted.append((name, f"{statistics.median(float(value) for value in values):g}"))
        except ValueError:
            voted.append((name, statistics.mode(values)))
    return tuple(voted)


def build_ensemble(parts: JudgeParts) -> Ensemble:
    """Build it from judges of the recipe. Raises ConfigError for more wanted verdicts than members."""
    options: EnsembleOptions = parts.options
    if len(set(options.judges)) < len(options.judges):
        raise ConfigError(f"judges.{parts.name}.options.judges names a judge twice; name each once")
    wanted = options.min_verdicts or len(options.judges)
    if wanted > len(options.judges):
        raise ConfigError(
            f"judges.{parts.name}.options.min_verdicts={wanted} is more than its {len(options.judges)} judges; lower it"
        )
    members = {name: parts.find_judge(name) for name in options.judges}
    return Ensemble(members, min_verdicts=wanted, max_spread=options.max_spread)


def build_debate(parts: JudgeParts) -> Debate:
    """Build it from judges of the recipe."""
    options: DebateOptions = parts.options
    return Debate(parts.find_judge(options.debater), parts.find_judge(options.judge), rounds=options.rounds)


ENSEMBLE = JudgeKind(
    name="ensemble", summary="the median of other judges of the recipe", options=EnsembleOptions, build=build_ensemble
)
DEBATE = JudgeKind(
    name="debate",
    summary="another judge of the recipe, after it has read a case for and a case against",
    options=DebateOptions,
    build=build_debate,
)
