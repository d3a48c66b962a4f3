"""Finds out what a chat template writes around messages, by rendering probe conversations, and verifies that it
appends.

Only the texts of an extension come from here (`TemplateTurns`); a conversation's opening is rendered by the template
itself. A conversation of several turns, rendered at once, must be the sum of these texts, or the template is refused
with the difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from turnwise.core.errors import RenderError
from turnwise.rendering.chat_template import DATE, ChatMessage

Render = Callable[..., str]
"""A function like `ChatTemplate.render`."""

MODEL_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""Marks that a model writes inside a reply, whether or not its tokenizer has tokens for them."""

_NUM_TURNS = 5
_REMEDY = (
    'use renderer.kind="chat" if the renderers package knows this model, renderer.kind="tags" or "calls" otherwise, or '
    "give the tokenizer a chat template that keeps earlier turns as they were"
)
_WHERE = "mend it in chat_template.jinja of the tokenizer's folder, or in chat_template of its tokenizer_config.json"
_SCHEMA = {"type": "object", "properties": {"zq_argument": {"type": "string"}}, "required": ["zq_argument"]}
_TOOL = {"type": "function", "function": {"name": "zq_tool", "description": "zq text", "parameters": _SCHEMA}}
"""The tool that templates are asked to describe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The text around the messages between two replies."""

    before: str
    """The text from the token that ends a reply to the first message."""
    between: str
    """The text between two tool messages; empty for user messages, of which there is always one."""
    after: str
    """The text from the last message to the next reply: the generation prompt."""
    trims: bool
    """Whether the template strips white space around a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateTurns:
    """The texts that a template puts between turns."""

    lead: str
    """The text at the start of a reply, after the generation prompt; the model writes it."""
    trail: str
    """The text between a reply and its end."""
    end: str
    """The token that ends a reply."""
    adds_end: bool
    """Whether the template leaves that token out, so that it has to be added (it is then the tokenizer's EOS)."""
    prefill: str
    """The end of the generation prompt that the template leaves out in the history (an opened `<think>`)."""
    user: Slot
    tool: Slot | None
    """The slot of tool messages; None if the template has none, so that results are user messages."""
    has_system: bool
    """Whether there are system messages; if not, their text opens the first user message."""
    native_tools: bool
    """Whether the template describes tools itself, and writes calls as `write_call` does."""
    notes: tuple[str, ...]
    """What a person should know about the template, one clause each."""


def read_turns(
    render: Render, *, added_tokens: re.Pattern[str], eos: str | None, write_call: Callable[[str, str], str] | None
) -> TemplateTurns:
    """Read a template's turns. `added_tokens` matches the tokenizer's added tokens; `eos` is None if it has no such
    token.

    `write_call(name, arguments)` returns the text of a call; None: native tools are not tried. Raises RenderError
    naming what cannot be extended and the remedy.
    """
    try:
        opening = render([_user(0)])
        whole = render([_user(0), _assistant(1), _user(2)])
    except RenderError as cause:
        line = getattr(cause.__cause__, "lineno", None)
        if line is not None:  # a template that Jinja cannot compile
            raise RenderError(f"{cause} (line {line} of the template; {_WHERE})") from cause
        raise RenderError(f"{cause}, when rendering a question, a reply and another question; {_REMEDY}") from cause
    _check_order(whole, (0, 1, 2))
    history = opening[: _find_difference(opening, whole)]
    prefill, reply_at = opening[len(history) :], whole.index(_mark(1))
    if _mark(0) not in history:
        raise RenderError(
            f"the chat template rewrites earlier turns: with two turns it writes {_show(whole, len(history))} where it "
            f"writes {_show(opening, len(history))} with one; {_REMEDY}"
        )
    if prefill.strip() and not prefill.strip().startswith("<think>"):
        raise RenderError(
            f"the chat template prompts for a reply with {prefill!r} but leaves that out when it renders the reply "
            f"later, so earlier turns would have to be rewritten; {_REMEDY}"
        )
    lead = whole[len(history) : reply_at]
    marks = [match[0] for match in added_tokens.finditer(lead) if match[0] not in MODEL_MARKS]
    if marks:
        raise RenderError(
            f"the chat template writes {lead!r} between its generation prompt and a reply: control tokens ({marks[0]}) "
            f"that every reply has to start with; {_REMEDY}"
        )
    trail, end, before = _split_at_end(_between(whole, 1, 2), added_tokens)
    adds_end = end is None
    end = end or eos
    if end is None:
        raise RenderError(
            "the chat template ends replies with plain text, and the tokenizer has no eos_token; set eos_token in "
            "tokenizer_config.json"
        )
    user = Slot(
        before=before,
        between="",
        after=whole[whole.index(_mark(2)) + len(_mark(2)) :],
        trims=f" {_mark(0)} " not in render([{"role": "user", "content": f" {_mark(0)} "}]),
    )
    probe = _Probe(render=render, lead=lead, reply_end=trail + ("" if adds_end else end), prefill=prefill)
    probe.check(user, "user", opening=[_user(0)])
    has_system = _holds(lambda: probe.check(user, "user", opening=[_system(), _user(0)]))
    native = write_call is not None and _holds(lambda: _check_native(probe, user, write_call))
    # With tools, a tokenizer of several templates takes the one named "tool_use".
    tool = _read_tool_slot(probe, added_tokens, trail, None if adds_end else end, [_TOOL] if native else [])
    return TemplateTurns(
        lead=lead,
        trail=trail,
        end=end,
        adds_end=adds_end,
        prefill=prefill,
        user=user,
        tool=tool,
        has_system=has_system,
        native_tools=native,
        notes=tuple(_list_notes(render, prefill, end if adds_end else None, has_system=has_system)),
    )


def _mark(number: int) -> str:
    """Return a placeholder for a message: noncharacters, so that no template and no message contains it."""
    return f"\ufdd2{number}\ufdd3"


def _user(number: int) -> ChatMessage:
    return {"role": "user", "content": _mark(number)}


def _assistant(number: int) -> ChatMessage:
    return {"role": "assistant", "content": _mark(number)}


def _system() -> ChatMessage:
    return {"role": "system", "content": _mark(99)}


def _answer(role: str, number: int, content: str | None = None) -> ChatMessage:
    """Build a message that follows a reply."""
    text = _mark(number) if content is None else content
    return {"role": role, "content": text, **({"name": _mark(97), "tool_call_id": _mark(98)} if role == "tool" else {})}


def _between(text: str, left: int, right: int) -> str:
    return text[text.index(_mark(left)) + len(_mark(left)) : text.index(_mark(right))]


def _check_order(text: str, numbers: Sequence[int]) -> None:
    """Raise RenderError unless every message appears once, in order."""
    places = [text.find(_mark(number)) for number in numbers]
    if -1 in places or places != sorted(places) or any(text.count(_mark(number)) != 1 for number in numbers):
        shown = _name_marks(text)
        raise RenderError(
            f"the chat template drops, repeats or reorders messages: {len(numbers)} messages became {shown[:200]!r}; "
            f"{_REMEDY}"
        )


def _find_difference(left: str, right: str) -> int:
    """Return the number of characters in the common prefix of two texts."""
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _split_at_end(tail: str, added_tokens: re.Pattern[str]) -> tuple[str, str | None, str]:
    """Return the text before the token that ends a reply, that token (None if plain text ends it), and the text after
    it."""
    match = added_tokens.search(tail)
    if match is None or tail[: match.start()].strip():
        return "", None, tail
    return tail[: match.start()], match[0], tail[match.end() :]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """Renders conversations of several turns and compares them with the sum of their parts."""

    render: Render
    lead: str
    reply_end: str
    """The text from a reply to the end of the token that ends it, as the template writes it."""
    prefill: str

    def check(self, slot: Slot, role: str, *, opening: list[ChatMessage], tools: Sequence[dict[str, Any]] = ()) -> None:
        """Raise RenderError if a conversation is not its opening followed by one slot after another."""
        messages = list(opening)
        expected = self.render(messages, tools=tools).removesuffix(self.prefill)
        _check_order(expected, [99, 0] if len(opening) > 1 else [0])
        for number in range(1, 2 * _NUM_TURNS, 2):
            messages += [_assistant(number), _answer(role, number + 1)]
            expected += self.lead + _mark(number) + self.reply_end + slot.before + _mark(number + 1)
            expected += slot.after.removesuffix(self.prefill)
        expected += self.prefill
        found = self.render(messages, tools=tools)
        if found != expected:
            at = _find_difference(found, expected)
            raise RenderError(
                f"the chat template rewrites earlier turns: with {_NUM_TURNS} turns at once it writes "
                f"{_show(found, at)} where turn by turn it writes {_show(expected, at)}; {_REMEDY}"
            )


def _show(text: str, at: int) -> str:
    """Return the text around a position, starting at the message before it."""
    return repr(_name_marks(text[max(0, text.rfind("\ufdd2", 0, at)) : at + 40]).split("\ufdd2")[0][:80])


def _name_marks(text: str) -> str:
    return re.sub("\ufdd2(\\d+)\ufdd3", r"[message \1]", text)


def _holds(check: Callable[[], None]) -> bool:
    try:
        check()
    except RenderError:
        return False
    return True


def _read_tool_slot(
    probe: _Probe, added_tokens: re.Pattern[str], trail: str, end: str | None, tools: Sequence[dict[str, Any]]
) -> Slot | None:
    """Return the slot of tool messages, in conversations with `tools`.

    None if the template has no such role, rewrites a tool's result, writes the name or id of the call beside it, or
    ends the reply before it in another way.
    """
    start = [_user(0), _assistant(1)]
    odd = f'{_mark(2)} "x"\n<y> {_mark(3)}'
    try:
        two = probe.render([*start, _answer("tool", 2), _answer("tool", 3)], tools=tools)
        _check_order(two, (0, 1, 2, 3))
        named = probe.render([*start, _answer("tool", 2)], tools=tools)
        kept = odd in probe.render([*start, _answer("tool", 2, odd)], tools=tools)
        spaced = probe.render([*start, _answer("tool", 2, f" {_mark(2)} ")], tools=tools)
        tail = _split_at_end(_between(two, 1, 2), added_tokens)
        after = two[two.index(_mark(3)) + len(_mark(3)) :]
        slot = Slot(before=tail[2], between=_between(two, 2, 3), after=after, trims=f" {_mark(2)} " not in spaced)
        probe.check(slot, "tool", opening=[_user(0)], tools=tools)
    except RenderError:
        return None
    try:
        # A template that prints any role's name has never seen a tool.
        other = probe.render([*start, _answer("zqzq", 2)], tools=tools)
        generic = other.replace("zqzq", "tool") == named
    except RenderError:
        generic = False
    names_call = any(_mark(number) in two for number in (97, 98))
    return slot if kept and not generic and not names_call and tail[:2] == (trail, end) else None


def _check_native(probe: _Probe, user: Slot, write_call: Callable[[str, str], str]) -> None:
    """Raise RenderError unless the template describes tools, once and for all turns, and writes calls as we do."""
    text = probe.render([_user(0)], tools=[_TOOL])
    called = {
        "id": "call_0",
        "type": "function",
        "function": {"name": "zq_tool", "arguments": {"zq_argument": "x"}},
    }
    structured, written = (
        probe.render([_user(0), {"role": "assistant", **reply}, _user(2)], tools=[_TOOL])
        for reply in (
            {"content": "", "tool_calls": [called]},
            {"content": write_call("zq_tool", '{"zq_argument": "x"}')},
        )
    )
    if not all(word in text for word in ("zq_tool", "zq_argument", "zq text")) or structured != written:
        raise RenderError("the chat template writes calls in a different format")
    probe.check(user, "user", opening=[_user(0)], tools=[_TOOL])
    probe.check(user, "user", opening=[_system(), _user(0)], tools=[_TOOL])


def _list_notes(render: Render, prefill: str, added_end: str | None, *, has_system: bool) -> list[str]:
    notes = []
    if not has_system:
        notes.append("it has no lasting system message, so that text opens the first user message")
    if added_end is not None:
        notes.append(f"it ends replies with plain text, so {added_end} is added")
    if prefill or _drops_thoughts(render):
        notes.append("it drops the thoughts of earlier replies, and here they stay")
    if render([_user(0)], date=datetime(2031, 12, 25)) != render([_user(0)]):
        notes.append(f"it writes the date, which is always {DATE:%Y-%m-%d}")
    return notes


def _drops_thoughts(render: Render) -> bool:
    thoughtful = {"role": "assistant", "content": f"<think>\n{_mark(5)}\n</think>\n\n{_mark(1)}"}
    try:
        return _mark(5) not in render([_user(0), thoughtful, _user(2)])
    except RenderError:
        return False
