"""Write `api.md`, the statement of what is public, from the code."""

import importlib
import inspect
from pathlib import Path
from types import ModuleType

PAGE = """# Public API

What keeps its meaning between releases of one minor version ([releases](releasing.md)); everything else may change in
any release. `make reference` writes this page from the code.

| public | listed in |
|---|---|
| names of `turnwise`, `turnwise_sandbox` and `turnwise.testing` | below |
| protocols for extensions to implement, and the types in their signatures | below |
| commands, their options and their exit codes | `turnwise --help` |
| options of a recipe | [options](options.md) |
| metrics | [metrics](metrics.md) |
| entry points and import paths that a recipe may name | [extending](extending.md) |
| files of a run folder, readable by later releases of the same minor version | [runs](runs.md), [ledger](ledger.md) |

A name that starts with an underscore is private wherever it is.
"""
INTRODUCTIONS = {
    "turnwise": "`import turnwise as tw`; a name is imported when it is first read.",
    "turnwise.testing": "For tests of environments, engines and agents.",
    "turnwise_sandbox": "Isolated execution; needs nothing of `turnwise` "
    "([sandbox](../packages/turnwise-sandbox/docs/sandbox.md)).",
}
PROTOCOLS = ("turnwise.core.protocols", "turnwise.core.episodes")


def write_page() -> str:
    """Returns the page in Markdown."""
    parts = [PAGE]
    for name, introduction in INTRODUCTIONS.items():
        module = importlib.import_module(name)
        parts.append(f"\n## `{name}`\n\n{introduction}\n\n" + write_table(module, sorted(module.__all__)))
    parts.append("\n## Protocols\n\nEach seam is a protocol; a class implements it by having its methods.\n\n")
    for name in PROTOCOLS:
        module = importlib.import_module(name)
        protocols = [key for key, value in vars(module).items() if is_protocol(value) and value.__module__ == name]
        parts.append(f"`{name}`:\n\n" + write_table(module, protocols) + "\n")
    return "".join(parts).rstrip("\n") + "\n"


def is_protocol(value: object) -> bool:
    return bool(getattr(value, "_is_protocol", False))


def write_table(module: ModuleType, names: list[str]) -> str:
    rows = ["| name | what it is |", "|---|---|"]
    return "\n".join(rows + [f"| `{name}` | {describe(getattr(module, name))} |" for name in names]) + "\n"


def describe(value: object) -> str:
    """The first sentence of the docstring, on one line; the members of an alias of literals."""
    text = " ".join((inspect.getdoc(value) or "").split())
    if inspect.isclass(value) or inspect.isroutine(value):
        return text.partition(". ")[0].rstrip(".:") + "."
    return f"`{value}`".replace("typing.", "").replace("|", "\\|")


if __name__ == "__main__":
    (Path(__file__).parent / "api.md").write_text(write_page(), encoding="utf-8")
