"""Reads a reply with the `renderers` package in time linear in its length where a format's marks are text.

To say which tokens a call consists of, the package decodes the text before a mark anew for every further token, which
takes time quadratic in the number of tokens. Here all tokens between two that the format matches by id are one id for
the package, and where a call stands in the tokens is left open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from typing import Any

NO_TOKEN = -1


class JoinedIds(int):
    """The id, of no token, that stands for the text of several tokens."""

    text: str

    def __new__(cls, text: str) -> JoinedIds:
        """Stand for `text`."""
        joined = super().__new__(cls, NO_TOKEN)
        joined.text = text
        return joined


def join_ids(token_ids: Sequence[int], keep: Collection[int], decode: Callable[[list[int]], str]) -> list[int]:
    """Return the ids with each run of tokens that are not in `keep` as one id."""
    joined: list[int] = []
    for is_kept, group in groupby(token_ids, keep.__contains__):
        run = list(group)
        joined += run if is_kept else [JoinedIds(decode(run))]
    return joined


def decode_joined(ids: Sequence[int], decode: Callable[[list[int]], str]) -> str:
    """Return the text of ids, of which some may stand for several tokens."""
    return "".join(
        "".join(each.text for each in run if isinstance(each, JoinedIds)) if is_joined else decode(list(run))
        for is_joined, run in groupby(ids, lambda each: isinstance(each, JoinedIds))
    )


def parse_joined(parse: Callable[..., Any], keep: Collection[int], decode: Callable[[list[int]], str]) -> Any:
    """Return `parse_response` of a renderer, on joined ids; `keep` are the tokens that it matches by id."""

    def parse_response(token_ids: Sequence[int], **options: Any) -> Any:
        parsed = parse(join_ids(token_ids, keep, decode), **options)
        for call in parsed.tool_calls:
            call.token_span = None  # it counts joined ids
        return parsed

    return parse_response
