"""The text of a reply that no later token can change, while the reply is sampled.

A renderer reads whole replies: what looks like text may become a call or a thought when more of it has come. So a text
is told only up to the first character or token with which anything else may begin (`Renderer.call_marks`), and white
space at its end is kept back. What is kept back comes with the whole reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turnwise.core.errors import RenderError
from turnwise.core.protocols import Renderer
from turnwise.core.types import text_message, to_ids
from turnwise.gateway.protocols.answer import Piece

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Decode = Callable[[Sequence[int]], str]
_TAG = re.compile("<")
MAX_PROMPT_END = 16
"""Tokens at a prompt's end among which a thought may be opened for the reply."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Streaming:
    """How replies of a policy are told while they are sampled."""

    decode: Decode
    marks: Collection[int]
    """Tokens that are no text."""
    thought_ids: tuple[int, int] | None
    """Those that open and close a thought; None without such tokens."""
    call_marks: re.Pattern[str]
    """Matches a character with which something other than text may begin."""
    tells_thoughts: bool
    """Whether thoughts are told; if not, nothing is told of a reply that begins with one."""

    def read(self, prompt_ids: Sequence[int], stop: Sequence[str]) -> SettledText:
        """Return the reader of a reply; `stop` are strings at which its text is cut."""
        return SettledText(self, stop, is_thought=self.opens_thought(prompt_ids))

    def opens_thought(self, prompt_ids: Sequence[int]) -> bool:
        """Whether a reply to the prompt begins inside a thought."""
        if self.thought_ids is None:
            return False
        found = [token for token in prompt_ids[-MAX_PROMPT_END:] if token in self.thought_ids]
        return bool(found) and found[-1] == self.thought_ids[0]


class SettledText:
    """Reads the tokens of one reply as they come."""

    def __init__(self, streaming: Streaming, stop: Sequence[str], *, is_thought: bool) -> None:
        """`is_thought` says that the prompt has opened a thought."""
        self._streaming, self._stop = streaming, tuple(filter(None, stop))
        self._is_thought, self._has_begun = is_thought, False
        self._is_over = is_thought and not streaming.tells_thoughts
        self._run: list[int] = []
        self._num_decoded = 0
        """Tokens of the run whose text is in `_text` or told."""
        self._start = 0
        """First of the tokens that are decoded again with new ones, so that characters of several tokens are whole."""
        self._text = ""
        """What is not told of the run."""

    def take(self, token_ids: Sequence[int]) -> list[Piece]:
        """Return what new tokens settle."""
        pieces: list[Piece] = []
        for token in token_ids:
            if self._is_over:
                break
            if token not in self._streaming.marks:
                self._run.append(token)
                continue
            pieces += self._tell()
            self._turn(token)
        return pieces if self._is_over else pieces + self._tell()

    def _turn(self, mark: int) -> None:
        """Take a token that is no text: the end of a thought, its beginning, or the end of what can be told."""
        opening, closing = self._streaming.thought_ids or (None, None)
        is_first = not self._has_begun and not self._text.strip()
        if self._is_thought and mark == closing:
            self._is_thought = False
        elif not self._is_thought and mark == opening and is_first and self._streaming.tells_thoughts:
            self._is_thought = True
        else:
            self._is_over = True
        self._run, self._num_decoded, self._start, self._text, self._has_begun = [], 0, 0, "", False

    def _tell(self) -> list[Piece]:
        """Return the text that the run settles."""
        self._decode()
        text = self._text if self._has_begun else self._text.lstrip()
        found = (_TAG if self._is_thought else self._streaming.call_marks).search(text)
        if found is not None:
            text, self._is_over = text[: found.start()], True
        if not self._is_thought and self._stop:
            text = self._cut(text)
        told = text.rstrip()
        if not told:
            return []
        self._text = self._text[self._text.index(told) + len(told) :]
        self._has_begun = True
        return [Piece(text=told, is_thought=self._is_thought)]

    def _cut(self, text: str) -> str:
        """Return a text without what may belong to a stop string."""
        starts = [at for stop in self._stop if (at := text.find(stop)) >= 0]
        if starts:
            self._is_over = True
            return text[: min(starts)]
        return text[: max(0, len(text) - max(map(len, self._stop)) + 1)]

    def _decode(self) -> None:
        """Decode what is new of the run, unless its last character is incomplete."""
        decode = self._streaming.decode
        before = decode(self._run[self._start : self._num_decoded])
        whole = decode(self._run[self._start :])
        if len(whole) > len(before) and not whole.endswith("\ufffd"):
            self._text += whole[len(before) :]
            self._start, self._num_decoded = self._num_decoded, len(self._run)


def find_streaming(renderer: Renderer, tokenizer: PreTrainedTokenizerBase) -> Streaming | None:
    """Return how a renderer's replies are told while they are sampled; None if only whole replies can be told.

    Some replies are read in part, and whole by the renderer: what the two read differently is not told.
    """
    call_marks: str | None = getattr(renderer, "call_marks", None)
    if call_marks is None:
        return None
    try:
        prompt = renderer.open((text_message("user", "Hello"),), ())
    except RenderError:
        return None
    words = tokenizer.encode("\n One word, then some more.\n\nAnd a line.\n", add_special_tokens=False)
    added = tokenizer.get_added_vocab()
    thought_ids = (added["<think>"], added["</think>"]) if {"<think>", "</think>"} <= added.keys() else None
    told = Streaming(
        decode=lambda ids: str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)),
        marks={*added.values(), *renderer.stop_token_ids},
        thought_ids=thought_ids,
        call_marks=re.compile(f"[{re.escape(call_marks)}]"),
        tells_thoughts=True,
    )

    def is_right(reply: list[int]) -> bool:
        message = renderer.parse(prompt, to_ids(reply))
        pieces = told.read(prompt.tolist(), ()).take(reply)
        thought, text = ("".join(piece.text for piece in pieces if piece.is_thought is each) for each in (True, False))
        reasoning = message.reasoning or ""
        told_right = reasoning.startswith(thought) and message.text.startswith(text)
        return told_right and bool(thought or text) and (not text or thought == reasoning)

    marked = [[*words, mark, *words[:count]] for mark in told.marks for count in (0, len(words))]
    if not all(map(is_right, [words, *marked])):
        return None
    if thought_ids is None:
        return told
    head = [] if told.opens_thought(prompt.tolist()) else [thought_ids[0]]
    thought = [*head, *words, thought_ids[1], *words]
    if all(map(is_right, ([*head, *words], thought, [*thought, *renderer.stop_token_ids[:1]]))):
        return told
    return replace(told, tells_thoughts=False) if head else None
