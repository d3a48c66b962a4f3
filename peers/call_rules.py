"""References for the formats that no engine parses, each from its published rule and in a few lines of its own.

- `react`: the prompt's lines `Action:` and `Action Input:` (ReAct, 2210.03629), as its implementations read them: name
  and input by one regular expression, the input as JSON.
- `search_r1` (2503.09516): the first `<search>` or `<answer>` with its closing tag, by one regular expression.
- `retool` (2504.11536): the same with `<code>`.
- `fenced`: code blocks by one regular expression, and their content as JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any

Calls = list[dict[str, Any]]


def read_react(text: str) -> Calls:
    """One call, or none."""
    match = re.search(r"Action\s*:\s*(.*?)\s*Action\s*Input\s*:\s*(.*)", text.split("\nObservation:")[0], re.DOTALL)
    return [] if match is None else _load([(match[1].strip(), match[2].strip())])


def read_fenced(text: str) -> Calls:
    """Every block marked as a tool's."""
    calls: Calls = []
    for body in re.findall(r"```tool\n(.*?)```", text, re.DOTALL):
        try:
            value = json.loads(body)
            calls.append({"name": value["name"], "arguments": value["arguments"]})
        except (ValueError, KeyError, TypeError):
            continue
    return calls


def read_search_r1(text: str) -> Calls:
    """The first search, unless an answer comes first."""
    match = re.search(r"<(search|answer)>(.*?)</\1>", text, re.DOTALL)
    return [{"name": "search", "arguments": {"query": match[2].strip()}}] if match and match[1] == "search" else []


def read_retool(text: str) -> Calls:
    """The first program, unless an answer comes first."""
    match = re.search(r"<(code|answer)>(.*?)</\1>", text, re.DOTALL)
    return [{"name": "python", "arguments": {"code": match[2].strip()}}] if match and match[1] == "code" else []


def _load(pairs: list[tuple[str, str]]) -> Calls:
    calls: Calls = []
    for name, written in pairs:
        try:
            calls.append({"name": name, "arguments": json.loads(written)})
        except ValueError:
            continue
    return calls


RULES = {"react": read_react, "fenced": read_fenced, "search_r1": read_search_r1, "retool": read_retool}
