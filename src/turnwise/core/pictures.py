"""Where the pixels of pictures are kept, by digest and outside messages, and how prompts show them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turnwise.core.messages import hash_pixels
from turnwise.core.types import ImagePart, Prompt

Pixels = NDArray[np.uint8]
"""A picture, `[height, width, 3]`, RGB."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedImages:
    """Distinct pictures, and the P tokens of a batch that stand for them."""

    digests: tuple[str, ...]
    """`[D]`."""
    places: NDArray[np.int64]
    """`[P]` indices of tokens."""
    image: NDArray[np.int64]
    """`[P]` index in `digests`."""
    row: NDArray[np.int64]
    """`[P]` row of the picture's features."""

    @classmethod
    def of(cls, sources: Mapping[int, tuple[str, int]]) -> PlacedImages:
        """Build from the digest and the row of features of every place."""
        digests = {name: index for index, name in enumerate(dict.fromkeys(name for name, _ in sources.values()))}
        return cls(
            digests=tuple(digests),
            places=np.array(list(sources), np.int64),
            image=np.array([digests[name] for name, _ in sources.values()], np.int64),
            row=np.array([row for _, row in sources.values()], np.int64),
        )


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


_DIGEST = re.compile("[0-9a-f]{64}")


def is_digest(value: object) -> bool:
    """Return whether a value can be the digest of a picture: 64 hexadecimal digits."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def find_fault(part: ImagePart) -> str | None:
    """Return what is wrong with the fields of a picture that other code built, in words that follow "a picture"; None
    if nothing is."""
    if not is_digest(part.digest):
        return f"with the digest {part.digest!r:.80}, not 64 hexadecimal digits"
    if not all(type(side) is int and side > 0 for side in (part.width, part.height)):
        return f"of {part.width!r:.40} x {part.height!r:.40} pixels; both must be whole numbers above 0"
    if not isinstance(part.label, str):
        return f"with the label {part.label!r:.80}, not text"
    if part.pixels is None:
        return None
    if not isinstance(part.pixels, bytes):
        return f"whose pixels are {type(part.pixels).__name__}, not bytes"
    if len(part.pixels) != part.width * part.height * 3:
        return (
            f"of {part.width} x {part.height} pixels with {len(part.pixels)} bytes, not {part.width * part.height * 3}"
        )
    if hash_pixels(part.pixels, part.width, part.height) != part.digest:
        return f"whose pixels differ from its digest {part.digest[:12]}..."
    return None
