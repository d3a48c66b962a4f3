"""Count lines of code: python examples/count_lines.py examples/guess.py examples/guess.toml

Blank lines, comments and a module's docstring do not count; docstrings of functions do, since tools need theirs."""

import ast
import sys
from pathlib import Path


def count_lines(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if path.suffix == ".py":
        first = ast.parse(text).body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            lines = lines[first.end_lineno :]
    return sum(1 for line in lines if line.strip() and not line.strip().startswith("#"))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{count_lines(Path(name)):4d}  {name}")
