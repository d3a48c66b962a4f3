"""What the run adds to every judge: places, a deadline, repetitions, a cache, an account of what it costs, and a check
of what it answers."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass, replace

from turnwise.core.errors import RequestRefused, RewardError, TurnwiseError, boundary
from turnwise.core.judging import ChangingJudge, CheckedJudge, Judge, NoVerdict
from turnwise.core.returned import NoNumber, read_number
from turnwise.core.seeds import derive_seed
from turnwise.core.verdicts import NOTHING_USED, Question, Usage, Verdict

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a judge costs, and how much that may be."""

    prompt_price: float = 0.0
    """Of a million tokens; so is `reply_price`."""
    reply_price: float = 0.0
    budget: float | None = None
    """Most that may be spent; None is unlimited."""

    def charge(self, usage: Usage) -> Usage:
        """Return the usage with what its tokens cost."""
        cost = (usage.prompt_tokens * self.prompt_price + usage.reply_tokens * self.reply_price) / _MILLION
        return replace(usage, cost=usage.cost + cost)


class LimitedJudge:
    """Implements `Judge`. Use it in one event loop only."""

    def __init__(
        self,
        judge: Judge,
        *,
        name: str,
        max_concurrent: int,
        timeout_s: float,
        max_retries: int,
        seed: int,
        cache: int = 0,
        prices: Prices = Prices(),
    ) -> None:
        """`timeout_s` is the deadline of one attempt, which starts when the judge has a free place; `cache` is the most
        verdicts that are kept."""
        self._judge, self._name, self._seed = judge, name, seed
        self._places = asyncio.Semaphore(max_concurrent)
        self._timeout_s, self._max_retries = timeout_s, max_retries
        self._cache, self._prices = cache, prices
        self._kept: OrderedDict[str, asyncio.Task[Verdict]] = OrderedDict()
        """By digest of the question and the judge's version, the latest used at the end; questions that are being asked
        too."""
        self.spent = 0.0
        """Money spent so far; a run that is continued begins with what it has spent."""
        self.asks: frozenset[str] = frozenset()
        """Judges of the recipe that it asks, directly or through others."""
        self.is_policy = False
        """Whether it or one that it asks is the policy that learns."""

    @property
    def version(self) -> int:
        """See `ChangingJudge.version`; 0 for a judge that stays the same."""
        return self._judge.version if isinstance(self._judge, ChangingJudge) else 0

    @property
    def has_place(self) -> bool:
        """See `BusyJudge.has_place`."""
        return not self._places.locked()

    async def judge(self, question: Question) -> Verdict:
        """Return the judge's verdict, checked. An equal question has an equal verdict: from the cache, or of the
        request that is under way. Raises NoVerdict naming the judge after `max_retries` repetitions without one, and
        where the budget is spent."""
        if not self._cache:
            return await self._ask(question)
        key = hashlib.sha256(f"{self.version} {question!r}".encode("utf-8", "surrogatepass")).hexdigest()
        asked = self._kept.get(key)
        if asked is None:
            asked = self._kept[key] = asyncio.create_task(self._ask(question))
            asked.add_done_callback(lambda done: self._settle(key, done))
            return await asyncio.shield(asked)
        self._kept.move_to_end(key)
        try:
            return replace(await asyncio.shield(asked), usage=NOTHING_USED, seconds=0.0)
        except NoVerdict as problem:  # whoever asked first has the account of it
            raise NoVerdict(str(problem)) from None

    def _settle(self, key: str, asked: asyncio.Task[Verdict]) -> None:
        """Keep a verdict, forget a failure, and forget the verdicts that were not used for longest."""
        if asked.cancelled() or asked.exception() is not None:
            self._kept.pop(key, None)
        while len(self._kept) > self._cache and (done := next((k for k, v in self._kept.items() if v.done()), None)):
            del self._kept[done]

    async def _ask(self, question: Question) -> Verdict:
        problem, usage = "", NOTHING_USED
        for number in range(self._max_retries + 1):
            seed = derive_seed(self._seed, "judge", self._name, question.seed, number)
            async with self._places:
                if self._prices.budget is not None and self.spent >= self._prices.budget:
                    raise NoVerdict(
                        f"judge {self._name!r} has cost {self.spent:.4g}, and judges.{self._name}.budget="
                        f"{self._prices.budget:g} is spent; raise it",
                        usage,
                    )
                try:
                    verdict = await self._attempt(replace(question, seed=seed))
                except RequestRefused as error:  # it would be refused again
                    raise NoVerdict(f"judge {self._name!r} gave no verdict: {error}", usage.plus(Usage())) from None
                except TurnwiseError as error:
                    problem = str(error)
                    usage = usage.plus(self._charge(error.usage if isinstance(error, NoVerdict) else Usage()))
                    continue
                usage = usage.plus(self._charge(verdict.usage))
                return replace(verdict, usage=usage)
        times = f" ({self._max_retries + 1} attempts)" if self._max_retries else ""
        raise NoVerdict(f"judge {self._name!r} gave no verdict{times}: {problem}", usage)

    def _charge(self, usage: Usage) -> Usage:
        charged = replace(self._prices.charge(usage), attempts=1)
        self.spent += charged.cost
        return charged

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
        """Close the judge; questions that are under way end."""
        for asked in self._kept.values():
            asked.cancel()
        self._kept.clear()
        await self._judge.close()


def read_verdict(given: object) -> Verdict:
    """Return a verdict, or a number as one. Raises RewardError saying what it is instead."""
    verdict = given if isinstance(given, Verdict) else None
    try:
        score = read_number(given if verdict is None else verdict.score)
    except NoNumber as problem:
        raise RewardError(f"its score is {problem}") from None
    return Verdict(score=score) if verdict is None else replace(verdict, score=score)
