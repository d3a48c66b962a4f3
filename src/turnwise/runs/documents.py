"""The documents of continual pre-training (`cpt.path`, `cpt.builder`) as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from transformers import PreTrainedTokenizerBase

from turnwise.config.run import RunConfig
from turnwise.core.documents import Document, DocumentBuilder, DocumentContext
from turnwise.core.errors import ConfigError, DataError, RenderError, boundary
from turnwise.core.offers import import_function
from turnwise.core.protocols import EnvironmentFamily, Renderer
from turnwise.core.types import IntArray, to_ids
from turnwise.exchange.document_rows import load_documents
from turnwise.rendering.tokenizer import encode_text, find_opening_ids
from turnwise.rollout.recorded import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The documents of a run, in the order of their source."""

    names: tuple[str, ...]
    """Names of the documents in the run's records."""
    token_ids: tuple[IntArray, ...]
    """`[N]` tokens of each, at least 2; the last one ends a sequence."""
    note: str
    """One line: what was read and what was left out."""

    @property
    def lengths(self) -> list[int]:
        """Number of tokens of each document."""
        return [len(ids) for ids in self.token_ids]


def load_library(
    config: RunConfig, family: EnvironmentFamily, renderer: Renderer, tokenizer: PreTrainedTokenizerBase
) -> Library | None:
    """The documents of the recipe as tokens; None where it has no such phase.

    Raises DataError naming file and line, or the builder's document, with the remedy; ConfigError for a builder that
    cannot be imported or fails.
    """
    cpt = config.cpt
    if not cpt.steps:
        return None
    placed, num_empty = _build(config, family) if cpt.builder else load_documents(_find_file(cpt.path))
    source = cpt.builder or cpt.path
    names: list[str] = []
    encoded: list[IntArray] = []
    num_short = 0
    for place, document in placed:
        try:
            ids = encode_document(document, renderer, tokenizer)
        except (DataError, RenderError) as cause:
            raise DataError(f"{place}: {cause}") from cause
        if len(ids) < 2:
            num_short += 1
            continue
        names.append(document.id or place)
        encoded.append(ids)
    if not encoded:
        raise DataError(f"{source}: no document has two tokens, so there is nothing to predict; add longer ones")
    note = f"{source}: {len(encoded):,} documents, {sum(map(len, encoded)):,} tokens"
    left_out = [(num_empty, "empty"), (num_short, "of fewer than two tokens")]
    note = "; ".join([note, *(f"left out {count:,} {text}" for count, text in left_out if count)])
    return Library(names=tuple(names), token_ids=tuple(encoded), note=note)


def encode_document(document: Document, renderer: Renderer, tokenizer: PreTrainedTokenizerBase) -> IntArray:
    """The document's tokens, with the token that ends a sequence at its end. Raises DataError for token ids that the
    tokenizer does not have, RenderError for a conversation that the renderer cannot write."""
    if document.messages:
        ids = write_whole(document.messages, document.tools, renderer).tolist()
    elif document.token_ids:
        ids, size = list(document.token_ids), len(tokenizer)
        if max(ids) >= size:
            raise DataError(
                f"token id {max(ids)} is not below the {size} tokens of the run's tokenizer; encode the document with "
                'that tokenizer, or give it as "text"'
            )
    else:
        ids = [*find_opening_ids(tokenizer), *encode_text(tokenizer, document.text)]
    end = tokenizer.eos_token_id
    return to_ids(np.asarray([*ids, *([] if end is None or ids[-1:] == [end] else [int(end)])]))


def _find_file(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise DataError(f"cpt.path={name!r}: there is no such file; name a .jsonl or .parquet file of documents")
    return path


def _build(config: RunConfig, family: EnvironmentFamily) -> tuple[Sequence[tuple[str, Document]], int]:
    """The builder's documents with their places."""
    path = config.cpt.builder
    build = cast(DocumentBuilder, import_function("cpt.builder", path))
    with boundary(ConfigError, f"cpt.builder={path!r} with cpt.args={config.cpt.args}"):
        documents = list(build(DocumentContext(family=family, seed=config.run.seed), **config.cpt.args))
    for index, document in enumerate(documents):
        if not isinstance(document, Document):
            raise ConfigError(
                f"cpt.builder={path!r}: its item {index} is a {type(document).__name__}; a builder yields "
                "turnwise.core.documents.Document"
            )
    if not documents:
        raise DataError(f"cpt.builder={path!r} made no document; change cpt.args")
    return [(f"{path} document {index}", document) for index, document in enumerate(documents)], 0
