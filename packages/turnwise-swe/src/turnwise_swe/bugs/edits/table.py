"""The table of kinds: the thirteen procedural modifiers of SWE-smith (arXiv 2504.21798) under their names, and kinds
that make one small slip.

Unlike in SWE-smith, at least one edit is made whenever a scope has any, edits never overlap, an operator is never
replaced by itself, and code that does not compile is not a candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.core.errors import ConfigError
from turnwise_swe.bugs.edits import calls, classes, expressions, flow, statements
from turnwise_swe.bugs.edits.kind import Kind

MODIFIERS = (
    classes.CLASS_RM_BASE,
    classes.CLASS_RM_FUNCS,
    classes.CLASS_SHUFFLE_FUNCS,
    flow.CTRL_INVERT_IF,
    flow.CTRL_SHUFFLE,
    statements.REMOVE_ASSIGN,
    statements.REMOVE_COND,
    statements.REMOVE_LOOP,
    statements.REMOVE_WRAPPER,
    expressions.OP_BREAK_CHAINS,
    expressions.OP_CHANGE_CONST,
    expressions.OP_CHANGE,
    expressions.OP_SWAP,
)
SLIPS = (
    expressions.COMPARISON,
    expressions.BOUNDARY,
    expressions.BOOL,
    expressions.CONSTANT,
    statements.RETURN_NONE,
    statements.REMOVE_STATEMENT,
    expressions.SWAP_OPERANDS,
    calls.SWAP_ARGUMENTS,
    calls.WRONG_EXCEPTION,
    calls.WRONG_DEFAULT,
    calls.MISSING_AWAIT,
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (*MODIFIERS, *SLIPS)}


def choose_kinds(names: Sequence[str]) -> tuple[Kind, ...]:
    """The kinds with these names; "modifiers" and "slips" stand for the two groups, no names for all kinds.

    Raises ConfigError for an unknown name."""
    groups = {"modifiers": MODIFIERS, "slips": SLIPS}
    for name in names:
        if name not in KINDS and name not in groups:
            raise ConfigError(f"kind {name!r} does not exist; choose from {', '.join([*groups, *KINDS])}")
    chosen = [kind for name in names for kind in groups.get(name, ()) or (KINDS[name],)]
    return tuple(dict.fromkeys(chosen)) or (*MODIFIERS, *SLIPS)
