"""Where the pixels of pictures are kept, by digest and outside messages, and how prompts show them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turnwise.core.types import ImagePart, Prompt

Pixels = NDArray[np.uint8]
"""A picture, `[height, width, 3]`, RGB."""


class Pictures(Protocol):
    """A store of pictures by their digests."""

    def put(self, part: ImagePart) -> None:
        """Keep the pixels of a part; one without pixels must be there already. Raises StoreError."""
        ...

    def read(self, digest: str) -> Pixels:
        """Return a picture. Raises StoreError, naming it, if it is missing or differs from its digest."""
        ...


class PictureLayout(Protocol):
    """How a model's processor writes a picture into a prompt."""

    marker: str
    """What a message's text shows at a picture's place; as tokens it holds `marker_id` once."""
    marker_id: int
    """The token that `lay_out` replaces."""

    def lay_out(self, part: ImagePart) -> Prompt:
        """Return the tokens that take the place of `marker_id`, with the spans of those that stand for the picture.

        Raises RenderError for a size that the processor refuses.
        """
        ...
