"""The lines of `turnwise diagnose`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.reporting.transcript import clean_for_terminal

WIDTH = 100


def describe_diagnosis(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for people, given the plain data of a `Diagnosis`."""
    verdict = "success rose" if report["learned"] else "success did not rise beyond chance"
    yield f"{report['steps']} RL steps: {verdict}"
    if report["ended"]:
        yield from _wrap("ended with: ", report["ended"])
    for number, finding in enumerate(report["findings"], start=1):
        yield ""
        yield from _wrap(f"{number}. {finding['cause']}: ", finding["problem"])
        for evidence in finding["evidence"]:
            yield from _wrap("   seen: ", evidence)
        yield from _wrap("   try first: ", finding["first"])
    if not report["findings"]:
        yield (
            "nothing found" if report["learned"] else "nothing found that explains it (docs/diagnosis.md goes further)"
        )
    for text in report["missing"]:
        yield from _wrap("not judged: ", text)


def _wrap(start: str, text: str) -> list[str]:
    """Wrap a text behind its first words; what a tool raised may hold control characters."""
    return textwrap.wrap(
        clean_for_terminal(text),
        WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_on_hyphens=False,
    )
