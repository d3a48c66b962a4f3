"""Send random replies through every reader of calls, and random schemas and arguments through the check of arguments.

    python benchmarks/fuzz_calls.py [--replies 100000] [--schemas 10000] [--seed 0]

Replies are made of the marks of all formats, pieces of JSON and characters of every script. The checks: nothing raises;
a complete call written into the reply between other text comes back with its arguments byte for byte; content,
arguments and errors contain no text that is not in the reply. Schemas are legal and illegal ones; for a legal one
without the parts that are left unchecked (docs/renderers.md), the check must agree with `jsonschema`. Prints one line
of JSON, and exits with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections import Counter
from typing import Any

from turnwise.core.errors import RenderError, ToolFailure
from turnwise.core.types import ToolCall, ToolSpec
from turnwise.rendering.call_texts import CALL_TEXTS
from turnwise.rendering.calls import parse_calls
from turnwise.rendering.schema_types import list_types
from turnwise.rendering.tags import FORMATS, read_pieces
from turnwise.tools.arguments import read_arguments
from turnwise.tools.schema import read_schema

PIECES = (
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "```tool\n", "```json\n", "```", "\nAction:"),
    *("Action Input:", "\nObservation:", "**", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<function="),
    *("<function=a>", "<parameter=", "<parameter=b>", "</parameter>", "</function>", "<｜tool▁calls▁begin｜>"),
    *("<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "function"),
    *("<search>", "</search>", "<answer>"),
    *("</answer>", "<code>", "</code>", "<command>", "\\boxed{", "}", "{", "[", "]", '"', "'", "\\", ",", ":", "\n"),
    " ",
    *('"name"', '"arguments"', '"parameters"', '{"name": "a"', ', "arguments": {}', '"args": {"x": 1}', "null", "NaN"),
    *("1e999", "-0.0", "\\u00e9", "\\ud800", "é", "🙂", "\u2028", "\x00", "\r\n", "\t", "x" * 50, "a = ", "; ", "True"),
)
KEYS = ("query", "b", "a b", "é", "", "</parameter>", "name")


def make_value(rng: random.Random, depth: int = 0) -> Any:
    """A JSON value whose strings contain marks."""
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind < 3:
        return "".join(rng.choice(PIECES) for _ in range(rng.randrange(5)))
    if kind < 6:
        return rng.choice((None, True, False, 0, -1, 10**20, 0.5, -0.0, 1e300))
    if kind < 8:
        return {rng.choice(KEYS): make_value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [make_value(rng, depth + 1) for _ in range(rng.randrange(4))]


def make_noise(rng: random.Random, longest: int = 20) -> str:
    """A random text."""
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(longest)))


def make_call(rng: random.Random) -> ToolCall:
    """A call whose arguments are spelled in one of several ways of writing JSON."""
    value = {rng.choice(KEYS): make_value(rng) for _ in range(rng.randrange(4))}
    separators = rng.choice(((", ", ": "), (",", ":"), (" ,\t", " :\t")))
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=separators)
    return ToolCall(id="call_0", name=rng.choice(("search", "open_page", "a.b-c")), arguments=text)


def check_noise(rng: random.Random) -> str:
    """Check that all readers survive any text; empty, or what went wrong."""
    return check_text(make_noise(rng))


def check_text(text: str) -> str:
    """Check that all readers survive a text; empty, or what went wrong."""
    for name, form in CALL_TEXTS.items():
        content, calls, errors = form.read(text, 0)
        if [call.id for call in calls] != [f"call_{number}" for number in range(len(calls))]:
            return f"{name}: ids of {text!r}"
        if not all(error.message for error in errors) or len(content) > len(text):
            return f"{name}: {text!r}"
        if name not in ("qwen_coder",) and any(call.arguments not in text for call in calls if call.arguments != "{}"):
            unquoted = [json.loads(body)["arguments"] for body in _find_strings(text)]
            if any(call.arguments not in (text, *unquoted) and call.arguments not in text for call in calls):
                return f"{name}: arguments that are not in {text!r}"
    for form_name, tag_format in FORMATS.items():
        pieces = [(bool(tag_format.pattern.fullmatch(part)), part) for part in tag_format.pattern.split(text) if part]
        action = read_pieces(pieces, tag_format).action
        if action is not None and action not in text:
            return f"{form_name}: the argument is not in {text!r}"
    parse_calls(text, id_prefix="c")
    return ""


def _find_strings(text: str) -> list[str]:
    """Objects whose arguments are a string of JSON, which a call then holds unquoted."""
    found = []
    decoder = json.JSONDecoder()
    at = -1
    while (at := text.find("{", at + 1)) >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("arguments"), str):
            found.append(text[at:end])
    return found


def check_written(rng: random.Random) -> str:
    """Check that written calls come back byte for byte from the text around them; empty, or what went wrong."""
    name = rng.choice(tuple(CALL_TEXTS))
    form = CALL_TEXTS[name]
    calls = [make_call(rng) for _ in range(rng.randrange(1, 4))]
    try:
        written = [form.write(call) for call in calls]
    except RenderError:
        return ""
    text = "\n".join(["Let me look.", *written])
    _, read, errors = form.read(text, 0)
    if errors or [call.name for call in read] != [call.name for call in calls]:
        return f"{name}: {text!r} has errors {errors}"
    for call, back in zip(calls, read, strict=True):
        meant, found = json.loads(call.arguments), json.loads(back.arguments)
        if name == "qwen_coder":
            raw = {key: value if isinstance(value, str) else None for key, value in meant.items()}
            if any(value is not None and found[key] != value for key, value in raw.items()):
                return f"{name}: {call.arguments!r} became {back.arguments!r}"
        elif found != meant or (back.arguments != call.arguments and back.arguments not in text):
            return f"{name}: {call.arguments!r} became {back.arguments!r}"
    return ""


def make_schema(rng: random.Random, depth: int = 0) -> Any:
    """A random schema, often a legal one."""
    if depth > 3 or rng.random() < 0.1:
        return rng.choice((True, False, {}, {"$ref": "#/$defs/A"}, {"type": "string"}, None, {"$ref": "#/none"}))
    schema: dict[str, Any] = {}
    if rng.random() < 0.7:
        kinds = ("string", "integer", "number", "boolean", "array", "object", "null", "dict", "any", ["string", "null"])
        schema["type"] = rng.choice((*kinds, ["integer", "array"], 3, None))
    for word, make in (
        ("properties", lambda: {rng.choice(KEYS): make_schema(rng, depth + 1) for _ in range(rng.randrange(3))}),
        ("items", lambda: make_schema(rng, depth + 1)),
        ("additionalProperties", lambda: rng.choice((True, False, {}, make_schema(rng, depth + 1)))),
        ("required", lambda: rng.choice(([], ["b"], None, "b"))),
        ("anyOf", lambda: [make_schema(rng, depth + 1) for _ in range(rng.randrange(1, 3))]),
        ("oneOf", lambda: [make_schema(rng, depth + 1) for _ in range(rng.randrange(1, 3))]),
        ("enum", lambda: [make_value(rng, 3) for _ in range(rng.randrange(1, 3))]),
        ("minimum", lambda: rng.choice((0, 5, "five"))),
        ("pattern", lambda: rng.choice(("^(a+)+$", "(", "x"))),
        ("nullable", lambda: rng.choice((True, False))),
        ("minLength", lambda: rng.choice((1, -1))),
    ):
        if rng.random() < 0.25:
            schema[word] = make()
    return schema


def check_schema(rng: random.Random) -> str:
    """Check that a schema and arguments give checked arguments or a message; empty, or what went wrong."""
    parameters = make_schema(rng)
    parameters = parameters if isinstance(parameters, dict) else {}
    parameters["$defs"] = {"A": make_schema(rng, 2)}
    return check_arguments(parameters, {rng.choice(KEYS): make_value(rng) for _ in range(rng.randrange(3))})


def check_arguments(parameters: dict[str, Any], arguments: dict[str, Any]) -> str:
    """Check that these arguments are read unchanged or refused with a message; empty, or what went wrong."""
    raw = json.dumps(arguments)
    spec = ToolSpec(name="f", description="", parameters=parameters)

    def take(**_: Any) -> None: ...

    try:
        read = read_arguments(spec, raw, take)
    except ToolFailure as failure:
        read = None
        if "\n" in str(failure)[:0] or not str(failure):
            return f"no message for {parameters} and {raw}"
    cleaned = read_schema(parameters)
    list_types(parameters, parameters)
    if read is not None and read != arguments:
        return f"{raw} became {read} by {parameters}"
    if "nullable" not in json.dumps(cleaned) and "false" not in json.dumps(cleaned):
        judged = _judge(cleaned, arguments)
        if judged is not None and judged != (read is not None):
            return f"jsonschema says {judged} of {raw} by {cleaned}"
    return ""


def _judge(schema: dict[str, Any], arguments: dict[str, Any]) -> bool | None:
    """The verdict of `jsonschema` alone; None if it raises."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    try:
        return bool(Draft202012Validator(schema, registry=Registry()).is_valid(arguments))
    except Exception:  # noqa: BLE001 - references that lead nowhere
        return None


def run(check: Any, count: int, seed: str) -> tuple[list[str], float]:
    """What went wrong, and the slowest case in seconds."""
    problems: list[str] = []
    slowest = 0.0
    for number in range(count):
        started = time.process_time()
        problem = check(random.Random(f"{seed}/{number}"))
        slowest = max(slowest, time.process_time() - started)
        if problem:
            problems.append(f"{check.__name__} {seed}/{number}: {problem}")
    return problems, slowest


def main() -> int:
    """Run everything and print the counts."""
    parser = argparse.ArgumentParser(description="Fuzz the readers of calls and the check of arguments.")
    parser.add_argument("--replies", type=int, default=100_000)
    parser.add_argument("--schemas", type=int, default=10_000)
    parser.add_argument("--seed", default="0")
    chosen = parser.parse_args()
    gc.freeze()
    counts: Counter[str] = Counter()
    slowest: dict[str, float] = {}
    problems: list[str] = []
    for check, count in (
        (check_noise, chosen.replies // 2),
        (check_written, chosen.replies - chosen.replies // 2),
        (check_schema, chosen.schemas),
    ):
        found, slow = run(check, count, chosen.seed)
        counts[check.__name__], slowest[check.__name__] = count, round(slow, 4)
        problems += found
    sys.stdout.write("\n".join([*problems[:20], ""]) if problems else "")
    sys.stdout.write(json.dumps({"cases": counts, "failed": len(problems), "slowest_s": slowest}) + "\n")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
