"""The keyword arguments of the family `search_qa`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, SkipValidation, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, Seconds, Share, check_unread, check_weights
from turnwise.environments.file_splits import MAX_BAD_ROWS
from turnwise.environments.search_qa.corpus import NUM_PHRASINGS
from turnwise.environments.search_qa.environment import DocumentFormat, SearchSwitch
from turnwise.environments.search_qa.names import MAX_WORDS
from turnwise.environments.search_qa.questions import KINDS
from turnwise.environments.search_qa.wordings import Wording
from turnwise.environments.search_qa.world import MIN_ENTITIES
from turnwise.rewards.normal_form import Normalize

Mode = Literal["fresh", "fixed", "files"]
Prompt = Literal["search_r1", "short", "chat"]
Retrieval = Literal["bm25", "dense", "hybrid"]

DEFAULT_KINDS = {"no_search": 0.1, "1hop": 0.2, "2hop": 0.5, "unanswerable": 0.2}


class SearchArguments(FamilyArguments):
    """Questions answered with a search tool."""

    mode: Mode = "fresh"
    """"fresh": every task has its own small world, so nothing can be memorised. "fixed": one large corpus contains a
    training and a held-out world. "files": the user's own corpus and questions."""
    num_entities: int = Field(40, ge=MIN_ENTITIES, le=1_000)
    """Entities per fresh world."""
    tasks_per_world: int = Field(1, ge=1, le=1_000)
    """Consecutive tasks that share a fresh world; building one takes most of a small task's time."""
    num_words: int = Field(MAX_WORDS, ge=8, le=MAX_WORDS)
    """Number of words used from each list of which names are made; fewer are easier for a small model."""
    num_passages: int = Field(10_000, ge=1_000, le=1_000_000)
    """Passages in the fixed corpus, including distractors."""
    kinds: Annotated[Mapping[str, float] | None, SkipValidation] = None
    """Question kind to weight, for "fresh" and "fixed"; None is `DEFAULT_KINDS`."""
    num_phrasings: int = Field(1, ge=1, le=NUM_PHRASINGS)
    """How many formal phrasings of facts and questions are used."""
    wording: Wording = "formal"
    """"formal": "the birthplace of the author of X"; "natural": "the town where the person who wrote X was born", with
    passages that share few words with it. Natural questions are chains, not intersections or unions."""
    retrieval: Retrieval = "bm25"
    """"bm25": by words; "dense": by the meaning of whole sentences (`embedder`); "hybrid": both rankings fused."""
    embedder: str = "minilm-l6"
    """Sentence-embedding model of "dense" and "hybrid": a local Hugging Face folder, or a name of
    `turnwise models list`."""
    num_distractors: int = Field(20, ge=0, le=10_000)
    """Passages of a fresh world that answer no question."""
    top_k: int = Field(3, ge=1, le=100)
    """Most passages that a search returns."""
    document_format: DocumentFormat = "search_r1"
    """"search_r1": "Doc 1(Title: t) text"; "plain": only the text. One passage per line."""
    prompt: Prompt = "search_r1"
    """"search_r1" explains the tags; "chat" explains the answer to a chat model; "short" is only the question."""
    search: SearchSwitch = "on"
    """"on", or a control that must fail: "off" finds nothing, "shuffled" returns random passages."""
    reward: str = "exact_match"
    """"exact_match", "f1", "bleu", "format", or the import path "package.module:NAME" of an `AnswerReward`."""
    normalize: Normalize = "numbers"
    """How answers are normalised before comparison: "numbers" keeps signs, decimal points and fractions; "squad" is
    SQuAD's rule, used for published figures, under which 3.14 equals 314 (see `rewards.normal_form`)."""
    corpus_path: str = ""
    """JSONL or Parquet corpus of mode "files" (layouts: see `files`)."""
    train_path: str = ""
    """JSONL, JSON or Parquet training questions of mode "files"."""
    heldout_path: str = ""
    """JSONL, JSON or Parquet held-out questions of mode "files"."""
    max_bad_rows: Share = MAX_BAD_ROWS
    """Largest share of a file's rows that may be bad: these are left out, counted and named by file and line. With
    more, the run does not start."""
    naive_wander: Share = 0.1
    """Probability that the naive policy looks up its result instead of answering with it."""
    reward_timeout_s: Seconds = 10.0
    """Most seconds for the reward."""

    @property
    def weights(self) -> dict[str, float]:
        """The positive weights of `kinds`. Raises ConfigError."""
        return check_weights("kinds", DEFAULT_KINDS if self.kinds is None else self.kinds, tuple(KINDS))

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if self.mode != "files":
            check_unread(self, ("corpus_path", "train_path", "heldout_path"), self.mode)
        return self

    @model_validator(mode="after")
    def _check_kinds(self) -> Self:
        composed = {"intersection", "union"} & set(self.weights)
        if composed and self.wording == "natural":
            raise ConfigError(f"wording='natural' has no wording for kinds {', '.join(sorted(composed))}; drop them")
        return self
