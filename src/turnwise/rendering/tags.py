"""Formats with tags in running text, without a chat template: Search-R1's (2503.09516), ReTool's (2504.11536) and a
shell's.

One conversation as tokens, where the tokenizer has each tag as one token (a closing tag then needs no space before it):

    What is the author of Blue Lantern ?         opening, context
    <search> author of Blue Lantern</search>     reply 1, sampled
    <information> The author ...</information>   observation, context
    <answer> Mira Tolen</answer>                 reply 2, sampled

With any other tokenizer the tags are plain text, spelled and spaced as in the published format. As text, in messages, a
tag always has one space on its inside: `<answer> Mira Tolen </answer>`. Knows nothing about what a tool returns or is
worth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from turnwise.core.errors import RenderError
from turnwise.core.types import IntArray, Message, ToolCall, ToolCallError, ToolSpec, reply_message, to_ids
from turnwise.rendering.images import encode_around, write_text
from turnwise.rendering.tokenizer import encode_part, encode_text, find_opening_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, kw_only=True)
class TagFormat:
    """A tag format. Every format also has `<think>` for reasoning and `<answer>`, which ends the episode."""

    action: str
    """Name of the tag whose content calls the tool."""
    tool: str
    """Name of that tool."""
    argument: str
    """The tool's one argument, a string: the text in the tag."""
    observation: str
    """Name of the tag around the tool's answer."""
    gaps: tuple[str, str, str, str]
    """If tags are plain text: the text before and after the observation's opening tag, then before and after its
    closing tag."""
    ends_unmarked: str | None
    """Regular expression for a text that ends the episode without a tag, matched at the content's start and linear in
    its length; None if only `<answer>` ends it."""
    no_action: str
    """What the model is told about a reply that neither calls the tool nor answers."""
    unclosed: str
    """What the model is told about a tag left open."""

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Every tag, opening before closing."""
        return tuple(
            f"<{slash}{name}>" for name in ("think", self.action, self.observation, "answer") for slash in ("", "/")
        )

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """The tags that end a reply."""
        return f"</{self.action}>", "</answer>"

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches one tag, captured."""
        return re.compile("(" + "|".join(self.tags) + ")")

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens of a tokenizer trained for this format; the first ends a sequence."""
        return "<|endoftext|>", "<|pad|>", *self.tags


FORMATS: Mapping[str, TagFormat] = {
    "search_r1": TagFormat(
        action="search",
        tool="search",
        argument="query",
        observation="information",
        gaps=("\n\n", "", "", "\n\n"),
        ends_unmarked=None,
        no_action=(
            "no <search> or <answer> found; write <search> query </search> to search or <answer> answer "
            "</answer> to answer"
        ),
        unclosed="a tag was opened and not closed; end a search with </search> and an answer with </answer>",
    ),
    "retool": TagFormat(
        action="code",
        tool="python",
        argument="code",
        observation="interpreter",
        gaps=("\n", "\n", "\n", "\n\n"),
        ends_unmarked=r"(?s)(?>.*?\\boxed\s*\{).*\}",
        no_action=(
            "no <code> and no answer found; write <code> program </code> to run a program or \\boxed{answer} to answer"
        ),
        unclosed="a tag was opened and not closed; end a program with </code> and an answer with </answer>",
    ),
    "shell": TagFormat(
        action="command",
        tool="shell",
        argument="command",
        observation="output",
        gaps=("\n", "\n", "\n", "\n"),
        ends_unmarked=None,
        no_action="no <command> and no <answer> found; write <command> command </command> to run a command",
        unclosed="a tag was opened and not closed; end a command with </command>",
    ),
}
"""The formats by name. ReTool's answer is a `\\boxed{}`, with or without `<answer>` around it."""

UNFINISHED = "a thought was opened and not closed; end it with </think> before you act or answer"
"""What the model is told about a reply that ends inside a thought."""

_Piece = tuple[bool, str]
"""Whether the piece is a tag, and its text. Text in plain tokens that looks like a tag is not one."""


class TagRenderer:
    """Implements `core.protocols.Renderer`. Only the format's own tool can be called."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tag_format: TagFormat = FORMATS["search_r1"],
        *,
        ends: Sequence[int] = (),
        max_observation_tokens: int | None = None,
        marker: str | None = None,
    ) -> None:
        """`ends` are further tokens that end a reply (`ends.read_end_ids`).

        `max_observation_tokens` limits what one observation appends, always keeping the closing tag and pictures; None:
        no limit. `marker` is what a picture is encoded as (`core.pictures.PictureLayout`); None refuses pictures."""
        self._tokenizer = tokenizer
        self._format = tag_format
        self._max_observation_tokens = max_observation_tokens
        self._marker_ids = None if marker is None else encode_part(tokenizer, marker, continues=True)
        added = tokenizer.get_added_vocab()
        self._tag_ids: dict[str, int] = (
            {tag: added[tag] for tag in tag_format.tags} if all(tag in added for tag in tag_format.tags) else {}
        )
        """Empty if tags are plain text."""
        self._tag_of = {token: tag for tag, token in self._tag_ids.items()}
        self._special_ids = frozenset(tokenizer.all_special_ids)
        self._eos: list[int] = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
        own = (*self._eos, *(self._tag_ids[tag] for tag in tag_format.ends if self._tag_ids))
        self.stop_token_ids: tuple[int, ...] = tuple(dict.fromkeys((*own, *ends)))
        self._opening = find_opening_ids(tokenizer)
        self.stop: tuple[str, ...] = () if self._tag_ids else tag_format.ends

    @property
    def format(self) -> TagFormat:
        """The tags."""
        return self._format

    @property
    def has_tag_tokens(self) -> bool:
        """Whether each tag is one token; else tags are plain text."""
        return bool(self._tag_ids)

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        """Return the texts of the messages, separated by blank lines; from the first reply on, as in a conversation.

        Tags in the texts (the published instruction has some) are plain text. `tools` are not rendered: the prompt
        explains the format. Raises RenderError when there is no text at all, and for a reply that the format cannot
        express.
        """
        return self.open_with(messages, self.encode_reply)

    def open_with(self, messages: Sequence[Message], encode_reply: Callable[[Message], IntArray]) -> IntArray:
        """See `open`; `encode_reply` encodes the replies in the messages."""
        roles = [message.role for message in messages]
        first = next((at for at, role in enumerate(roles) if role in ("assistant", "tool")), len(roles))
        ids = self._encode_shown("\n\n".join(map(write_text, messages[:first])))
        if not ids:
            raise RenderError("the conversation starts without any text; add a prompt to the task")
        for message in messages[first:]:
            ids += encode_reply(message).tolist() if message.role == "assistant" else self._observation(message)
        return to_ids([*self._opening, *ids])

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        """Return a tool's answer inside the observation's tag; anything else as plain text.

        Text from outside never becomes a tag token.
        """
        return to_ids([token for message in observations for token in self._observation(message)])

    def _observation(self, message: Message) -> list[int]:
        body = write_text(message).strip()
        answers_call = message.role == "tool" and message.tool_call_id is not None
        name = self._format.observation
        opening, closing = (f"<{name}>", f"</{name}>") if answers_call else ("", "")
        if self._tag_ids:
            head, tail = ([self._tag_ids[tag]] if tag else [] for tag in (opening, closing))
            ids = self._encode_shown(f" {body}" if body else "", continues=True)
        else:
            gaps = self._format.gaps if answers_call else ("\n", "", "", "\n")
            head, tail = (
                encode_text(self._tokenizer, text, continues=True)
                for text in (gaps[0] + opening + gaps[1], gaps[2] + closing + gaps[3])
            )
            # In plain text the parser cannot tell who wrote a tag, so tags in a tool's answer lose their brackets.
            said = self._format.pattern.sub(lambda match: match[0][1:-1], body) if answers_call else body
            ids = self._encode_shown(said, continues=True)
        if self._max_observation_tokens is not None:
            ids = self._cut(ids, max(0, self._max_observation_tokens - len(head) - len(tail)))
        return [*head, *ids, *tail]

    def _encode_shown(self, text: str, *, continues: bool = False) -> list[int]:
        """Encode the text of messages, with pictures."""
        return encode_around(
            text,
            lambda piece, follows: encode_text(self._tokenizer, piece, continues=continues or follows),
            self._marker_ids,
        )

    def _cut(self, ids: list[int], most: int) -> list[int]:
        """Return the first `most` tokens of text; markers are kept and do not count."""
        markers = frozenset(self._marker_ids or ())
        is_text = [token not in markers for token in ids]
        return [
            token
            for token, text, before in zip(ids, is_text, accumulate(is_text), strict=True)
            if not text or before <= most
        ]

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray, tools: Sequence[ToolSpec] = ()) -> Message:
        """See `Renderer.parse`.

        The first complete action or `<answer>` wins, in the order of the text; an answer stays in the content, tags and
        all. The call's arguments are a JSON object with the format's one argument: everything between the tags,
        including other tags, without the one space or new line that the format has at each end. `<think>` spans outside
        become `reasoning`; an unclosed one extends to the end of the reply, and an answer inside it does not count. A
        text that ends an episode without a tag counts if there is no complete action or answer. A reply with none of
        these has one tool error, `unclosed` when a tag was left open, else `no_action`.
        """
        form = self._format
        read = read_pieces(self._split(completion_ids), form)
        content = _join(read.content)
        thoughts = [text.strip() for text in read.thoughts]
        calls: tuple[ToolCall, ...] = ()
        errors: tuple[ToolCallError, ...] = ()
        if read.action is not None:
            arguments = json.dumps({form.argument: _trim(read.action)}, ensure_ascii=False)
            calls = (ToolCall(id=f"call_{len(prompt_ids)}", name=form.tool, arguments=arguments),)
        elif not read.answered and not (form.ends_unmarked and re.match(form.ends_unmarked, content)):
            kind: Literal["unclosed", "no_action"] = "unclosed" if read.unclosed else "no_action"
            message = UNFINISHED if read.unfinished else form.unclosed if read.unclosed else form.no_action
            errors = (ToolCallError(kind=kind, raw=content, message=message),)
        return reply_message(
            content,
            reasoning="\n".join(thoughts) if thoughts else None,
            tool_calls=calls,
            tool_errors=errors,
        )

    def _split(self, completion_ids: IntArray) -> list[_Piece]:
        """Split into tags and the text between them. Other special tokens (the end of the sequence) are left out."""
        tokens = [
            token
            for token in completion_ids.tolist()
            if token >= 0 and (token in self._tag_of or token not in self._special_ids)
        ]
        if not self._tag_ids:
            text = self._decode(tokens)
            return self._split_text(text)
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

    def _split_text(self, text: str) -> list[_Piece]:
        return [
            (bool(self._format.pattern.fullmatch(piece)), piece) for piece in self._format.pattern.split(text) if piece
        ]

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, clean_up_tokenization_spaces=False))

    def encode_reply(self, message: Message) -> IntArray:
        """See `Renderer.encode_reply`: thinking, then content, then the call.

        Ends with a closing tag or the end of sequence. Tags written out in the content are tags; in the thinking and in
        the call they are plain text. Raises RenderError for what the format cannot express: two calls, another tool, an
        argument that is not a string.
        """
        pieces: list[_Piece] = []
        if message.reasoning is not None:
            pieces += [(True, "<think>"), (False, message.reasoning), (True, "</think>")]
        pieces += [piece for piece in self._split_text(message.text) if piece[1].strip()]
        if message.tool_calls:
            argument = _read_argument(message.tool_calls, self._format)
            return to_ids(self._encode_call(pieces, argument))
        ended = bool(pieces) and pieces[-1][0] and pieces[-1][1] in self._format.ends
        body = self._encode_tokens(pieces) if self._tag_ids else self._encode_plain(_join(pieces), pieces)
        return to_ids(body if ended else body + self._eos)

    def _encode_call(self, before: Sequence[_Piece], argument: str) -> list[int]:
        """Encode a reply that ends with a call: the argument unchanged, with the space at its ends that `parse`
        removes."""
        opening, closing = f"<{self._format.action}>", f"</{self._format.action}>"
        if not self._tag_ids:
            written = f"{opening} {argument}{' ' * bool(argument)}{closing}"
            text = " ".join(part for part in (_join(before), written) if part)
            return self._encode_plain(text, [*before, (False, argument)])
        spaced = f" {argument}{' ' * argument[-1].isspace()}" if argument else ""
        ids = encode_text(self._tokenizer, spaced, continues=True)
        return [*self._encode_tokens(before), self._tag_ids[opening], *ids, self._tag_ids[closing]]

    def _encode_tokens(self, pieces: Sequence[_Piece]) -> list[int]:
        ids: list[int] = []
        for index, (is_tag, text) in enumerate(pieces):
            if is_tag:
                ids.append(self._tag_ids[text])
            elif text.strip():
                # After a tag a word keeps its space, so that it is the token it is in running text.
                spaced = f" {text.strip()}" if index else text.strip()
                ids += encode_text(self._tokenizer, spaced, continues=True)
        return ids

    def _encode_plain(self, text: str, pieces: Sequence[_Piece]) -> list[int]:
        """Return the token ids of the text that `pieces` form. Raises RenderError for a tag where none is meant."""
        if any(self._format.pattern.search(text) for is_tag, text in pieces if not is_tag):
            raise RenderError(
                "a tag inside the thinking or the call cannot be written if tags are plain text; remove it"
            )
        return encode_text(self._tokenizer, text, continues=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """A reply split at its tags."""

    content: list[_Piece]
    """The text outside thoughts and before the action; with an answer, also everything that follows."""
    thoughts: list[str]
    action: str | None
    """The text in the first complete action's tags, unchanged; None if an answer came first, or there is neither."""
    answered: bool
    unclosed: bool
    """Whether a tag was left open."""
    unfinished: bool = False
    """Whether a thought was left open, so that it contains the rest of the reply."""


def read_pieces(pieces: Sequence[_Piece], form: TagFormat) -> _Reply:
    """Read from left to right: the content of a tag that closes is text, whatever tags it contains. Linear."""
    last = {text: at for at, (is_tag, text) in enumerate(pieces) if is_tag}
    content: list[_Piece] = []
    thoughts: list[str] = []
    thinks_from: int | None = None  # where an unclosed thought begins in the content
    unclosed = False
    at = 0
    while at < len(pieces):
        is_tag, text = pieces[at]
        name = text[1:-1] if is_tag and text[1] != "/" else ""
        end = last.get(f"</{name}>", -1) if name in ("think", form.action, "answer") else None
        if end is not None and end > at:
            end = next(later for later in range(at + 1, end + 1) if pieces[later] == (True, f"</{name}>"))
            inside = "".join(text for _, text in pieces[at + 1 : end])
            if name == form.action:
                return _Reply(content=content, thoughts=thoughts, action=inside, answered=False, unclosed=unclosed)
            if name == "think":
                thoughts.append(inside)
            elif thinks_from is None:
                content += [(True, text), (False, inside), *pieces[end:]]
                return _Reply(content=content, thoughts=thoughts, action=None, answered=True, unclosed=unclosed)
            else:
                content += pieces[at : end + 1]
            at = end + 1
            continue
        unclosed = unclosed or end is not None
        if name == "think" and thinks_from is None:
            thinks_from = len(content)
        content.append((is_tag, text))
        at += 1
    if thinks_from is not None:
        thoughts.append("".join(text for _, text in content[thinks_from + 1 :]))
        content = content[:thinks_from]
    unfinished = thinks_from is not None
    return _Reply(
        content=content, thoughts=thoughts, action=None, answered=False, unclosed=unclosed, unfinished=unfinished
    )


def _trim(argument: str) -> str:
    """Return the text without the one space or new line that the format puts at each end."""
    for space in ("\r\n", "\n", " "):
        if argument.startswith(space):
            argument = argument.removeprefix(space)
            break
    return next((argument.removesuffix(space) for space in ("\r\n", "\n", " ") if argument.endswith(space)), argument)


def _join(pieces: Sequence[_Piece]) -> str:
    """Join the pieces with single spaces."""
    return " ".join(text for _, piece in pieces if (text := piece.strip()))


def _read_argument(calls: Sequence[ToolCall], form: TagFormat) -> str:
    try:
        (call,) = calls
        argument = json.loads(call.arguments)[form.argument]
    except (ValueError, KeyError, TypeError, RecursionError):
        argument = None
    if not isinstance(argument, str) or calls[0].name != form.tool:
        shown = ", ".join(f"{call.name}({call.arguments})" for call in calls)[:200]
        expected = f'{form.tool}({{"{form.argument}": "..."}})'
        raise RenderError(
            f'tags can write one call {expected} per reply, not {shown}; use renderer.kind="calls" for a randomly '
            'initialized model, and renderer.kind="chat" or "template" for a chat model'
        )
    return argument
