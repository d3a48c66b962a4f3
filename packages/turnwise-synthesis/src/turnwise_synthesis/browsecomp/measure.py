"""What an inverted question is worth: is it hard to find and easy to check?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise_synthesis.browsecomp.invert import Inverted, find_needless
from turnwise_synthesis.shaper.scene import Scene
from turnwise_synthesis.shaper.solver import is_member
from turnwise_synthesis.shaper.verdict import MAX_SEARCHES, build_searcher, count_searches
from turnwise_synthesis.shaper.wordings import write_question


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Figures over some questions."""

    count: int
    recalled: int
    """Questions of which one search with their whole text finds a passage that names the answer."""
    needless: int
    """Questions with a condition that can be left out."""
    found: int
    """Questions that the searching solver answers."""
    find_searches: float | None
    """Mean searches that it needs for these; None if there are none."""
    check_searches: float | None
    """Mean searches that checking a given answer takes, for the same questions."""

    @property
    def recall(self) -> tuple[float, float, float]:
        """Share of recalled questions with its Wilson interval."""
        return (self.recalled / self.count if self.count else 0.0, *compute_wilson_interval(self.recalled, self.count))


def is_recalled(question: Inverted, scene: Scene, top_k: int) -> bool:
    """Return whether one search with the whole question finds a passage that names the answer."""
    assert question.query is not None
    found = scene.retriever.search(write_question(question.query, scene.graph), top_k)
    return any(question.answer in f"{passage.title} {passage.text}" for passage in found)


def count_checks(question: Inverted, scene: Scene, top_k: int) -> int | None:
    """Return the distinct searches that it takes to check the answer; None if these do not confirm it."""
    assert question.query is not None
    searcher = build_searcher(scene, top_k=top_k, limit=MAX_SEARCHES)
    holds = is_member(question.answer, question.query, searcher, lambda name: scene.graph.types.get(name, ""))
    return searcher.count if holds and not searcher.is_exhausted else None


def measure_worth(questions: Sequence[tuple[Inverted, Scene]], *, top_k: int, recall_k: int) -> Worth:
    """Measure questions that were made, each in its scene: searches return `top_k` passages, recall is at
    `recall_k`."""
    finds, checks = [], []
    for question, scene in questions:
        assert question.query is not None
        effort = count_searches(question.query, question.answer, scene, top_k=top_k)
        check = count_checks(question, scene, top_k)
        if effort is not None and check is not None:
            finds.append(effort)
            checks.append(check)
    return Worth(
        count=len(questions),
        recalled=sum(is_recalled(question, scene, recall_k) for question, scene in questions),
        needless=sum(
            bool(question.query and find_needless(question.query, scene.graph)) for question, scene in questions
        ),
        found=len(finds),
        find_searches=sum(finds) / len(finds) if finds else None,
        check_searches=sum(checks) / len(checks) if checks else None,
    )
