"""Research over the user's own corpus as an environment family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.file_splits import DataFile, FromFiles, check_path, load_splits
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.search_qa.files import QuestionRow, to_question
from turnwise.environments.search_qa.retrieval import Retriever, WordRetriever
from turnwise_synthesis.research.desk import ResearchDesk
from turnwise_synthesis.research.episodes.free import FreeResearch
from turnwise_synthesis.research.files.arguments import FileArguments
from turnwise_synthesis.research.files.corpus import OwnCorpus, load_own_corpus
from turnwise_synthesis.research.files.policies import QuotingPolicy
from turnwise_synthesis.research.files.sources import FileSources

PROMPT = (
    "Research this question and write a report: {question}\n"
    "Search the corpus as often as you need. Note every claim with its passage as soon as you have read it: your "
    "context is limited, and when it is full you go on with your notes alone. Write the report section by section with "
    "write_section. Every sentence of it is one claim and cites the passage that says so, such as\n"
    "Blue Lantern was written by Mira Tolen. [doc 17]\n"
    "Where passages disagree, say so and cite both. Claims without a passage and citations that do not support their "
    "claim count against you. When all sections are written, give a short answer to the question inside <answer> and "
    "</answer>.\n"
)


class FileResearch(FromFiles, GeneratedFamily[FileArguments]):
    """Questions over one corpus."""

    name = "research"
    section = FileArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`. Raises DataError if a file is missing or malformed."""
        super().__init__(**arguments)
        chosen = self._chosen
        check_path("corpus_path", chosen.corpus_path)
        paths: dict[Split, str] = {"train": chosen.train_path, "heldout": chosen.heldout_path}
        self._files = self._rows = load_splits(
            paths, to_question, chosen.seed, max_bad_rows=chosen.max_bad_rows, asks=lambda row: row.asks
        )
        self._corpus: OwnCorpus = load_own_corpus(
            Path(chosen.corpus_path), passage_words=chosen.passage_words, max_bad_rows=chosen.max_bad_rows
        )

    @property
    def arguments(self) -> FileArguments:
        """The checked arguments."""
        return self._chosen

    @cached_property
    def _retriever(self) -> Retriever:
        return WordRetriever(self._corpus.passages)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on questions and passages for readers of the run; one line each."""
        return *super().notes, *self._corpus.notes

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """The files of the questions, and of the passages where these are one file."""
        corpus = self._corpus
        own = (DataFile(path=corpus.path, num_rows=len(corpus.passages)),) if corpus.path.is_file() else ()
        return *super().data_files, *own

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Return the index-th question of a split; "train" starts over, "heldout" ends with IndexError."""
        row: QuestionRow = self._rows.row(split, index)
        return write_question(row.question), {"question": row.question, "answers": list(row.answers), "sections": []}

    def build_environment(self, task: Task) -> AskingEnvironment:
        """Build a fresh, single-use `FreeResearch`."""
        return build_own_research(self._chosen, self._retriever)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return "random" and "naive"; nobody knows the right replies."""
        return {"random": QuotingPolicy(0.0), "naive": QuotingPolicy(0.5)}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the prompt of a question and a passage."""
        task = self.task("train", index)
        yield from (message.text for message in task.prompt)
        yield self._corpus.passages[index % len(self._corpus.passages)].text


def write_question(question: str) -> tuple[Message, ...]:
    """Return the opening of a question."""
    return (text_message("user", PROMPT.format(question=question)),)


def build_own_research(chosen: FileArguments, retriever: Retriever) -> FreeResearch:
    """Build the environment of one question."""
    desk = ResearchDesk(
        FileSources(chosen=chosen, retriever=retriever),
        tool_timeout_s=chosen.tool_timeout_s,
        max_observation_chars=chosen.max_observation_chars,
    )
    return FreeResearch(
        desk,
        has_memory=chosen.memory == "kept",
        window_words=chosen.window_words,
        max_contexts=chosen.max_contexts,
    )
