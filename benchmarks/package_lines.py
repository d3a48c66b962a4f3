"""Count the lines of every package: all of them, and those of code, without blank lines, comments and docstrings.

    python benchmarks/package_lines.py [FOLDER]     # a checkout; default: this one

Counts Python files below every `src`. Prints the rows of the table in docs/architecture.md.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PASSED_OVER = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def count_code_lines(text: str) -> int:
    """Lines on which there is code: a token other than a comment or a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in PASSED_OVER:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - {line for start, end in find_docstrings(ast.parse(text)) for line in range(start, end + 1)})


def find_docstrings(tree: ast.AST) -> Iterator[tuple[int, int]]:
    """First and last line of every statement that is a text and nothing else: docstrings, also those of fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.end_lineno or node.lineno


def list_packages(root: Path) -> list[Path]:
    """The folders of the packages of a checkout."""
    sources = [root / "src", *sorted((root / "packages").glob("*/src"))]
    return [folder for source in sources for folder in sorted(source.iterdir()) if (folder / "__init__.py").exists()]


def main(root: Path) -> None:
    """Print a row of Markdown per package, and their sum."""
    total = [0, 0]
    for folder in list_packages(root):
        texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
        counts = [sum(len(text.splitlines()) for text in texts), sum(map(count_code_lines, texts))]
        total = [before + count for before, count in zip(total, counts, strict=True)]
        print(f"| `{folder.name}` | {counts[0]:,} | {counts[1]:,} |")
    print(f"| together | {total[0]:,} | {total[1]:,} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
