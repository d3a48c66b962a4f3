"""Replies with tool calls in nine formats, many of them hostile: what `make_call_golden.py` lets other parsers read.

A reply is a text as a model may write it. Its `differs` says in one clause why Turnwise reads other calls in it than
the reference does; empty where both read the same. Every format gets the same values and faults, in its own marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

TOOLS = (
    {"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}},
    {
        "name": "open",
        "parameters": {
            "type": "object",
            "properties": {
                "page": {"type": "integer"},
                "ratio": {"type": "number"},
                "whole": {"type": "boolean"},
                "ids": {"type": "array", "items": {"type": "integer"}},
                "options": {"type": "object"},
                "note": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        },
    },
    {"name": "clear", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One reply."""

    text: str
    differs: str = ""


@dataclass(frozen=True, kw_only=True)
class Marks:
    """How a format writes a call."""

    call: Callable[[str, str], str]
    """Name and JSON of the arguments to text."""
    cut: int = 0
    """Characters at the end of a call without which it is not closed."""


MARKS: dict[str, Marks] = {
    "hermes": Marks(
        call=lambda name, args: f'<tool_call>\n{{"name": "{name}", "arguments": {args}}}\n</tool_call>', cut=12
    ),
    "fenced": Marks(call=lambda name, args: f'```tool\n{{"name": "{name}", "arguments": {args}}}\n```', cut=3),
    "react": Marks(call=lambda name, args: f"Action: {name}\nAction Input: {args}", cut=1),
    "llama": Marks(call=lambda name, args: f'{{"name": "{name}", "parameters": {args}}}', cut=1),
    "mistral": Marks(call=lambda name, args: f"[TOOL_CALLS]{name}[ARGS]{args}", cut=1),
    "mistral_list": Marks(call=lambda name, args: f'[TOOL_CALLS][{{"name": "{name}", "arguments": {args}}}]', cut=1),
    "deepseek_v3": Marks(
        call=lambda name, args: (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{args}\n```"
            "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        cut=34,
    ),
    "deepseek_v31": Marks(
        call=lambda name, args: (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{args}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        cut=34,
    ),
}
"""Formats whose arguments are JSON. Those of tags have replies of their own below."""

VALUES: tuple[str, ...] = (
    '{"query": "Blue Lantern"}',
    "{}",
    '{"query": ""}',
    '{ "query" :\t"a" }',
    '{"query": "caf\\u00e9 \\ud83d\\ude42 é 🙂"}',
    '{"query": "a \\"quoted\\" word, a \\\\ and a \\n line"}',
    '{"query": "it\'s {braces} and [brackets], }{ and ]["}',
    '{"query": "say \\"</tool_call>\\""}',
    '{"query": "a </tool_call> b"}',
    '{"query": "<tool_call>{\\"name\\": \\"clear\\", \\"arguments\\": {}}</tool_call>"}',
    '{"query": "```\\ncode\\n```"}',
    '{"query": "a ``` b"}',
    '{"query": "[TOOL_CALLS] and [ARGS]"}',
    '{"query": "<｜tool▁call▁end｜> and <｜tool▁sep｜>"}',
    '{"query": "<think>abc</think>"}',
    '{"query": "\\nAction: clear\\nAction Input: {}\\nObservation: done"}',
    '{"page": 3, "ratio": 1e3, "whole": true, "note": null, "ids": [1, 2], "options": {"deep": {"er": []}}}',
    '{"page": 12345678901234567890, "ratio": -0.0}',
    '{"code": "cat > f <<\'E\'\\n<answer>\\n\\nx\\n</answer>\\nE\\n"}',
    '{"query": "a"\n,\n  "page":\n 3 }',
    '{"query": "'
    + "x" * 300
    + '"}',
)
"""Arguments that JSON allows, whatever marks stand in their strings."""

FAULTS: dict[str, str] = {
    "single quotes": "{'query': 'a'}",
    "Python literals": '{"whole": True, "note": None}',
    "a trailing comma": '{"query": "a",}',
    "a raw new line in a string": '{"query": "a\nb"}',
    "a comment": '{"query": "a" /* b */}',
    "NaN": '{"ratio": NaN}',
    "nothing": "",
    "text": "Blue Lantern",
    "half a value": '{"query": "a',
    "two values": '{"query": "a"}{"query": "b"}',
    "deep brackets": "[" * 300,
}
"""Arguments that JSON does not allow."""

BODIES: tuple[str, ...] = (
    '{"name": "clear", "parameters": {"path": "/tmp"}}',
    '{"name": "clear", "args": {"path": "/tmp"}}',
    '{"name": "clear", "input": {"path": "/tmp"}}',
    '{"name": "clear", "arguments": {"path": "a"}, "parameters": {"path": "b"}}',
    '{"name": "clear"}',
    '{"name": "clear", "path": "/tmp"}',
    '{"arguments": {"path": "/tmp"}, "name": "clear"}',
    '{"id": "1", "type": "function", "name": "clear", "arguments": {"path": "/tmp"}}',
    '{"function": {"name": "clear", "arguments": {}}}',
    '{"arguments": {"path": "/tmp"}}',
    '{"name": 3, "arguments": {}}',
    '{"name": "", "arguments": {}}',
    '{"name": "clear", "arguments": "{\\"path\\": \\"/tmp\\"}"}',
    '{"name": "clear", "arguments": null}',
    '{"name": "clear", "arguments": [1]}',
    "[1, 2]",
    '"clear"',
    '{"name": "clear", "arguments": {"path": "a"}, "arguments": {"path": "b"}}',
    '{"thought": "it is full", "name": "clear", "arguments": {"path": "/tmp"}}',
)
"""Objects in place of a call, for the formats whose calls are JSON objects."""

OBJECT_MARKS: dict[str, Callable[[str], str]] = {
    "hermes": lambda body: f"<tool_call>\n{body}\n</tool_call>",
    "fenced": lambda body: f"```tool\n{body}\n```",
    "llama": lambda body: body,
    "mistral_list": lambda body: f"[TOOL_CALLS][{body}]",
}

TAG_REPLIES: dict[str, tuple[str, ...]] = {
    "qwen_coder": (
        "<tool_call>\n<function=search>\n<parameter=query>\nBlue Lantern\n</parameter>\n</function>\n</tool_call>",
        "<tool_call><function=search><parameter=query>Blue Lantern</parameter></function></tool_call>",
        "<tool_call>\n<function=clear>\n</function>\n</tool_call>",
        "<function=search>\n<parameter=query>\na\n</parameter>\n</function>",
        "Let me look.\n<tool_call>\n<function=search>\n<parameter=query>\na\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=search>\n<parameter=query>\na\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=clear>\n<parameter=path>\nb\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=search>\n<parameter=query>\n2024\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=search>\n<parameter=query>\ntrue\n</parameter>\n</function>\n</tool_call>",
        '<tool_call>\n<function=search>\n<parameter=query>\n{"a": 1}\n</parameter>\n</function>\n</tool_call>',
        "<tool_call>\n<function=search>\n<parameter=query>\n  two spaces  \n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=search>\n<parameter=query>\n\n\nlines\n\n\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=search>\n<parameter=query>\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=search>\n<parameter=query>\n\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=search>\n<parameter=query>\na < b && c > d\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=search>\n<parameter=query>\n&lt;b&gt; &amp;\n</parameter>\n</function>\n</tool_call>",
        '<tool_call>\n<function=search>\n<parameter=query>\n"quoted" \\n é 🙂\n</parameter>\n</function>\n</tool_call>',
        "<tool_call>\n<function=open>\n<parameter=page>\n3\n</parameter>\n<parameter=ratio>\n0.5\n</parameter>\n"
        "<parameter=whole>\ntrue\n</parameter>\n<parameter=ids>\n[1, 2]\n</parameter>\n<parameter=options>\n"
        '{"a": {"b": []}}\n</parameter>\n<parameter=note>\nnull\n</parameter>\n</function>\n</tool_call>',
        "<tool_call>\n<function=open>\n<parameter=whole>\nTrue\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=open>\n<parameter=page>\nthree\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=open>\n<parameter=note>\nsome text\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=open>\n<parameter=code>\nif x:\n    y = '</p>'\n\n    z\n</parameter>\n</function>\n"
        "</tool_call>",
        "<tool_call>\n<function=open>\n<parameter=code>\ns = '<think>abc</think>'\n</parameter>\n</function>\n"
        "</tool_call>",
        "<tool_call>\n<function=open>\n<parameter=code>\ns = 'a</parameter>b'\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=unknown>\n<parameter=x>\n7\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=search>\n<parameter=query>\na\n</parameter>\n</function>",
        "<tool_call>\n<function=search>\n<parameter=query>\na",
        "<tool_call>\n<function=search>\n<parameter=query>\na\n<parameter=other>\nb\n</parameter>\n</function>\n"
        "</tool_call>",
        "<tool_call>\n<function=search\n<parameter=query>\na\n</parameter>\n</function>\n</tool_call>",
        '<tool_call>\n{"name": "search", "arguments": {"query": "a"}}\n</tool_call>',
        "<tool_call>\n</tool_call>",
        "No call, only text with <b>tags</b>.",
        "<tool_call>\n<function=>\n<parameter=query>\na\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=open>\n<parameter=code>\nx </function> y\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=open>\n<parameter=options>\n{'a': 1}\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=open>\n<parameter=page>\n1\n</parameter>\n<parameter=page>\n2\n</parameter>\n</function>\n"
        "</tool_call>",
    ),
    "search_r1": (
        "<search>author of Blue Lantern</search>",
        "<search> author of Blue Lantern </search>",
        "<think> I need it. </think> <search> author </search>",
        "I see <search> a </search> and <search> b </search>",
        "<answer> Mira </answer>",
        "<answer> Mira </answer><search> b </search>",
        "<search> a </search><answer> Mira </answer>",
        "<search> a",
        "</search> a",
        "just text",
        "<search></search>",
        '<search> "quoted" \\n é 🙂 </search>',
        "<search>line one\nline two</search>",
        "<search> <b>bold</b> </search>",
        "<search> a <think> b </think> c </search>",
        "<think> <search> a </search> </think> well",
        "<think> so <search> a </search>",
        "<search> a </answer> b </search>",
    ),
    "retool": (
        "<code>print(1)</code>",
        "<code>\nprint(1)\n</code>",
        "<code>\nif x:\n    y = 1\n\n\nz = 2\n</code>",
        '<code>s = "<think>abc</think>"</code>',
        "<code>cat > f <<'E'\n<answer>\n\nx\n</answer>\nE</code>",
        '<code>s = "<interpreter>"  # </interpreter></code>',
        "<think> hm </think>\n<code>\tx\t=\t1</code>",
        "<code>a</code> then <code>b</code>",
        "<code> a",
        "The answer is \\boxed{7}.",
    ),
}
"""Replies in the formats of tags."""


def list_replies(name: str) -> Iterator[Reply]:
    """The replies of a format."""
    reasons = DIFFERENCES.get(name, {})
    texts = list(dict.fromkeys(_list_texts(name)))
    unknown = set(reasons) - set(range(len(texts)))
    if unknown:
        raise ValueError(f"{name}: differences are stated for replies {sorted(unknown)}, which do not exist")
    for number, text in enumerate(texts):
        yield Reply(text=text, differs=reasons.get(number, ""))


def _list_texts(name: str) -> Iterator[str]:
    if name in TAG_REPLIES:
        yield from TAG_REPLIES[name]
        return
    call, cut = MARKS[name].call, MARKS[name].cut
    for value in VALUES:
        yield call("search", value)
    first, second = call("search", '{"query": "a"}'), call("clear", '{"path": "b"}')
    yield f"Let me look.\n{first}"
    yield f"{first}\nThat is all."
    yield f"{first}\n{second}"
    yield f"{first}{second}"
    yield f"One.\n{first}\nTwo.\n{second}\nThree."
    yield first[:-cut]
    yield first[: len(first) // 2]
    yield f"{second}\n{first[:-cut]}"
    yield "No call at all, but {braces}, [lists] and \"quotes\"."
    yield ""
    yield call("search it", '{"query": "a"}')
    yield call("open", '{"page": "3", "whole": "true"}')
    for fault in FAULTS.values():
        yield call("search", fault)
    yield f"{call('search', FAULTS['single quotes'])}\n{second}"
    for body in BODIES:
        if name in OBJECT_MARKS:
            yield OBJECT_MARKS[name](body)


FORMATS = (*MARKS, *TAG_REPLIES)

_MARK = "a mark inside a JSON string is part of the string"
_CLOSED = "an unclosed call or value is reported to the model"
_TOLD = "invalid JSON, or a value that is not a separate object, is reported to the model; the reference passes it on"
_OTHERS = "a malformed call does not affect the others"
_SEVERAL = "every call is read, and text after a call is content"
_PARAMETERS = "arguments may be under `parameters`"
_LOST = "arguments under another key are reported to the model; the reference drops them and runs the tool"
_BOTH = "arguments in two places, or repeated, are reported to the model; the reference drops one"
_NONE = "a call may have no arguments"
_NAME = "a call without a name is reported to the model"
_STRING = "arguments given as a JSON string are parsed as JSON"
_NULL = "null arguments are reported to the model; the reference runs the tool without arguments"
_TYPE = "a value of the wrong type is reported to the model; the reference converts it"
_LINES = "JSON may span several lines"
_VALUE = "a closing tag inside a value ends it only if the format continues after it"
_THOUGHT = "a call inside closed reasoning is not a call"
_SPACE = "a program keeps its white space, except for one space or newline at each end"

DIFFERENCES: dict[str, dict[int, str]] = {
    "hermes": {
        **dict.fromkeys((7, 8, 9), _MARK),
        **{26: _CLOSED, 28: _CLOSED, 38: _TOLD, 44: _OTHERS, 45: _PARAMETERS, 48: _BOTH, 49: _NONE, 56: _NAME},
        57: _STRING,
    },
    "fenced": {
        **{10: _MARK, 11: _MARK, 38: _TOLD, 45: _PARAMETERS, 48: _BOTH, 49: _NONE, 55: _NAME, 56: _NAME, 57: _STRING},
    },
    "react": {22: _SEVERAL, 23: _SEVERAL, 25: _SEVERAL, 28: _OTHERS, 38: _TOLD, 44: _OTHERS},
    "llama": {24: _SEVERAL, 28: _OTHERS, 38: _TOLD, 44: _OTHERS, 48: _BOTH, 49: _NONE, 56: _NAME, 57: _STRING},
    "mistral": {12: _MARK, **dict.fromkeys((26, 27, 28, *range(33, 45)), _TOLD), 32: _TYPE},
    "mistral_list": {
        **{12: _MARK, 23: _SEVERAL, 24: _SEVERAL, 25: _SEVERAL, 38: _TOLD, 44: _OTHERS, 45: _PARAMETERS, 48: _BOTH},
        **dict.fromkeys((46, 47, 50), _LOST),
        **dict.fromkeys((54, 55, 56), _NAME),
        58: _NULL,
    },
    "deepseek_v3": {19: _LINES, **dict.fromkeys((33, 34, 35, *range(37, 45)), _TOLD)},
    "deepseek_v31": {13: _MARK, 19: _LINES, **dict.fromkeys((33, 34, 35, *range(37, 45)), _TOLD)},
    "qwen_coder": {22: _VALUE, 25: _CLOSED, 26: _CLOSED, 27: _NAME, 32: _VALUE, 34: _BOTH},
    "search_r1": {15: _THOUGHT},
    "retool": {6: _SPACE},
}
"""Format to number of a reply to why Turnwise reads other calls in it than the reference."""
