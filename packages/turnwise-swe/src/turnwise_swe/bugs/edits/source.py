"""A source file as bytes and syntax tree, with positions in bytes; replacements of spans; scopes that edits work in."""

from __future__ import annotations

import ast
import importlib.abc
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from turnwise.core.errors import DataError

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.ClassDef
Loop = ast.For | ast.AsyncFor | ast.While
Wrapper = ast.With | ast.AsyncWith | ast.Try | ast.TryStar


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Replacement:
    """Replace bytes `start` to `end` (exclusive) of a file by `text`."""

    start: int
    end: int
    text: bytes


Edit = tuple[Replacement, ...]
"""Replacements that only make sense together, for example those of the two operands in a swap."""


def apply(content: bytes, replacements: Iterable[Replacement]) -> bytes:
    """Return `content` with every replacement made. Raises ValueError if two of them overlap."""
    pieces, place = [], 0
    for item in sorted(replacements):
        if item.start < place:
            raise ValueError(f"the replacement of bytes {item.start} to {item.end} overlaps one that ends at {place}")
        pieces += [content[place : item.start], item.text]
        place = item.end
    return b"".join([*pieces, content[place:]])


def merge(replacements: Iterable[Replacement]) -> Edit:
    """Sort the replacements and merge those that touch, so that the edit has exactly one inverse."""
    merged: list[Replacement] = []
    for item in sorted(replacements):
        if merged and merged[-1].end == item.start:
            last = merged.pop()
            item = Replacement(start=last.start, end=item.end, text=last.text + item.text)
        merged.append(item)
    return tuple(merged)


def overlap(first: Sequence[Replacement], second: Sequence[Replacement]) -> bool:
    """Say whether any span of `first` touches the inside or the start of one of `second`."""
    spans = sorted((item.start, item.end) for item in (*first, *second))
    return any(right[0] < left[1] or right == left for left, right in pairwise(spans))


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A parsed file. Offsets are bytes of `content`; line numbers start at 1."""

    path: str
    content: bytes
    tree: ast.Module
    line_starts: tuple[int, ...]
    scopes: Mapping[str, Scope]
    """Qualified name (`f`, `C`, `C.f`, `f.<locals>.g`) to node. Names that are defined twice are left out, since tests
    could not tell which of them they entered."""

    @staticmethod
    def parse(path: str, content: bytes) -> Source:
        """Parse `content`. Raises DataError if it is not UTF-8 with ordinary line ends, or not Python."""
        if content.startswith(b"\xef\xbb\xbf") or re.search(rb"\r(?!\n)|\f", content):
            raise DataError(f"{path} has a byte order mark, a lone carriage return or a form feed; leave the file out")
        try:
            tree = ast.parse(content.decode("utf-8"), filename=path)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise DataError(f"cannot parse {path}: {error}; leave the file out") from error
        starts = [0, *(match.end() for match in re.finditer(rb"\n", content))]
        return Source(path=path, content=content, tree=tree, line_starts=tuple(starts), scopes=_find_scopes(tree))

    def start(self, node: ast.AST) -> int:
        """Offset of the node's first byte."""
        offset: int = self.line_starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return offset

    def end(self, node: ast.AST) -> int:
        """Offset just after the node's last byte."""
        offset: int = self.line_starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return offset

    def text(self, node: ast.AST) -> bytes:
        """The node's bytes, without parentheses around it."""
        return self.content[self.start(node) : self.end(node)]

    def replace(self, node: ast.AST, text: bytes) -> Replacement:
        """A replacement of the whole node."""
        return Replacement(start=self.start(node), end=self.end(node), text=text)

    def replace_block(self, block: list[ast.stmt], text: bytes) -> Replacement:
        """A replacement of everything from the first statement's first byte to the last one's end."""
        return Replacement(start=statement_start(self, block[0]), end=self.end(block[-1]), text=text)

    def line_of(self, offset: int) -> int:
        """Line number of the byte at `offset`."""
        return self.content.count(b"\n", 0, offset) + 1

    def line_end(self, offset: int) -> int:
        """Offset after the end of the line that contains `offset`."""
        found = self.content.find(b"\n", offset)
        return len(self.content) if found < 0 else found + 1

    def find_between(self, start: int, end: int, pattern: bytes) -> tuple[int, int] | None:
        """Span of the first match of `pattern` between two offsets, outside comments; None without one."""
        gap = re.sub(rb"#[^\n]*", lambda match: b" " * len(match[0]), self.content[start:end])
        match = re.search(pattern, gap)
        return None if match is None else (start + match.start(), start + match.end())

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement of the module's body that holds `node`."""
        [found] = [
            item
            for item in self.tree.body
            if first_line(item) <= node.lineno <= (item.end_lineno or item.lineno)  # type: ignore[attr-defined]
        ]
        return found


def first_line(statement: ast.stmt) -> int:
    """The statement's first line, or its first decorator's, where its code object begins."""
    decorators = statement.decorator_list if isinstance(statement, Scope) else []
    return min([statement.lineno, *(item.lineno for item in decorators)])


def statement_start(source: Source, statement: ast.stmt) -> int:
    """Offset of the statement's first byte or, if it has decorators, of the first `@`."""
    line = first_line(statement)
    return source.start(statement) if line == statement.lineno else source.line_starts[line - 1] + statement.col_offset


def _find_scopes(tree: ast.Module) -> dict[str, Scope]:
    scopes: dict[str, Scope] = {}
    twice: set[str] = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Scope):
                name = prefix + child.name
                twice.update({name} & set(scopes))
                scopes[name] = child
                visit(child, f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>.")
            elif not isinstance(child, ast.expr):
                visit(child, prefix)

    visit(tree, "")
    return {name: node for name, node in scopes.items() if name not in twice}


def body_of(scope: Scope) -> list[ast.stmt]:
    """The statements of a scope, without its docstring."""
    return scope.body[1:] if is_docstring(scope.body[0]) else scope.body


def is_docstring(statement: ast.stmt) -> bool:
    """Say whether the statement is a bare string."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def own_nodes(scope: Scope) -> Iterator[ast.AST]:
    """Walk the nodes that run as part of the scope's own body, in the order of the text. Leaves out nested functions
    and classes, annotations, patterns, and f-strings (whose parts have no reliable positions before Python 3.12)."""
    for statement in body_of(scope):
        if not is_docstring(statement):
            yield from _walk(statement)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, Scope | ast.JoinedStr | ast.pattern):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name == "annotation":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def blocks_of(scope: Scope) -> Iterator[list[ast.stmt]]:
    """Every list of statements in the scope's own body: the body itself and those of its compound statements."""
    yield body_of(scope)
    for node in own_nodes(scope):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield block


def complexity(scope: Scope) -> int:
    """One more than the number of branches: ifs, loops, handlers, with, conditions of comprehensions, `and` and `or`.

    For a class, everything in it is counted."""
    nodes = ast.walk(scope) if isinstance(scope, ast.ClassDef) else own_nodes(scope)
    count = 1
    for node in nodes:
        if isinstance(node, ast.If | ast.IfExp | Loop | ast.ExceptHandler | Wrapper):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


def compiles(text: bytes, path: str) -> bool:
    """Say whether Python compiles the text of a module, without running it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning, such as for `is` with a literal, may be the bug itself
            importlib.abc.InspectLoader.source_to_code(text, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
