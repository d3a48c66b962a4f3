"""Choose which edits to try, in which order: a pure function of the sources, the kinds and a seed."""

from __future__ import annotations

import ast
import hashlib
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from turnwise.core.seeds import rng
from turnwise_swe.bugs.edits.kind import Kind
from turnwise_swe.bugs.edits.source import (
    Edit,
    Replacement,
    Scope,
    Source,
    apply,
    compiles,
    complexity,
    first_line,
    merge,
    overlap,
)

MAX_PER_SCOPE = 4
"""Maximum number of candidates of one kind in one function, so that long functions do not fill the list."""
MAX_EDIT_BYTES = 2000
"""Maximum bytes of text that an edit replaces. Shuffling the methods of a large class would make an unreadable diff."""
_ATTEMPTS = 3
"""Draws from a kind with several edits before its scope counts as exhausted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An edit of one file that may be a bug."""

    path: str
    qualified_name: str
    """The function or class that is edited; "" if the edit belongs to none."""
    kind: str
    replacements: Edit
    digest: str
    """Sixteen hexadecimal digits from path and syntax tree after the edit; equal for edits with the same effect."""
    screened: bool
    """Whether swapping the function's code is enough to show the bug."""

    @property
    def candidate_id(self) -> str:
        """`kind.digest`, unique within a repository."""
        return f"{self.kind}.{self.digest}"


def draw_candidates(
    sources: Mapping[str, Source], entered: Collection[str], kinds: Sequence[Kind], *, seed: int
) -> Iterator[Candidate]:
    """Draw from every kind in turn, and within a kind from every scope in a random order, once per round.

    `entered` holds the functions that some test enters, as "path::qualified name"; other functions, and classes without
    such a method, are not edited. No two candidates have the same digest."""
    places = [
        (source, name, node)
        for _, source in sorted(sources.items())
        for name, node in source.scopes.items()
        if any(f"{source.path}::{name}{tail}" in entered for tail in ("", *_method_tails(node)))
    ]
    drawn = [_draw_kind(kind, places, seed) for kind in kinds]
    digests: set[str] = set()
    while drawn:
        for candidates in list(drawn):
            candidate = next((item for item in candidates if item.digest not in digests), None)
            if candidate is None:
                drawn.remove(candidates)
            else:
                digests.add(candidate.digest)
                yield candidate


def _method_tails(node: Scope) -> list[str]:
    if not isinstance(node, ast.ClassDef):
        return []
    return [f".{item.name}" for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]


def _draw_kind(kind: Kind, places: Sequence[tuple[Source, str, Scope]], seed: int) -> Iterator[Candidate]:
    order = [place for place in places if isinstance(place[2], ast.ClassDef) == kind.in_class]
    rng(seed, kind.name).shuffle(order)
    queues = [_draw_scope(kind, source, name, node, seed) for source, name, node in order]
    for _ in range(MAX_PER_SCOPE):
        for queue in list(queues):
            candidate = next(queue, None)
            if candidate is None:
                queues.remove(queue)
            else:
                yield candidate


def _draw_scope(kind: Kind, source: Source, name: str, node: Scope, seed: int) -> Iterator[Candidate]:
    if kind.min_complexity > 1 and complexity(node) < kind.min_complexity:
        return
    chance = rng(seed, source.path, name, kind.name)
    edits = list(kind.find(source, node, chance))
    if not edits:
        return
    if kind.likelihood is None:
        chance.shuffle(edits)
        chosen = [list(edit) for edit in edits]
    else:
        chosen = [_choose_several(edits, kind.likelihood, chance) for _ in range(MAX_PER_SCOPE * _ATTEMPTS)]
    for replacements in chosen:
        candidate = build_candidate(source, node, name, kind.name, tuple(replacements), screened=kind.screened)
        if candidate is not None:
            yield candidate


def _choose_several(edits: Sequence[Edit], likelihood: float, chance: random.Random) -> list[Replacement]:
    """Take each edit with the probability, in a random order, without those that overlap an earlier one; at least
    one edit is taken."""
    order = list(edits)
    chance.shuffle(order)
    chosen: list[Replacement] = list(order[0]) if chance.random() < (1 - likelihood) ** len(order) else []
    for edit in order:
        if chance.random() < likelihood and not overlap(chosen, edit):
            chosen += edit
    return chosen or list(order[0])


def build_candidate(
    source: Source, node: ast.AST, name: str, kind: str, replacements: Edit, *, screened: bool = True
) -> Candidate | None:
    """The candidate made of these replacements, all within the module's statement that contains `node`. None if the
    edited statement does not compile or means the same, or if the edit is larger than `MAX_EDIT_BYTES`.

    Only that statement is compiled, not the file."""
    statement = source.statement(node)
    start, end = source.line_starts[first_line(statement) - 1], source.line_end(source.end(statement))
    if min(item.start for item in replacements) < start or max(item.end for item in replacements) > end:
        return None
    if sum(item.end - item.start for item in replacements) > MAX_EDIT_BYTES:
        return None
    text = source.content[start:end]
    edited = apply(text, [_shift(item, -start) for item in replacements])
    if not compiles(edited, source.path):
        return None
    meaning = _meaning(edited)
    if meaning == _meaning(text):
        return None
    digest = hashlib.sha256(f"{source.path}:{name_of(statement)}:{meaning}".encode()).hexdigest()[:16]
    return Candidate(
        path=source.path,
        qualified_name=name,
        kind=kind,
        replacements=merge(replacements),
        digest=digest,
        screened=screened,
    )


def statement_texts(source: Source, candidate: Candidate) -> tuple[int, str, str]:
    """First line of the statement that the candidate edits, and the statement's text before and after."""
    statement = source.statement(source.scopes[candidate.qualified_name])
    start, end = source.line_starts[first_line(statement) - 1], source.line_end(source.end(statement))
    after = apply(source.content[start:end], [_shift(item, -start) for item in candidate.replacements])
    return first_line(statement), source.content[start:end].decode(), after.decode()


def _shift(item: Replacement, distance: int) -> Replacement:
    return Replacement(start=item.start + distance, end=item.end + distance, text=item.text)


@lru_cache(maxsize=256)
def _meaning(text: bytes) -> str:
    return ast.dump(ast.parse(text))


def name_of(statement: ast.stmt) -> str:
    """The name that a statement defines, or its line number."""
    return str(getattr(statement, "name", statement.lineno))
