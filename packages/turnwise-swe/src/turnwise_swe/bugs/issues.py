"""Write a user's issue: static templates, filled from a failing test, without the diff or any line that it changes."""

from __future__ import annotations

import ast
import random
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from turnwise.core.seeds import rng
from turnwise_swe.bugs.edits.source import body_of, first_line
from turnwise_swe.repositories.outcome import Outcome
from turnwise_swe.repositories.source_lines import split_source

MIN_LEAK = 6
"""Changed lines with at least this many characters count as hints. Shorter ones (`else:`, `pass`) are everywhere."""
MAX_CODE_LINES, MAX_ERROR_LINES = 25, 8
_OF_SANDBOX = re.compile(r"(?<![\w./:])(/[\w.-]+)*/(work|tmp)/")
"""Start of a path in the place where the tests ran, which exists nowhere else. Errors that contain one are not
shown."""

_INTRODUCTIONS = (
    "I found a problem in {package}.",
    "Something is wrong with {package} {version}.",
    "{package} does not behave as it did before.",
    "After an upgrade, {package} {version} gives wrong results.",
)


def write_issue(
    *,
    package: str,
    version: str,
    failing: Mapping[str, Outcome],
    test_texts: Mapping[str, str],
    places: Sequence[str],
    explanations: Sequence[str],
    patch: str,
    seed: int,
) -> str:
    """One issue text, drawn by the seed among the templates that reveal no changed line.

    Args:
        failing: Tests that fail with the bug, at least one.
        test_texts: Source texts of the test files, by path.
        places: The edited functions, as "path::qualified name". Some templates name the file, none only the function.
        explanations: One clause per bug that says what is wrong without naming the place; missing if unknown.
        patch: The diff of the bug; the text must not repeat any of it.
    """
    chance = rng(seed, "issue", package, *places)
    introduction = chance.choice(_INTRODUCTIONS).format(package=package, version=version)
    secrets = changed_lines(patch)
    for text in _fill(chance, failing, test_texts, places, explanations):
        issue = f"{introduction}\n\n{text}\n"
        if not reveals(issue, secrets):
            return issue
    return f"{introduction}\n\nSome of its tests fail. Find out why and repair it.\n"


def changed_lines(patch: str) -> set[str]:
    """The stripped lines that a diff removes or adds, if they are long enough to be hints."""
    lines = re.findall(r"^[-+](?!--|\+\+ )(.*)$", patch, re.MULTILINE)
    return {" ".join(line.split()) for line in lines if len("".join(line.split())) >= MIN_LEAK}


def reveals(text: str, secrets: set[str]) -> bool:
    """Say whether a changed line occurs in the text, whatever the blanks."""
    plain = " ".join(text.split())
    return any(secret in plain for secret in secrets)


def _fill(
    chance: random.Random,
    failing: Mapping[str, Outcome],
    test_texts: Mapping[str, str],
    places: Sequence[str],
    explanations: Sequence[str],
) -> Iterator[str]:
    """The templates in a random order; in two of three issues, those with a reproduction come first."""
    tests = sorted(failing)
    chance.shuffle(tests)
    shown = [
        text
        for test in tests[:3]
        if (text := _reproduction(test, failing[test], test_texts.get(test.split("::")[0], "")))
    ]
    named = "\n".join(f"- `{test}`" for test in tests[:5])
    count = f"{len(tests)} tests fail" if len(tests) > 1 else "1 test fails"
    files = " and ".join(f"`{path}`" for path in dict.fromkeys(place.split("::")[0] for place in places))
    what = ". ".join(dict.fromkeys(explanations)) or "Something gives wrong results"
    plain = [
        f"{count}:\n\n{named}",
        f"{what}. The cause seems to be in {files}. {count[0].upper()}{count[1:]}.",
        f"{what}. For example, `{tests[0]}` fails.",
    ]
    chance.shuffle(plain)
    with_code = [f"To reproduce:\n\n{text}" for text in shown]
    yield from (*with_code, *plain) if chance.random() < 2 / 3 else (*plain, *with_code)


def _reproduction(test: str, outcome: Outcome, text: str) -> str:
    """The lines of the test, or of its helper in the same file, up to the failing line, and the error without
    addresses; "" if the traceback does not name the line.

    Frames of other files are not shown: they belong to the code with the bug."""
    path = test.split("::")[0]
    lines = re.findall(rf"^{re.escape(path)}:(\d+): in ", outcome.details, re.MULTILINE)
    errors = [line[1:].strip() for line in outcome.details.split("\n") if re.match(r"E\s+(?!Use -v)\S", line)]
    code = _lines_until(text, int(lines[-1])) if lines else ""
    if not code or not errors or any(_OF_SANDBOX.search(line) for line in errors):
        return ""
    error = re.sub(r"\b0x[0-9a-f]{6,}\b", "0x...", "\n".join(errors[:MAX_ERROR_LINES]))
    parameters = f" (with `{test[test.index('[') :]}`)" if "[" in test else ""
    return f"```python\n{code}\n```\n\nThis gives{parameters}:\n\n```\n{error}\n```"


def _lines_until(text: str, number: int) -> str:
    """The body of the function that contains a line, up to the end of that line's statement, without the docstring, and
    without its first statements if it is long; "" if no function contains the line or nothing is left."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= number <= (node.end_lineno or node.lineno)
    ]
    if not functions:
        return ""
    body = body_of(max(functions, key=lambda node: node.lineno))
    if not any(node.lineno <= number for node in body):
        return ""
    end = max((node.end_lineno or number for node in body if node.lineno <= number), default=number)
    starts = [first_line(node) for node in body if node.lineno <= number]
    start = next((line for line in starts if end - line < MAX_CODE_LINES), max(starts, default=number))
    return textwrap.dedent("\n".join(split_source(text)[start - 1 : end]))
