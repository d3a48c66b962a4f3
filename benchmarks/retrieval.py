"""Measure how often a search finds the passage that states a fact, by kind of retrieval and wording of the question.

    turnwise models get minilm-l6
    python benchmarks/retrieval.py [--passages 2000] [--questions 300]

Each question asks for one fact of a fixed corpus of the search world (`environment.args.mode = "fixed"`), the way the
oracle asks. Prints the share of questions whose passage is the first result, and among the first three, with 95% Wilson
intervals, and the median milliseconds of a search."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import get_args

from turnwise.environments.search_qa.arguments import Retrieval
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.projection import Constant, Project
from turnwise.environments.search_qa.wordings import Wording, innermost_phrase
from turnwise.evaluation.intervals import compute_wilson_interval

DEPTHS = (1, 3)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=300)
    arguments = parser.parse_args()
    print("| wording | retrieval | first result | among the first 3 | one search (median) |\n|---|---|---|---|---|")
    for wording in get_args(Wording):
        for retrieval in get_args(Retrieval):
            print(measure(wording, retrieval, arguments.passages, arguments.questions))


def measure(wording: Wording, retrieval: Retrieval, num_passages: int, num_questions: int) -> str:
    """One row."""
    family = SearchQA(
        mode="fixed",
        num_passages=num_passages,
        kinds={"1hop": 1.0},
        wording=wording,
        num_phrasings=5 if wording == "formal" else 1,
        retrieval=retrieval,
    )
    world = family.task("heldout", 0)  # builds the corpus and its index
    retriever = family.retriever(world)
    ranks: list[int] = []
    seconds: list[float] = []
    for index in range(num_questions):
        task = family.task("heldout", index)
        [evidence] = task.payload["evidence"]
        relation, subject = read_query(task.payload["query"])
        query = innermost_phrase(Project(relation, Constant(subject)), wording)
        started = time.perf_counter()
        ids = [passage.id for passage in retriever.search(query, max(DEPTHS))]
        seconds.append(time.perf_counter() - started)
        ranks.append(ids.index(evidence) + 1 if evidence in ids else max(DEPTHS) + 1)
    cells = []
    for depth in DEPTHS:
        hits = sum(rank <= depth for rank in ranks)
        low, high = compute_wilson_interval(hits, num_questions)
        cells.append(f"{hits / num_questions:.3f} [{low:.3f}, {high:.3f}]")
    return f"| {wording} | {retrieval} | {' | '.join(cells)} | {1e3 * statistics.median(seconds):.2f} ms |"


def read_query(text: str) -> tuple[str, str]:
    """(relation, subject) of a formal query for one fact: "author([Blue Lantern])"."""
    relation, _, subject = text.partition("([")
    return relation, subject.removesuffix("])")


if __name__ == "__main__":
    main()
