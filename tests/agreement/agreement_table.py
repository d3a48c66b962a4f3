"""The table of docs/agreement.md, from the comparisons themselves. Run as a script it rewrites the document's table."""

from __future__ import annotations

import agreement_credit  # noqa: F401
import agreement_losses  # noqa: F401
import agreement_preferences  # noqa: F401
from agreement_golden import COMPARISONS, ROOT, load_manifest

DOCUMENT = ROOT / "docs" / "agreement.md"
START, END = "<!-- table -->\n", "<!-- end of table -->\n"


def render_table() -> str:
    """One line per function of ours and relation, naming the peers' functions."""
    cases = load_manifest()["cases"]
    rows: dict[tuple[str, str], set[str]] = {}
    for name, comparison in COMPARISONS.items():
        peer = f"{cases[name]['peer']} `{'.'.join(cases[name]['function'].split('.')[-2:])}`"
        for function in comparison.ours:
            ours = f"`{function.__module__.removeprefix('turnwise.')}.{function.__qualname__}`"
            rows.setdefault((ours, comparison.relation), set()).add(peer)
    lines = ["| ours | peers | values and gradients |", "|---|---|---|"]
    lines += [
        f"| {ours} | {', '.join(sorted(peers))} | {relation} |" for (ours, relation), peers in sorted(rows.items())
    ]
    return "\n".join(lines) + "\n"


def find_table(document: str) -> str:
    """The text between the markers."""
    return document.partition(START)[2].partition(END)[0]


if __name__ == "__main__":
    text = DOCUMENT.read_text()
    DOCUMENT.write_text(text.replace(START + find_table(text), START + render_table()))
