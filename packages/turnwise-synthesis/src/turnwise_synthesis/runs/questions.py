"""Builds, reads and measures questions for `turnwise questions`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.seeds import rng
from turnwise.environments.canaries import find_canary
from turnwise.environments.data_rows import load_rows, read_rows
from turnwise.environments.search_qa.files import load_corpus, to_question
from turnwise.environments.search_qa.projection import to_text
from turnwise.judging.api import ApiOptions, ApiWriter
from turnwise.tools.chat_api import ChatApi
from turnwise_synthesis.browsecomp.calibration import (
    Bin,
    bin_by_confidence,
    compute_calibration_error,
)
from turnwise_synthesis.browsecomp.effort import Point, load_questions, rate_budgets, rate_ways
from turnwise_synthesis.browsecomp.invert import Plan, invert_many
from turnwise_synthesis.browsecomp.measure import is_recalled
from turnwise_synthesis.browsecomp.published import CANARY, PublishedRow
from turnwise_synthesis.shaper.expand import Strategy, grow
from turnwise_synthesis.shaper.extraction import Extracted, extract_graph, write_facts
from turnwise_synthesis.shaper.flaws import find_flaws
from turnwise_synthesis.shaper.graph import YEAR
from turnwise_synthesis.shaper.graph_files import load_graph
from turnwise_synthesis.shaper.scene import Scene
from turnwise_synthesis.shaper.wordings import write_question
from turnwise_synthesis.shaper.writers import by_writer

SCRIPTED = "scripted"
BUDGETS = (1, 2, 3, 4, 6, 8, 12, 16)
TIMEOUT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Success of an evaluation against effort, and what its confidences are worth."""

    evaluation: str
    questions: int
    invalid: int
    ways: Sequence[Point]
    budgets: Sequence[Point]
    outcomes: Mapping[str, int]
    """What became of the confidences in the replies (`calibration.Outcome`)."""
    bins: Sequence[Bin]
    """Empty if no reply states a confidence."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, with the calibration errors (None without a confidence)."""
        return {
            **asdict(self),
            "calibration_error": compute_calibration_error(self.bins) if self.bins else None,
            "as_published": compute_calibration_error(self.bins, as_published=True) if self.bins else None,
        }

    def describe_calibration(self) -> str:
        """Return one line about the confidences."""
        counts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(self.outcomes.items()))
        if not self.bins:
            return f"confidence: {counts}; no reply states one"
        whole, published = (compute_calibration_error(self.bins, as_published=each) for each in (False, True))
        return (
            f"confidence: {counts}; calibration error {whole:.3f} in {len(self.bins)} bins, {published:.3f} as "
            "published (the last bin left out)"
        )


def extract_corpus(
    corpus: Path,
    *,
    api: str,
    model: str,
    dialect: Literal["openai", "anthropic"],
    max_tokens: int,
    max_concurrent: int,
) -> Extracted:
    """Read the passages of a file with a model behind an API, or with the scripted extractor for generated worlds.

    Raises DataError as `load_corpus` and `extract_graph` do, ConfigError without a model."""
    passages = load_corpus(corpus).rows
    if api == SCRIPTED:
        return asyncio.run(extract_graph(passages, write_facts))
    if not model:
        raise ConfigError(f"--api {api} needs --model; name the model that it serves")

    async def extract() -> Extracted:
        chat = ChatApi(api, model, max_tokens=max_tokens, seed=0, max_concurrent=max_concurrent, dialect=dialect)
        options = ApiOptions(url=api, model=model, dialect=dialect, max_tokens=max_tokens)
        writer = ApiWriter(chat, options, None)
        try:
            await chat.check()
            return await extract_graph(passages, by_writer(writer), max_concurrent=max_concurrent, timeout_s=TIMEOUT_S)
        finally:
            await writer.close()

    return asyncio.run(extract())


def load_scene(graph: Path | None, corpus: Path | None) -> Scene:
    """Load a graph with its passages. Raises ConfigError if one is missing, DataError for a fact whose passage is not
    in the corpus."""
    if graph is None or corpus is None:
        raise ConfigError("--graph and --corpus belong together; give both or neither")
    loaded, passages = load_graph(graph), tuple(load_corpus(corpus).rows)
    known = {passage.id for passage in passages}
    for each in loaded.statements:
        missing = [passage for passage in each.passages if passage not in known]
        if missing:
            told = " | ".join(each.triple)
            raise DataError(f"{graph}: {told} names passage {missing[0]!r}, which is not in {corpus}")
    return Scene(graph=loaded, passages=passages)


def expand_scene(
    scene: Scene,
    *,
    seed: int,
    count: int,
    width: int,
    layers: int,
    strategy: Strategy,
    top_k: int,
    keep_flawed: bool,
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return rows of questions about distinct entities, with the attempts by outcome and the flaws by kind. Raises
    DataError if none is left, with the counts."""
    random = rng(seed, "expand")
    counts: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    for entity in random.sample(scene.graph.entities, len(scene.graph.entities)):
        if len(rows) == count:
            break
        attempt = grow(entity, scene.graph, random, width=width, layers=layers, strategy=strategy)
        counts[attempt.outcome.value] += 1
        if attempt.query is None:
            continue
        flaws = find_flaws(attempt.query, entity, scene, top_k=top_k)
        counts.update({found.flaw.value for found in flaws})
        if flaws and not keep_flawed:
            counts["dropped_as_flawed"] += 1
            continue
        rows.append(
            {
                "question": write_question(attempt.query, scene.graph),
                "answers": [entity],
                "kind": f"{strategy}{layers}",
                "query": to_text(attempt.query),
                "flaws": [f"{found.flaw.value} {found.where}" for found in flaws],
            }
        )
    return _refuse_empty(rows, counts)


def invert_scene(
    scene: Scene, *, seed: int, count: int, plan: Plan, top_k: int
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return rows of inverted questions with a canary; one whose whole text finds the answer in one search is dropped.
    Raises DataError if none is left, with the counts."""
    random = rng(seed, "invert")
    kinds = sorted(set(scene.graph.types.values()) - {YEAR})
    made, outcomes = invert_many(scene.graph, random, plan, count=len(scene.graph.entities), kinds=kinds)
    counts = Counter(outcomes)
    rows: list[dict[str, Any]] = []
    for each in made:
        if len(rows) == count:
            counts["not_needed"] += 1
            continue
        if is_recalled(each, scene, top_k):
            counts["found_by_one_search"] += 1
            continue
        assert each.query is not None
        rows.append(
            {
                "question": write_question(each.query, scene.graph),
                "answers": [each.answer],
                "kind": "inverted",
                "query": to_text(each.query),
                "candidates": list(each.candidates),
                "canary": CANARY,
            }
        )
    return _refuse_empty(rows, counts)


def load_published_rows(path: Path) -> list[PublishedRow]:
    """Load questions with canaries. Raises DataError for a row without one, naming file and line."""

    def read(row: dict[str, Any]) -> PublishedRow:
        question, canary = to_question(row), row.get("canary")
        if not isinstance(canary, str) or not canary.strip():
            raise DataError("the row has no canary, from which its key is derived; add one")
        return PublishedRow(
            question=question.question.strip(), answer=question.answers[0], topic=question.kind, canary=canary
        )

    return [row for _, row in load_rows(path, read)]


def find_canaries(path: Path) -> Iterator[str]:
    """Yield file, line and canary of every row that has one. Raises DataError for a file that cannot be read."""
    for line, row in read_rows(path):
        found = find_canary(row)
        if found is not None:
            yield f"{path}:{line}: {found[:120]}"


def measure_effort(run: Path, evaluation: str = "", *, bin_size: int) -> Effort:
    """Measure an evaluation of a run. Raises as `load_questions` and `rate_ways` do."""
    name, questions, invalid = load_questions(run, evaluation)
    attempts = [attempt for each in questions for attempt in each]
    pairs = [(each.stated.value, each.is_right) for each in attempts if each.stated.value is not None]
    return Effort(
        evaluation=name,
        questions=len(questions),
        invalid=invalid,
        ways=rate_ways(questions),
        budgets=rate_budgets(questions, BUDGETS),
        outcomes=dict(Counter(each.stated.outcome.value for each in attempts)),
        bins=bin_by_confidence(pairs, bin_size) if pairs else (),
    )


def _refuse_empty(rows: list[dict[str, Any]], counts: Counter[str]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    if not rows:
        told = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()) or "the graph is empty"
        raise DataError(f"no question was made: {told}; use a larger graph or ask for less")
    return rows, dict(counts)
