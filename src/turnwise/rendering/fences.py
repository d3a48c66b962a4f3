"""Keeps text from outside apart from control tokens while it passes through a chat template.

A special token spelled out in a message is disguised before the template sees the message and encoded as plain
characters afterwards. The disguise consists of noncharacters and hexadecimal digits, so that a template can neither
trim it nor split the message at it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from turnwise.core.errors import RenderError
from turnwise.core.types import Message
from turnwise.rendering.images import NO_EYES, PICTURE, encode_around, map_texts, write_text
from turnwise.rendering.tokenizer import added_tokens_pattern, encode_part, encode_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Unicode noncharacters, "for internal use"; in text from outside they become U+FFFD.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_FENCED = re.compile(f"{_OPEN}((?:[0-9a-f][0-9a-f])+){_CLOSE}")
_RESERVED = re.compile("[\ufdd0-\ufdd4]")
_MAX_CACHED_TEXTS = 1024
"""Number of texts whose token ids are cached."""


class Fences:
    """Fences text from outside, and encodes the text that a template produced from it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, marker: str | None = None) -> None:
        """`marker` is what a picture is encoded as; None refuses pictures."""
        self._tokenizer = tokenizer
        self._marker_ids = None if marker is None else encode_part(tokenizer, marker, continues=True)
        # The members of a group, and the tasks of a family, begin with the same texts.
        self._encode = lru_cache(maxsize=_MAX_CACHED_TEXTS)(self._encode_once)

    def fence(self, text: str, keep: frozenset[str] = frozenset()) -> str:
        """Disguise every added token spelled out in `text` except those in `keep`, which stay tokens."""
        text = _RESERVED.sub("\ufffd", text.encode(errors="replace").decode())
        pattern = added_tokens_pattern(self._tokenizer)
        return pattern.sub(
            lambda match: match[0] if match[0] in keep else f"{_OPEN}{match[0].encode().hex()}{_CLOSE}", text
        )

    def fence_message(self, message: Message) -> str:
        """Fence the text of a message; each picture is `images.PICTURE`. Raises RenderError for one that cannot be
        encoded."""
        if self._marker_ids is None and message.images:
            raise RenderError(NO_EYES)
        return map_texts(write_text(message), self.fence)

    def fence_all(self, value: Any) -> Any:
        """Fence every string of a JSON value, keys included."""
        if isinstance(value, str):
            return self.fence(value)
        if isinstance(value, list | tuple):
            return [self.fence_all(item) for item in value]
        if isinstance(value, dict):
            return {self.fence(key): self.fence_all(item) for key, item in value.items()}
        return value

    def encode(self, text: str, *, continues: bool = False) -> list[int]:
        """Return the token ids of rendered text: fenced parts become plain characters, all other added tokens are
        tokens.

        `continues` says that other text precedes it, as in `encode_text`. Raises RenderError when a template damaged a
        fence.
        """
        return list(self._encode(text, continues))

    def _encode_once(self, text: str, continues: bool) -> tuple[int, ...]:
        ids: list[int] = []
        for index, part in enumerate(_FENCED.split(text)):
            if index % 2:
                plain = bytes.fromhex(part).decode()
                ids += encode_text(self._tokenizer, plain, continues=continues or bool(ids))
            elif _RESERVED.search(part.replace(PICTURE, "")):
                raise RenderError(
                    "the chat template splits the text of messages, so control tokens in it cannot be kept as plain "
                    'text; use renderer.kind="tags" or a tokenizer with another chat template'
                )
            elif part:
                ids += self._encode_part(part, continues=continues or bool(ids))
        return tuple(ids)

    def _encode_part(self, text: str, *, continues: bool) -> list[int]:
        return encode_around(
            text,
            lambda piece, follows: encode_part(self._tokenizer, piece, continues=continues or follows),
            self._marker_ids,
        )
