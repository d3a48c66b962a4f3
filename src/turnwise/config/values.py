"""Values as people write them: lists without quotes, and `~` for the home folder."""

from __future__ import annotations

import os.path
import re
import tomllib
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(
    r"""(?P<kept>"(?:[^"\\]|\\.)*"|'[^']*')|(?P<before>[\[,=]\s*)(?P<word>[^\s\[\]{},="'][^\[\]{},="']*?)(?=\s*[,\]}])"""
)
"""A quoted text, or what stands between the marks of a list or a table."""


def parse_bare(text: str) -> Any:
    """The list or table of a text whose words lack their quotes, such as `[tensorboard, wandb]` or `{search = off}`;
    any other text as it is."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {_BARE.sub(_quote, text)}")["value"]
    except ValueError:
        return text


def _quote(match: re.Match[str]) -> str:
    word = match["word"]
    if word is None or _is_value(word):
        return match[0]
    text = word.replace("\\", "\\\\")
    return f'{match["before"]}"{text}"'


def _is_value(word: str) -> bool:
    try:
        tomllib.loads(f"value = {word}")
    except ValueError:
        return False
    return True


def expand_home(value: Any) -> Any:
    """The value with `~/` and `~NAME/` at the start of its texts, and of those in its lists and tables, replaced by the
    home folder, which a shell does for words of their own alone; also after the `frozen:` of a role."""
    if isinstance(value, str):
        kind, colon, path = value.partition(":") if value.startswith("frozen:~") else ("", "", value)
        return kind + colon + (os.path.expanduser(path) if re.match(r"~[\w.-]*(/|$)", path) else path)
    if isinstance(value, Mapping):
        return {key: expand_home(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [expand_home(each) for each in value]
    return value
