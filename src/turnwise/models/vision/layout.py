"""Writes pictures into prompts as the processor of a model's family does."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from turnwise.core.errors import ConfigError, RenderError, boundary
from turnwise.core.keys import Span
from turnwise.core.types import ImagePart, Prompt
from turnwise.models.vision.sight import Sight

MAX_SIZES = 4096
"""Sizes of pictures whose tokens are remembered."""


class FamilyLayout:
    """Implements `core.pictures.PictureLayout` by running the model's own image processor: once for every size."""

    def __init__(self, sight: Sight, tokenizer: PreTrainedTokenizerBase, *, where: str) -> None:
        """`where` begins errors.

        Raises ConfigError if the tokenizer lacks a token that the family writes, or writes places with another id than
        the model's config.
        """
        self.sight = sight
        self.marker = sight.family.marker
        known = tokenizer.get_vocab()
        missing = [token for token in sight.family.tokens if token not in known]
        if missing:
            raise ConfigError(
                f"{where}: the tokenizer lacks {', '.join(map(repr, missing))}, with which models of type "
                f"{sight.config.model_type!r} write a picture; use the model's own tokenizer"
            )
        self.place_id = place_id = find_place(sight.config)
        """The token that stands for one row of a picture's features."""
        written = known[sight.family.tokens[0]]
        if written != place_id:
            raise ConfigError(
                f"{where}: the tokenizer writes {sight.family.tokens[0]!r} as {written}, but the model's "
                f"image_token_id is {place_id}; use the model's own tokenizer"
            )
        marked = [token for token in _encode(tokenizer, self.marker) if token == known[sight.family.replaced]]
        if len(marked) != 1:
            raise ConfigError(f"{where}: the tokenizer writes {self.marker!r} without one token for the picture")
        self.marker_id = marked[0]
        self.tokenizer = tokenizer
        self._lay_out = lru_cache(MAX_SIZES)(self._write)

    def lay_out(self, part: ImagePart) -> Prompt:
        """See `PictureLayout`."""
        token_ids, runs, grid = self._lay_out(part.width, part.height)
        spans, offset = [], 0
        for start, length in runs:
            spans.append(Span(start=start, length=length, digest=part.digest, offset=offset, grid=grid))
            offset += length
        return Prompt(token_ids=token_ids, images=tuple(spans))

    def _write(self, width: int, height: int) -> tuple[Any, list[tuple[int, int]], tuple[int, int, int] | None]:
        """Return the tokens of a picture of this size, the start and length of each run of places, and its grid."""
        blank = np.zeros((height, width, 3), np.uint8)
        with boundary(RenderError, f"a picture of {width} x {height} pixels cannot be shown to this model"):
            prepared = self.sight.prepare(blank)
            token_ids = np.array(_encode(self.tokenizer, self.sight.family.write(prepared)), np.int32)
        token_ids.setflags(write=False)
        is_place = np.concatenate([[False], token_ids == self.place_id, [False]])
        edges = np.flatnonzero(is_place[1:] != is_place[:-1])
        runs = [(int(start), int(end - start)) for start, end in zip(edges[::2], edges[1::2], strict=True)]
        return token_ids, runs, self.sight.family.find_grid(prepared)


def find_place(config: PreTrainedConfig) -> int:
    """Return the token that stands for a place of a picture, by the config of its model."""
    named = ("image_token_id", "image_token_index")
    return next(int(value) for value in (getattr(config, name, None) for name in named) if value is not None)


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))
