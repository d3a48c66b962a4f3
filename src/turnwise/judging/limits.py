"""What the run adds to every judge: places, a deadline, repetitions, and a check of what it answers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from turnwise.core.errors import RewardError, TurnwiseError, boundary
from turnwise.core.judging import CheckedJudge, Judge
from turnwise.core.returned import NoNumber, read_number
from turnwise.core.seeds import derive_seed
from turnwise.core.verdicts import Question, Verdict


class LimitedJudge:
    """Implements `Judge`. Use it in one event loop only."""

    def __init__(
        self, judge: Judge, *, name: str, max_concurrent: int, timeout_s: float, max_retries: int, seed: int
    ) -> None:
        """`timeout_s` is the deadline of one attempt, which starts when the judge has a free place."""
        self._judge, self._name, self._seed = judge, name, seed
        self._places = asyncio.Semaphore(max_concurrent)
        self._timeout_s, self._max_retries = timeout_s, max_retries

    async def judge(self, question: Question) -> Verdict:
        """Return the judge's verdict, checked. Raises RewardError naming the judge after `max_retries` repetitions
        without one."""
        problem = ""
        for number in range(self._max_retries + 1):
            seed = derive_seed(self._seed, "judge", self._name, question.seed, number)
            async with self._places:
                try:
                    return await self._attempt(replace(question, seed=seed))
                except TurnwiseError as error:
                    problem = str(error)
        times = f" ({self._max_retries + 1} attempts)" if self._max_retries else ""
        raise RewardError(f"judge {self._name!r} gave no verdict{times}: {problem}")

    async def _attempt(self, question: Question) -> Verdict:
        started = time.perf_counter()
        deadline = asyncio.timeout(self._timeout_s)
        try:
            with boundary(RewardError, "it failed"):
                async with deadline:
                    given: object = await self._judge.judge(question)
        except RewardError:
            if deadline.expired():
                raise RewardError(f"it took longer than judges.{self._name}.timeout_s={self._timeout_s:g}") from None
            raise
        return replace(read_verdict(given), seconds=time.perf_counter() - started)

    async def check(self) -> bool:
        """Check the judge, if it can be checked, and return whether it can. Raises as `CheckedJudge.check`."""
        if not isinstance(self._judge, CheckedJudge):
            return False
        await self._judge.check()
        return True

    async def close(self) -> None:
        """Close the judge."""
        await self._judge.close()


def read_verdict(given: object) -> Verdict:
    """Return a verdict, or a number as one. Raises RewardError saying what it is instead."""
    verdict = given if isinstance(given, Verdict) else None
    try:
        score = read_number(given if verdict is None else verdict.score)
    except NoNumber as problem:
        raise RewardError(f"its score is {problem}") from None
    return Verdict(score=score) if verdict is None else replace(verdict, score=score)
