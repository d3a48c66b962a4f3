"""The keyword arguments of mode "files"."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.environments.arguments import Share
from turnwise.environments.file_splits import MAX_BAD_ROWS
from turnwise_synthesis.research.arguments import ResearchArguments


class FileArguments(ResearchArguments):
    """Research over the user's own corpus."""

    mode: Literal["files"] = "files"
    """The user's own corpus and questions, citations checked by a judge or as quotations."""
    corpus_path: str = ""
    """Folder of .txt and .md files, or JSONL or Parquet with columns id, title and text."""
    train_path: str = ""
    """Training questions, in the layouts of `search_qa`."""
    heldout_path: str = ""
    """Held-out questions."""
    judge: str = ""
    """The recipe's judge that says whether a passage supports a claim; "" accepts quotations only: a passage supports
    the words that it contains."""
    expected: int = Field(5, ge=1, le=1000)
    """Supported claims that earn the whole reward."""
    top_k: int = Field(3, ge=1, le=100)
    """Most passages that a search returns."""
    passage_words: int = Field(120, ge=10, le=10_000)
    """Most words of a passage; longer texts are divided."""
    max_bad_rows: Share = MAX_BAD_ROWS
    """Largest share of a file's rows that may be bad: these are left out, counted and named."""
