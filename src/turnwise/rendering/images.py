"""Pictures in prompts: a mark in a message's text, one token where the text is encoded, then the tokens of the picture.

    "Read ", a picture of 2 places, " now"        the parts of a message
    "Read \ufdd4 now"                              its text (`write_text`), fenced piece by piece
    [Read] [<image>] [now]                        its tokens, with the layout's marker
    [Read] [<image>] [<image>] [now]              its tokens in the prompt (`expand`), with a span over the places

The mark is a Unicode noncharacter that texts from outside lose, and a marker that is spelled out in them becomes plain
characters. So every marker among the ids is a picture's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from turnwise.core.errors import RenderError
from turnwise.core.messages import TextPart, list_images
from turnwise.core.pictures import PictureLayout, Pictures
from turnwise.core.protocols import Renderer
from turnwise.core.types import IntArray, Message, Prompt, ToolSpec, to_ids

PICTURE = "\ufdd4"
"""Stands for a picture in the text of a message."""
NO_EYES = (
    "the conversation shows a picture, which this model or renderer cannot read; use a vision-language model with "
    'renderer.kind="tags", "calls" or "template", or describe the picture in text'
)


def write_text(message: Message) -> str:
    """Return the text of a message with `PICTURE` in place of each picture."""
    return "".join(
        part.text.replace(PICTURE, "\ufffd") if isinstance(part, TextPart) else PICTURE for part in message.content
    )


def map_texts(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to the texts between pictures."""
    return PICTURE.join(map(change, text.split(PICTURE)))


def encode_around(text: str, encode: Callable[[str, bool], list[int]], marker_ids: Sequence[int] | None) -> list[int]:
    """Encode the texts between pictures, and each picture as `marker_ids`; `encode` is also told whether anything
    precedes the text. Raises RenderError for a picture if there are no `marker_ids` (None)."""
    ids: list[int] = []
    for index, piece in enumerate(text.split(PICTURE)):
        if index:
            if marker_ids is None:
                raise RenderError(NO_EYES)
            ids += marker_ids
        if piece:
            ids += encode(piece, bool(ids))
    return ids


def cut_text(text: str, most: int, encode: Callable[[str], list[int]], decode: Callable[[list[int]], str]) -> str:
    """Cut a text after `most` tokens; pictures are kept and do not count."""
    room = most
    pieces = []
    for piece in text.split(PICTURE):
        ids = encode(piece)
        pieces.append(piece if len(ids) <= room else decode(ids[:room]).rstrip("\ufffd"))
        room = max(0, room - len(ids))
    return PICTURE.join(pieces)


def expand(ids: IntArray, messages: Sequence[Message], layout: PictureLayout) -> Prompt:
    """Replace the marker of each picture in `messages`, which the ids were rendered from, by its tokens.

    Raises RenderError if there are not as many markers as pictures.
    """
    parts = list_images(messages)
    markers = np.flatnonzero(ids == layout.marker_id)
    if len(markers) != len(parts):
        raise RenderError(
            f"{len(parts)} pictures were rendered as {len(markers)} markers {layout.marker!r}; the chat template drops "
            'or repeats pictures: use renderer.kind="calls", or a template that writes one marker for each'
        )
    pieces: list[Any] = []
    spans = []
    length, start = 0, 0
    for at, part in zip(markers.tolist(), parts, strict=True):
        shown = layout.lay_out(part)
        pieces += [ids[start:at], shown.token_ids]
        length += at - start
        spans += [span.shift(length) for span in shown.images]
        length, start = length + len(shown.token_ids), at + 1
    return Prompt(token_ids=to_ids(np.concatenate([*pieces, ids[start:]])), images=tuple(spans))


def find_text_renderer(renderer: Renderer) -> Renderer:
    """Return the renderer of everything but pictures."""
    return renderer.inner if isinstance(renderer, PictureRenderer) else renderer


def find_pictures(renderer: Renderer) -> Pictures | None:
    """Return the store in which a renderer keeps pictures; None for one of text only."""
    return renderer.pictures if isinstance(renderer, PictureRenderer) else None


class PictureRenderer:
    """Implements `core.protocols.SeeingRenderer` on top of a renderer that was built with the layout's marker."""

    def __init__(self, inner: Renderer, layout: PictureLayout, pictures: Pictures) -> None:
        self.inner = inner
        """The renderer of everything but pictures."""
        self.pictures = pictures
        """Where the pixels are kept."""
        self.stop_token_ids = inner.stop_token_ids
        self.stop = inner.stop
        self._layout = layout

    def open_prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Prompt:
        """See `SeeingRenderer.open_prompt`."""
        self._keep(messages)
        return expand(self.inner.open(messages, tools), messages, self._layout)

    def extend_prompt(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> Prompt:
        """See `SeeingRenderer.extend_prompt`."""
        self._keep(observations)
        ids = self.inner.extend(prompt_ids, completion_ids, observations, tools)
        return expand(ids, observations, self._layout)

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        """See `Renderer.open`."""
        return self.open_prompt(messages, tools).token_ids

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        """See `Renderer.extend`."""
        return self.extend_prompt(prompt_ids, completion_ids, observations, tools).token_ids

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray, tools: Sequence[ToolSpec] = ()) -> Message:
        """See `Renderer.parse`."""
        return self.inner.parse(prompt_ids, completion_ids, tools)

    def encode_reply(self, message: Message) -> IntArray:
        """See `Renderer.encode_reply`. Raises RenderError for a reply with a picture."""
        if message.images:
            raise RenderError("a reply contains a picture, which no model samples; leave pictures out of replies")
        return self.inner.encode_reply(message)

    def _keep(self, messages: Sequence[Message]) -> None:
        for part in list_images(messages):
            self.pictures.put(part)
