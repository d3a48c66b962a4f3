"""Judges of the training process, asked from rollout processes: a judge's places, cache and budget count once in a run,
and an episode that is being judged holds no slot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from turnwise.core.errors import RewardError, boundary
from turnwise.core.judging import Judge, NoVerdict, Slot, free_slot
from turnwise.core.messages import list_images
from turnwise.core.pictures import Pictures
from turnwise.core.verdicts import NOTHING_USED, Judgement, Question, Verdict
from turnwise.store.rows import judgement_from_json, judgement_to_json

Ask = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends a question to the training process and returns its answer."""


class DistantJudge:
    """Implements `Judge`: the judge of this name in the training process. Pictures in a question go through the run's
    store."""

    def __init__(self, name: str, ask: Ask, pictures: Pictures) -> None:
        self._name, self._ask, self._pictures = name, ask, pictures

    async def judge(self, question: Question) -> Verdict:
        """Return its verdict. Raises NoVerdict as it does, and StoreError for a picture that cannot be kept."""
        for part in list_images(question.messages):
            self._pictures.put(part)
        asked = Judgement(judge=self._name, question=question, verdict=None)
        answer = judgement_from_json(await self._ask(judgement_to_json(asked)))
        if answer.verdict is None:
            raise NoVerdict(answer.problem, answer.usage)
        return answer.verdict

    async def close(self) -> None:
        """Do nothing: the training process has the judge."""


async def answer_question(
    fields: Mapping[str, Any], judges: Mapping[str, Judge], slot: Slot | None
) -> Mapping[str, Any]:
    """Ask the judge that a message of a `DistantJudge` names and return the message that answers it; the `slot` of its
    episode is free meanwhile."""
    asked = judgement_from_json(fields)
    judge = judges[asked.judge]
    try:
        with boundary(RewardError, f"judge {asked.judge!r} failed"), free_slot(judge, slot):
            verdict = await judge.judge(asked.question)
    except RewardError as error:
        usage = error.usage if isinstance(error, NoVerdict) else NOTHING_USED
        return judgement_to_json(replace(asked, problem=str(error), usage=usage))
    return judgement_to_json(replace(asked, verdict=verdict, usage=verdict.usage))
