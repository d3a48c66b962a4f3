"""Graphs as files: one fact a line, with the passages that state it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.environments.data_rows import load_rows
from turnwise.environments.published_rows import read_text, shorten
from turnwise_synthesis.shaper.graph import DESCRIPTIONS, UNTYPED, FactGraph, Statement


def write_graph(graph: FactGraph) -> Iterator[str]:
    """Yield the JSON line of every fact."""
    for each in graph.statements:
        row = {
            "subject": each.subject,
            "subject_type": graph.types[each.subject],
            "relation": each.relation,
            "object": each.object,
            "object_type": graph.types[each.object],
            "passages": list(each.passages),
        }
        yield json.dumps(row, ensure_ascii=False)


def load_graph(path: Path) -> FactGraph:
    """Load the file of `write_graph`. Raises DataError naming file, line and field."""
    types: dict[str, str] = {}
    statements: dict[tuple[str, str, str], Statement] = {}
    for line, (statement, kinds) in load_rows(path, _read_fact):
        if statement.triple in statements:
            raise DataError(
                f"{path}:{line}: the fact {' | '.join(statement.triple)} is in the file twice; leave one out"
            )
        statements[statement.triple] = statement
        for name, kind in kinds.items():
            if types.setdefault(name, kind) != kind:
                raise DataError(f"{path}:{line}: {name!r} is a {kind}, and a {types[name]} before; give it one type")
    return FactGraph(types=types, statements=tuple(statements.values()))


def _read_fact(row: Mapping[str, Any]) -> tuple[Statement, dict[str, str]]:
    subject, relation, target = (read_text(row.get(name), name) for name in ("subject", "relation", "object"))
    if relation in DESCRIPTIONS or not relation.replace("_", "").isalnum():
        raise DataError(
            f'"relation" is {shorten(relation)}; expected letters, digits and underscores, and none of '
            f"{', '.join(DESCRIPTIONS)}"
        )
    passages = row.get("passages")
    if not isinstance(passages, list) or not passages or not all(isinstance(each, str) for each in passages):
        raise DataError(f'"passages" is {shorten(passages)}; expected a list with at least one id')
    kinds = {
        subject: read_text(row.get("subject_type", UNTYPED), "subject_type"),
        target: read_text(row.get("object_type", UNTYPED), "object_type"),
    }
    statement = Statement(relation=relation, subject=subject, object=target, passages=tuple(passages))
    return statement, kinds
