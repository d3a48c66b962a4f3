"""What the user reports: static templates, filled from a failing test. Never the diff, nor a line that it changes."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence

from turnwise.core.seeds import rng
from turnwise.repositories.outcome import Outcome

MIN_LEAK = 6
"""Characters of a changed line from which on its text is a hint. Shorter ones (`else:`, `pass`) are everywhere."""
MAX_CODE_LINES, MAX_ERROR_LINES = 25, 8

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
    places: Sequence[str],
    explanations: Sequence[str],
    patch: str,
    seed: int,
) -> str:
    """One issue text, drawn by the seed among the templates that reveal no changed line.

    Args:
        failing: Tests that fail with the bug, at least one.
        places: The edited functions, as "path::qualified name". Some templates name the file, none the function alone.
        explanations: What is wrong, per bug, as a clause that names no place.
        patch: The diff of the bug, which nothing of the text may repeat.
    """
    chance = rng(seed, "issue", package, *places)
    introduction = chance.choice(_INTRODUCTIONS).format(package=package, version=version)
    secrets = changed_lines(patch)
    for text in _fill(chance, failing, places, explanations):
        issue = f"{introduction}\n\n{text}\n"
        if not reveals(issue, secrets):
            return issue
    return f"{introduction}\n\nSome of its tests fail. Find out why and repair it.\n"


def changed_lines(patch: str) -> set[str]:
    """The lines that a diff removes or adds, without blanks around them, if they are long enough to be a hint."""
    lines = re.findall(r"^[-+](?!--|\+\+ )(.*)$", patch, re.MULTILINE)
    return {" ".join(line.split()) for line in lines if len("".join(line.split())) >= MIN_LEAK}


def reveals(text: str, secrets: set[str]) -> bool:
    """Say whether a changed line is part of the text, whatever the blanks."""
    plain = " ".join(text.split())
    return any(secret in plain for secret in secrets)


def _fill(
    chance: random.Random, failing: Mapping[str, Outcome], places: Sequence[str], explanations: Sequence[str]
) -> Iterator[str]:
    """The templates in a random order; those with a reproduction come first in two of three issues."""
    tests = sorted(failing)
    chance.shuffle(tests)
    shown = [text for test in tests[:3] if (text := _reproduction(failing[test]))]
    named = "\n".join(f"- `{test}`" for test in tests[:5])
    count = f"{len(tests)} tests fail" if len(tests) > 1 else "1 test fails"
    files = " and ".join(f"`{path}`" for path in dict.fromkeys(place.split("::")[0] for place in places))
    what = ". ".join(dict.fromkeys(explanations))
    plain = [
        f"{count}:\n\n{named}",
        f"{what}. The cause seems to be in {files}. {count[0].upper()}{count[1:]}.",
        f"{what}.",
    ]
    chance.shuffle(plain)
    with_code = [f"To reproduce:\n\n{text}" for text in shown]
    yield from (*with_code, *plain) if chance.random() < 2 / 3 else (*plain, *with_code)


def _reproduction(outcome: Outcome) -> str:
    """The test's own lines up to the failing one and the error, from pytest's traceback; "" if it shows none.

    Only the first frame, the test, is used: later ones show the code that has the bug."""
    first = re.split(r"^(?:_ )+_*$", outcome.details, flags=re.MULTILINE)[0]
    code = [line[1:] for line in first.splitlines() if re.match(r"[> ](?!\s*$)", line) and not line.startswith("  @")]
    errors = [line[1:].strip() for line in outcome.details.splitlines() if re.match(r"E\s", line)]
    if not code or not errors:
        return ""
    body = "\n".join(line for line in code[-MAX_CODE_LINES:] if not line.lstrip().startswith("def "))
    return f"```python\n{body}\n```\n\nThis gives:\n\n```\n" + "\n".join(errors[:MAX_ERROR_LINES]) + "\n```"
