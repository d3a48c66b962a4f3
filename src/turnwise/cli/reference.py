"""`turnwise options` and `turnwise metrics`: list the options of a recipe, and the metrics of a run."""

from __future__ import annotations

import difflib
import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.core.errors import ConfigError

if TYPE_CHECKING:
    from turnwise.config.options import Option

WIDTH = 100
"""Width in columns of the text of one option."""

Word = Annotated[str | None, typer.Argument(help="A name, part of a name, or a word in the description; default: all.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print everything as a Markdown page.")]

OPTIONS_PAGE = """# Options

Every option of a recipe. `turnwise options WORD` finds some of them by name, by a word of their text, or by what verl,
TRL, SkyRL, OpenRLHF or vLLM call them. In a recipe `loss.kl.coefficient` is `coefficient` in the table `[loss.kl]`; on
the command line it is `loss.kl.coefficient=0.01`. `make reference` writes this page.
"""
METRICS_PAGE = """# Metrics

What a run reports: in `metrics.jsonl` of its folder, in the report and in [trackers](trackers.md). `turnwise metrics
WORD` finds some of them. Words in capitals stand for a name: `reward/PART` is `reward/success` where the reward has
such a part. Metrics of a further learner have its name in front, `critic/train/loss`. Names that are not here come from
environments and engines. `make reference` writes this page.
"""


def options(word: Word = None, as_json: JsonOption = False, markdown: MarkdownOption = False) -> None:
    """Show the options of a recipe: name, type, default and meaning; with an exact name, the whole text.

    Knows what verl, TRL, SkyRL, OpenRLHF and vLLM call them.
    """
    from turnwise.config.options import find_rows
    from turnwise.config.other_names import find_other_name

    rows = list_rows()
    if markdown:
        print(write_options_page(rows), end="")
        return
    note = ""
    if word:
        other = None if any(row.name == word for row in rows) else find_other_name(word)
        found = find_rows(rows, other.option if other and other.option else word)
        if other is not None:
            note = f"{word}: {other.describe()}"
            found = found if other.option else []
        elif not found:
            nearest = difflib.get_close_matches(word, [row.name for row in rows], n=3, cutoff=0.3)
            raise ConfigError(
                f"no option has {word!r} in its name or description; "
                + (f"the nearest names are {', '.join(nearest)}" if nearest else "`turnwise options` lists all")
            )
        rows = found
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False))
        return
    if note:
        print(note)
    whole = len(rows) == 1 or bool(rows and rows[0].name == word and not rows[0].is_section)
    for row in rows:
        print(_describe(row, whole=whole))


def metrics(word: Word = None, as_json: JsonOption = False, markdown: MarkdownOption = False) -> None:
    """Show the metrics that a run reports: name, unit, how values merge, and meaning."""
    from turnwise.core.metrics import METRICS, find_definitions

    if markdown:
        print(write_metrics_page(), end="")
        return
    found = find_definitions(word) if word else METRICS
    if not found:
        nearest = difflib.get_close_matches(word or "", list(METRICS), n=3, cutoff=0.3)
        raise ConfigError(
            f"no metric of Turnwise has {word!r} in its name or description; "
            + (f"the nearest names are {', '.join(nearest)}" if nearest else "`turnwise metrics` lists all")
        )
    if as_json:
        rows = [{"name": name, **asdict(definition)} for name, definition in found.items()]
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for name, definition in found.items():
        print(_indent(f"{name}  ({definition.kind}, {definition.unit})", definition.text))


def list_rows() -> list[Option]:
    """The options of a recipe, including those of every kind of engine, credit method and loss."""
    from turnwise.algorithms.credit_table import CREDIT_METHODS
    from turnwise.algorithms.losses.table import LOSSES
    from turnwise.config.engine_kinds.table import ENGINE_KINDS
    from turnwise.config.options import describe_free_options, describe_options
    from turnwise.config.run import RunConfig
    from turnwise.curriculum.table import SAMPLERS

    rows = []
    for row in describe_options(RunConfig):
        rows.append(row)
        if row.name == "engine.options":
            for kind in ENGINE_KINDS.values():
                if kind.options is not None:
                    rows += describe_options(kind.options, "engine.options.", of=f"engine.kind={kind.name!r}")
        elif row.name == "curriculum.options":
            for sampler in SAMPLERS.values():
                rows += describe_options(
                    sampler.options, "curriculum.options.", of=f"curriculum.sampler={sampler.name!r}"
                )
        elif row.name == "credit.options":
            tables = {name: method.defaults for name, method in CREDIT_METHODS.items()}
            rows += describe_free_options(tables, "credit.options.", of="credit.method")
        elif row.name == "loss.options":
            tables = {name: method.defaults for name, method in LOSSES.items()}
            rows += describe_free_options(tables, "loss.options.", of="loss.method")
    return rows


def write_options_page(rows: Sequence[Option]) -> str:
    """The text of docs/options.md: a table per section."""
    parts = [OPTIONS_PAGE]
    in_table = False
    for row in rows:
        if row.is_section:
            parts.append(f"\n## {row.name}\n\n{textwrap.fill(row.text, 120, break_on_hyphens=False)}\n")
            in_table = False
            continue
        if row.name == "roles":
            parts.append("\n## roles\n")
            in_table = False
        if not in_table:
            parts.append("\n| option | type | default | meaning |\n|---|---|---|---|\n")
            in_table = True
        cells = (f"`{row.name}`", row.type, f"`{row.default}`", row.text)
        parts.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n")
    return "".join(parts)


def write_metrics_page() -> str:
    """The text of docs/metrics.md: a table per first part of the names."""
    from turnwise.core.metrics import METRICS

    parts = [METRICS_PAGE]
    for group in dict.fromkeys(name.split("/")[0] for name in METRICS):
        parts.append(f"\n## {group}\n\n| metric | unit | kind | meaning |\n|---|---|---|---|\n")
        for name, definition in METRICS.items():
            if name.split("/")[0] == group:
                text = definition.text.replace("|", "\\|")
                parts.append(f"| `{name}` | {definition.unit} | {definition.kind} | {text} |\n")
    return "".join(parts)


def _describe(row: Option, *, whole: bool) -> str:
    head = f"{row.name}  (section)" if row.is_section else f"{row.name} = {row.default}  ({row.type})"
    return _indent(head, row.text if whole else row.meaning)


def _indent(head: str, text: str) -> str:
    return (
        head
        + "\n"
        + textwrap.fill(
            text, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
        )
    )
