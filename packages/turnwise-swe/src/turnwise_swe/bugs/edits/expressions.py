"""Kinds that change an operator or a value inside an expression."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

from turnwise_swe.bugs.edits.kind import Kind
from turnwise_swe.bugs.edits.source import Edit, Replacement, Scope, Source, own_nodes

_COMPARISONS: dict[type[ast.cmpop], tuple[bytes, bytes]] = {
    ast.Eq: (rb"==", b"!="),
    ast.NotEq: (rb"!=", b"=="),
    ast.Lt: (rb"<", b">="),
    ast.LtE: (rb"<=", b">"),
    ast.Gt: (rb">", b"<="),
    ast.GtE: (rb">=", b"<"),
    ast.Is: (rb"\bis\b", b"is not"),
    ast.IsNot: (rb"\bis\s+not\b", b"is"),
    ast.In: (rb"\bin\b", b"not in"),
    ast.NotIn: (rb"\bnot\s+in\b", b"in"),
}
_BOUNDARIES: dict[type[ast.cmpop], bytes] = {ast.Lt: b"<=", ast.LtE: b"<", ast.Gt: b">=", ast.GtE: b">"}
_OPERATORS: dict[type[ast.operator], bytes] = {
    ast.Add: b"+",
    ast.Sub: b"-",
    ast.Mult: b"*",
    ast.MatMult: b"@",
    ast.Div: b"/",
    ast.FloorDiv: b"//",
    ast.Mod: b"%",
    ast.Pow: b"**",
    ast.LShift: b"<<",
    ast.RShift: b">>",
    ast.BitOr: b"|",
    ast.BitXor: b"^",
    ast.BitAnd: b"&",
}
_CLASSES: tuple[tuple[type[ast.operator], ...], ...] = (
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
    (ast.LShift, ast.RShift),
    (ast.BitOr, ast.BitXor, ast.BitAnd),
)
"""Operators that can replace each other without changing how the expression is parsed, except for the bitwise ones."""
_RANKS = {ast.BitOr: 0, ast.BitXor: 1, ast.BitAnd: 2, ast.LShift: 3, ast.RShift: 3, ast.Add: 4, ast.Sub: 4, ast.Pow: 6}
_SYMMETRIC = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
_COMMUTATIVE = (ast.Add, ast.Mult, ast.BitOr, ast.BitXor, ast.BitAnd)


def change_comparisons(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Negate a comparison: `==` `!=`, `<` `>=`, `is` `is not`, `in` `not in`."""
    for operator, start, end in _comparators(source, scope):
        yield (Replacement(start=start, end=end, text=_COMPARISONS[type(operator)][1]),)


def shift_boundaries(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Replace `<` by `<=`, `>` by `>=`, and the reverse."""
    for operator, start, end in _comparators(source, scope):
        if type(operator) in _BOUNDARIES:
            yield (Replacement(start=start, end=end, text=_BOUNDARIES[type(operator)]),)


def _comparators(source: Source, scope: Scope) -> Iterator[tuple[ast.cmpop, int, int]]:
    for node in own_nodes(scope):
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
                span = source.find_between(source.end(left), source.start(right), _COMPARISONS[type(operator)][0])
                if span is not None:
                    yield operator, *span


def flip_booleans(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Replace `and` by `or` and the reverse, `not x` by `x`, and `True` by `False` and the reverse."""
    for node in own_nodes(scope):
        if isinstance(node, ast.BoolOp):
            old, new = (rb"\band\b", b"or") if isinstance(node.op, ast.And) else (rb"\bor\b", b"and")
            spans = [
                source.find_between(source.end(left), source.start(right), old)
                for left, right in zip(node.values, node.values[1:], strict=False)
            ]
            # All of them: `a and b and c` with one `or` would be parsed as another tree.
            if None not in spans:
                yield tuple(Replacement(start=span[0], end=span[1], text=new) for span in spans if span)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            start = source.start(node)
            blanks = source.find_between(start, source.end(node), rb"not\s*(?=\S)")
            if blanks is not None:
                yield (Replacement(start=start, end=blanks[1], text=b""),)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield (source.replace(node, str(not node.value).encode()),)


def change_numbers(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Increase or decrease an integer by one."""
    for node in own_nodes(scope):
        yield from number_edits(source, node)


def number_edits(source: Source, node: ast.AST) -> Iterator[Edit]:
    """The integers next to an integer constant, on both sides; empty for other nodes."""
    if not isinstance(node, ast.Constant) or type(node.value) is not int:
        return
    write = hex if source.text(node)[:2].lower() == b"0x" else str
    for value in (node.value + 1, node.value - 1):
        if value >= 0:
            yield (source.replace(node, write(value).encode()),)


def change_operand_numbers(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Increase or decrease an integer operand of a binary operation by one."""
    for node in _operations(scope):
        for operand in (node.left, node.right):
            yield from number_edits(source, operand)


def change_operators(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Replace an arithmetic or bitwise operator by another of its class."""
    for node in _operations(scope):
        span = _operator_span(source, node)
        others = [item for row in _CLASSES if type(node.op) in row for item in row if item is not type(node.op)]
        for other in others if span else []:
            assert span is not None
            yield (Replacement(start=span[0], end=span[1], text=_OPERATORS[other]),)


def swap_operands(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Swap the operands of a binary operation or of a single comparison, where that may matter."""
    for node in own_nodes(scope):
        if isinstance(node, ast.BinOp):
            yield from _swap_operation(source, node)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and not isinstance(node.ops[0], _SYMMETRIC):
            yield from _swap(source, node.left, node.comparators[0], _COMPARISONS[type(node.ops[0])][0])


def swap_ordered_operands(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Swap the operands of an operation whose order matters for numbers."""
    for node in _operations(scope):
        if not isinstance(node.op, _COMMUTATIVE):
            yield from _swap_operation(source, node)


def break_chains(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Drop a member from a chain of binary operations, `a + b + c`."""
    for node in _operations(scope):
        for inner in (node.left, node.right):
            if isinstance(inner, ast.BinOp) and _operator_span(source, inner) is not None:
                for member in (inner.left, inner.right):
                    yield (_drop_operand(source, inner, keep=member),)


def _drop_operand(source: Source, node: ast.BinOp, *, keep: ast.expr) -> Replacement:
    """Replace `node`, an operand of another operation, by `keep`; parentheses that are not needed any more are
    removed."""
    span = _operator_span(source, node)
    assert span is not None
    start, end = source.start(node), source.end(node)
    kept = source.content[start : span[0]] if keep is node.left else source.content[span[1] : end]
    around = source.content[start - 1 : start] + source.content[end : end + 1]
    if around == b"()" and isinstance(keep, ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Subscript):
        start, end = start - 1, end + 1
    return Replacement(start=start, end=end, text=kept.strip())


def _operations(scope: Scope) -> Iterator[ast.BinOp]:
    yield from (node for node in own_nodes(scope) if isinstance(node, ast.BinOp))


def _operator_span(source: Source, node: ast.BinOp) -> tuple[int, int] | None:
    pattern = b"".join(b"\\" + bytes([letter]) for letter in _OPERATORS[type(node.op)])
    return source.find_between(source.end(node.left), source.start(node.right), pattern)


def _swap_operation(source: Source, node: ast.BinOp) -> Iterator[Edit]:
    pattern = b"".join(b"\\" + bytes([letter]) for letter in _OPERATORS[type(node.op)])
    yield from _swap(source, node.left, node.right, pattern, rank=_RANKS.get(type(node.op), 5))


def _swap(source: Source, left: ast.expr, right: ast.expr, operator: bytes, rank: int = -1) -> Iterator[Edit]:
    """The two operands with their own parentheses; more are added where the new place would split them."""
    between = source.find_between(source.end(left), source.start(right), operator)
    if between is None or source.text(left) == source.text(right):
        return
    left_end = source.end(left) + len(_closing(source.content[source.end(left) : between[0]]))
    right_start = source.start(right) - len(_opening(source.content[between[1] : source.start(right)]))
    left_start = source.start(left) - (left_end - source.end(left))
    right_end = source.end(right) + (source.start(right) - right_start)
    first, second = source.content[left_start:left_end], source.content[right_start:right_end]
    if not _balanced(first) or not _balanced(second):
        return  # a blank or a comment may lie between an operand and its parentheses
    yield (
        Replacement(start=left_start, end=left_end, text=_bracket(second, right, rank)),
        Replacement(start=right_start, end=right_end, text=_bracket(first, left, rank)),
    )


def _closing(gap: bytes) -> bytes:
    return gap[: len(gap) - len(gap.lstrip(b")"))]


def _opening(gap: bytes) -> bytes:
    return gap[len(gap.rstrip(b"(")) :]


def _balanced(text: bytes) -> bool:
    try:
        ast.parse(b"(" + text + b"\n)")
    except SyntaxError:
        return False
    return text.count(b"(") == text.count(b")")


def _bracket(text: bytes, node: ast.expr, rank: int) -> bytes:
    """`text` in parentheses if `node` is an operation that binds no tighter than one of `rank` and is not in
    parentheses yet."""
    binds_loosely = isinstance(node, ast.BinOp) and _RANKS.get(type(node.op), 5) <= rank
    loose = binds_loosely or (rank == 6 and isinstance(node, ast.UnaryOp | ast.Await | ast.BinOp))
    return b"(" + text + b")" if loose and not text.startswith(b"(") else text


COMPARISON = Kind(name="comparison", find=change_comparisons, explanation="A condition is the reverse of what it was")
BOUNDARY = Kind(name="boundary", find=shift_boundaries, explanation="A boundary of a range is off by one")
BOOL = Kind(name="bool", find=flip_booleans, explanation="The logic of a condition or a flag is wrong")
CONSTANT = Kind(name="constant", find=change_numbers, explanation="A number is off by one")
SWAP_OPERANDS = Kind(
    name="swap_operands", find=swap_ordered_operands, explanation="The operands of a calculation are in wrong order"
)
OP_BREAK_CHAINS = Kind(
    name="func_pm_op_break_chains",
    find=break_chains,
    explanation="A part of a calculation is missing",
    likelihood=0.4,
    min_complexity=3,
)
OP_CHANGE_CONST = Kind(
    name="func_pm_op_change_const",
    find=change_operand_numbers,
    explanation="Numbers in calculations are off by one",
    likelihood=0.4,
    min_complexity=3,
)
OP_CHANGE = Kind(
    name="func_pm_op_change",
    find=change_operators,
    explanation="Calculations use a wrong operator",
    likelihood=0.4,
    min_complexity=3,
)
OP_SWAP = Kind(
    name="func_pm_op_swap",
    find=swap_operands,
    explanation="Operands are in wrong order",
    likelihood=0.4,
    min_complexity=3,
)
