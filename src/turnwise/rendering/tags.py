"""Search-R1's format: `<think>`, `<search>`, `<information>`, `<answer>` in running text, no chat template.

One conversation as tokens, where the tokenizer has each tag as one token (a closing tag then needs no space before it):

    What is the author of Blue Lantern ?         opening, context
    <search> author of Blue Lantern</search>     reply 1, sampled
    <information> The author ...</information>   observation, context
    <answer> Mira Tolen</answer>                 reply 2, sampled

With any other tokenizer the tags are plain text, spelled and spaced as in the published format. As text, in messages, a tag
always has one space on its inside: `<answer> Mira Tolen </answer>`. Knows nothing about what a search returns or is worth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from turnwise.core.errors import RenderError
from turnwise.core.types import IntArray, Message, TextPart, ToolCall, ToolCallError, ToolSpec, to_ids
from turnwise.rendering.tokenizer import encode_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TAGS = tuple(f"<{slash}{name}>" for name in ("think", "search", "information", "answer") for slash in ("", "/"))
_TAG = re.compile("(" + "|".join(_TAGS) + ")")
_ENDS = ("</search>", "</answer>")

NO_ACTION = "no <search> or <answer> found; write <search> query </search> to search or <answer> answer </answer> to answer"
UNCLOSED = "a tag was opened and not closed; end a search with </search> and an answer with </answer>"

_Piece = tuple[bool, str]
"""Whether it is a tag, and its text. Text that only looks like a tag, written in plain tokens, is none."""


class TagRenderer:
    """Implements `core.protocols.Renderer`. Tools other than `search` cannot be called in this format."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, max_observation_tokens: int | None = None) -> None:
        """`max_observation_tokens` cuts what one observation appends, the closing tag always kept; None never cuts."""
        self._tokenizer = tokenizer
        self._max_observation_tokens = max_observation_tokens
        added = tokenizer.get_added_vocab()
        self._tag_ids: dict[str, int] = {tag: added[tag] for tag in _TAGS} if all(tag in added for tag in _TAGS) else {}
        """Empty where tags are plain text."""
        self._tag_of = {token: tag for tag, token in self._tag_ids.items()}
        self._special_ids = frozenset(tokenizer.all_special_ids)
        self._eos: list[int] = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
        self.stop_token_ids: tuple[int, ...] = (*self._eos, *(self._tag_ids[tag] for tag in _ENDS if self._tag_ids))
        self.stop: tuple[str, ...] = () if self._tag_ids else _ENDS

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        """The texts of the messages, a blank line between two. Tags in them (the published instruction has some) are plain text.

        `tools` are not rendered: the prompt explains the format. Raises RenderError when there is no text at all.
        """
        ids = encode_text(self._tokenizer, "\n\n".join(message.text for message in messages))
        if not ids:
            raise RenderError("the conversation opens without any text; give the task a prompt")
        return to_ids(ids)

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        """Search results inside `<information>`; anything else as plain text. Text from outside never becomes a tag token."""
        return to_ids([token for message in observations for token in self._observation(message)])

    def _observation(self, message: Message) -> list[int]:
        body = message.text.strip()
        answers_call = message.role == "tool" and message.tool_call_id is not None
        opening, closing = ("<information>", "</information>") if answers_call else ("", "")
        if self._tag_ids:
            head, tail = ([self._tag_ids[tag] for tag in (opening, closing) if tag[:2] == side] for side in ("<i", "</"))
            ids = encode_text(self._tokenizer, f" {body}" if body else "")
        else:
            gap = "\n\n" if answers_call else "\n"
            head, tail = (encode_text(self._tokenizer, text) for text in (gap + opening, closing + gap))
            # In text a tag is a tag whoever wrote it, so those in a search result lose their brackets.
            ids = encode_text(self._tokenizer, _TAG.sub(lambda match: match[0][1:-1], body) if answers_call else body)
        if self._max_observation_tokens is not None:
            ids = ids[: max(0, self._max_observation_tokens - len(head) - len(tail))]
        return [*head, *ids, *tail]

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray) -> Message:
        """See `Renderer.parse`. The first complete `<search>` or `<answer>` wins; an answer stays in the content, tags and all.

        Closed `<think>` spans become `reasoning`. A reply with neither search nor answer has one tool error, `unclosed` when
        a tag was left open, else `no_action`.
        """
        pieces = self._split(completion_ids)
        raw = _join(pieces)
        thoughts: list[str] = []
        while span := _find(pieces, "think"):
            thoughts.append(_join(pieces[span[0] + 1 : span[1]]))
            del pieces[span[0] : span[1] + 1]
        search, answer = _find(pieces, "search"), _find(pieces, "answer")
        calls: tuple[ToolCall, ...] = ()
        errors: tuple[ToolCallError, ...] = ()
        if search and not (answer and answer < search):
            query = _join(pieces[search[0] + 1 : search[1]])
            calls = (ToolCall(id=f"call_{len(prompt_ids)}", name="search", arguments=json.dumps({"query": query}, ensure_ascii=False)),)
            pieces = pieces[: search[0]]
        elif not answer:
            unclosed = any(piece in pieces for piece in ((True, "<search>"), (True, "<answer>"), (True, "<think>")))
            kind: Literal["unclosed", "no_action"] = "unclosed" if unclosed else "no_action"
            errors = (ToolCallError(kind=kind, raw=raw, message=UNCLOSED if unclosed else NO_ACTION),)
        content = _join(pieces)
        return Message(
            role="assistant",
            content=(TextPart(text=content),) if content else (),
            reasoning="\n".join(thoughts) if thoughts else None,
            tool_calls=calls,
            tool_errors=errors,
        )

    def _split(self, completion_ids: IntArray) -> list[_Piece]:
        """Tags and the text between them. Other special tokens (the end of the sequence) are left out."""
        tokens = [token for token in completion_ids.tolist() if token >= 0 and (token in self._tag_of or token not in self._special_ids)]
        if not self._tag_ids:
            text = self._decode(tokens)
            return [(bool(_TAG.fullmatch(piece)), piece) for piece in _TAG.split(text) if piece]
        pieces: list[_Piece] = []
        run: list[int] = []
        for token in [*tokens, None]:
            tag = None if token is None else self._tag_of.get(token)
            if token is None or tag is not None:
                if run:
                    pieces.append((False, self._decode(run)))
                    run = []
                if tag is not None:
                    pieces.append((True, tag))
            else:
                run.append(token)
        return pieces

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, clean_up_tokenization_spaces=False))

    def encode_reply(self, message: Message) -> IntArray:
        """See `Renderer.encode_reply`: thinking, then content, then the search. Ends with a closing tag or the end of sequence.

        Tags written out in the content are tags; in the thinking and in the query they are plain text.
        Raises RenderError for what the format cannot say: two calls, another tool than `search`, a query that is not a string.
        """
        pieces: list[_Piece] = []
        if message.reasoning is not None:
            pieces += [(True, "<think>"), (False, message.reasoning), (True, "</think>")]
        pieces += [(bool(_TAG.fullmatch(piece)), piece) for piece in _TAG.split(message.text) if piece.strip()]
        if message.tool_calls:
            pieces += [(True, "<search>"), (False, _read_query(message.tool_calls)), (True, "</search>")]
        ended = bool(pieces) and pieces[-1][0] and pieces[-1][1] in _ENDS
        body = self._encode_tokens(pieces) if self._tag_ids else self._encode_plain(pieces)
        return to_ids(body if ended else body + self._eos)

    def _encode_tokens(self, pieces: Sequence[_Piece]) -> list[int]:
        ids: list[int] = []
        for index, (is_tag, text) in enumerate(pieces):
            if is_tag:
                ids.append(self._tag_ids[text])
            elif text.strip():
                # After a tag a word keeps its space, so that it is the token it is in running text.
                ids += encode_text(self._tokenizer, f" {text.strip()}" if index else text.strip())
        return ids

    def _encode_plain(self, pieces: Sequence[_Piece]) -> list[int]:
        if any(_TAG.search(text) for is_tag, text in pieces if not is_tag):
            raise RenderError("a tag inside the thinking or the query cannot be written where tags are plain text; remove it")
        return encode_text(self._tokenizer, _join(pieces))


def _find(pieces: Sequence[_Piece], name: str) -> tuple[int, int] | None:
    """Where the first `<name>` that is closed later opens and where it closes."""
    if (True, f"<{name}>") not in pieces:
        return None
    start = pieces.index((True, f"<{name}>"))
    if (True, f"</{name}>") not in pieces[start:]:
        return None
    return start, pieces.index((True, f"</{name}>"), start)


def _join(pieces: Sequence[_Piece]) -> str:
    """The pieces as text, one space between two."""
    return " ".join(text for _, piece in pieces if (text := piece.strip()))


def _read_query(calls: Sequence[ToolCall]) -> str:
    try:
        (call,) = calls
        query = json.loads(call.arguments)["query"]
    except (ValueError, KeyError, TypeError, RecursionError):
        query = None
    if not isinstance(query, str) or calls[0].name != "search":
        shown = ", ".join(f"{call.name}({call.arguments})" for call in calls)[:200]
        raise RenderError(f'tags can write one call search({{"query": "..."}}) per reply, not {shown}; use renderer.kind="chat"')
    return query
