"""Print an episode in a terminal: a coloured label per role, calls indented, forgotten text grey."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from turnwise.reporting.voices import Row, Said, Talk, list_talks, read_message

COLOURS = (36, 33, 35, 32, 34, 31)
"""ANSI colours of the roles, in order."""
GREY = 90
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def wants_colour(is_terminal: bool, environ: Mapping[str, str]) -> bool:
    """Whether to use colours: only on a terminal, and never if NO_COLOR is set (no-color.org)."""
    return is_terminal and not environ.get("NO_COLOR")


def draw_episode(episode: Sequence[Row], *, colour: bool) -> Iterator[str]:
    """Every conversation with its opening, below its caller, then what was carried over from one to the next.

    `episode` holds a row for every role. Roles are named if there are several.
    """
    talks = list_talks(episode)
    roles = list(dict.fromkeys(row["id"]["role"] for row in episode))
    width = max(map(len, roles))
    for talk in talks:
        label = f"{talk.role:<{width}}  " if len(roles) > 1 else ""
        code = COLOURS[roles.index(talk.role) % len(COLOURS)] if colour else None
        for text, forgotten in _draw_talk(talk, has_name=len(talks) > 1):
            first, *rest = text.split("\n")
            lines = [first, *(f"{'    ' * talk.depth}         {line}" for line in rest)]
            yield from (_paint(label, code) + _paint(line, GREY if colour and forgotten else None) for line in lines)
    if any(talk.memory for talk in talks):
        yield "memory over time"
        longest = max(len(talk.name) for talk in talks)
        written = ((talk.name, clean_for_terminal(talk.memory, joined=True)) for talk in talks if talk.memory)
        yield from (f"  {name:<{longest}}  {memory}" for name, memory in written)


def _draw_talk(talk: Talk, *, has_name: bool) -> Iterator[tuple[str, bool]]:
    """Yield each text, which may have several lines, and whether it is forgotten."""
    indent = "    " * talk.depth
    if has_name:
        forgotten = bool(talk.said) and talk.said[0].forgot_context
        yield f"{indent}{talk.name}: {clean_for_terminal(talk.opening, joined=True)}", forgotten
    for said in talk.said:
        yield f"{indent}  model  {clean_for_terminal(said.turn['completion_text'])}", said.forgot_reply
        for message in said.turn["observations"]:
            yield f"{indent}  tool   {clean_for_terminal(read_message(message))}", _is_left(said, talk)


def _is_left(said: Said, talk: Talk) -> bool:
    """Whether the observation after a turn is forgotten: it is the context of the turn that continues from it."""
    after = talk.said.index(said) + 1
    return after < len(talk.said) and talk.said[after].forgot_context


def clean_for_terminal(text: str, *, joined: bool = False) -> str:
    """The text of a model or a tool with control characters replaced; with `joined`, on one line."""
    text = _CONTROL.sub("\ufffd", text.strip())
    return " ".join(text.split()) if joined else text


def _paint(text: str, code: int | None) -> str:
    return text if code is None or not text else f"\x1b[{code}m{text}\x1b[0m"
