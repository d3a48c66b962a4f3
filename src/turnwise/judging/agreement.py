"""Measures before a run how far a judge agrees with labelled questions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnwise.core.errors import ConfigError
from turnwise.core.judging import Judge
from turnwise.core.verdicts import Verdict
from turnwise.judging.panel import try_judge
from turnwise.questions.labels import Agreement, Labelled, compute_agreement, name_answer


async def measure_agreement(judge: Judge, labelled: Sequence[Labelled]) -> Agreement:
    """Ask the judge every question, and compare. Raises ConfigError with the judge's reason if it answers none."""
    answers = await asyncio.gather(*(try_judge(judge, each.question) for each in labelled))
    verdicts = [answer if isinstance(answer, Verdict) else None for answer in answers]
    if not any(verdicts):
        raise ConfigError(f"none of {len(labelled)} labelled questions got a verdict; the first: {answers[0]}")
    said = [name_answer(verdict, each.question.form) for verdict, each in zip(verdicts, labelled, strict=True)]
    return compute_agreement([each.label for each in labelled], said)


def describe_agreement(found: Agreement, path: str) -> str:
    """Say how far a judge agrees, in one clause."""
    return (
        f"kappa {found.kappa:.2f} [{found.low:.2f}, {found.high:.2f}], {found.equal:.0%} equal, with {found.count} "
        f"labels of {path}"
    )
