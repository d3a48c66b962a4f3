"""The passages of the user's own corpus."""

from __future__ import annotations

import json
from collections.abc import Sequence

from turnwise.core.errors import ToolFailure
from turnwise.core.judging import EpisodeJudges
from turnwise.core.types import Reward, Scored, Task, ToolRecord
from turnwise.environments.search_qa.retrieval import Retriever
from turnwise.rewards.answers import exact_match
from turnwise_rewards.grounding.claims import read_section_claims
from turnwise_rewards.grounding.judged import JudgedSupport, check_words, judge_claims
from turnwise_rewards.grounding.ledger import build_ledger
from turnwise_synthesis.research.checked import CheckedReport, count_words
from turnwise_synthesis.research.desk import NOTHING_FOUND, describe_episode, find_passages, list_sections
from turnwise_synthesis.research.files.arguments import FileArguments
from turnwise_synthesis.research.reward import compute_research

ANSWER = "Answer"
"""Heading of an answer that is the whole report."""
MARGIN_CHARS = 120
"""Characters of a result besides its text."""


class FileSources:
    """Implements `Sources`. Results are JSON, so that a passage cannot pass for another one."""

    has_titles = False
    """See `Sources`."""

    def __init__(self, *, chosen: FileArguments, retriever: Retriever) -> None:
        self._chosen, self._retriever = chosen, retriever
        self._question = ""
        self._golds: tuple[str, ...] = ()

    def begin(self, task: Task, seed: int) -> None:
        """See `Sources`."""
        self._question, self._golds = task.payload["question"], tuple(task.payload["answers"])

    def search(self, query: str) -> str:
        """See `Sources`."""
        found = self._retriever.search(query, self._chosen.top_k)
        if not found:
            return NOTHING_FOUND
        room = max(1, self._chosen.max_observation_chars // len(found) - MARGIN_CHARS)
        rows = [{"id": page.id, "title": page.title[:80], "text": page.text[:room]} for page in found]
        return json.dumps(rows, ensure_ascii=False)

    def open(self, page: str) -> str:
        """Raise ToolFailure: a search shows whole passages."""
        raise ToolFailure("a search shows whole passages; there is nothing to open")

    async def score(self, records: Sequence[ToolRecord], answer: str | None, judges: EpisodeJudges) -> Reward:
        """Return the reward. Parts: those of `CheckedReport` and `describe_episode`; `success`: the answer is right,
        all expected claims are covered and nothing is bad.

        Raises RewardError where the judge gives no verdict."""
        report = await check_own_report(records, answer, self._question, self._chosen, judges)
        is_right = answer is not None and bool(exact_match(answer, self._golds))
        total = compute_research(report, self._chosen.weights, is_right=is_right, max_words=self._chosen.max_words)
        parts = {
            "success": float(is_right and report.covered == 1 and report.precision == 1),
            **describe_episode(records, is_right=is_right),
            **report.parts(),
        }
        return Scored.of(total, parts)


async def check_own_report(
    records: Sequence[ToolRecord],
    answer: str | None,
    question: str,
    chosen: FileArguments,
    judges: EpisodeJudges,
) -> CheckedReport:
    """Check an episode's report by the judge, or as quotations if none is named. Raises as `EpisodeJudges.ask`."""
    sections, passages = find_sections(records, answer), find_passages(records)
    claims = [claim for _, each in read_section_claims(sections) for claim in each]
    limits = chosen.limits_of(chosen.expected)
    if chosen.judge:
        support = JudgedSupport(judges, chosen.judge)
        ledger = await judge_claims(
            claims, passages, support, expected=chosen.expected, question=question, limits=limits
        )
    else:
        ledger = build_ledger(claims, passages, check_words, expected=chosen.expected, question=question, limits=limits)
    return CheckedReport(claims=ledger, disputes=None, num_disputed=0, num_joined=0, num_words=count_words(sections))


def find_sections(records: Sequence[ToolRecord], answer: str | None) -> dict[str, str]:
    """Return the sections of a report by heading; of an agent that wrote none, such as one that has a search and no
    other tool, the answer is the report."""
    return list_sections(records) or ({} if answer is None else {ANSWER: answer})
