"""Which tactics a model may use: one tactic, with a head from a list and arguments made of names, numbers and symbols.

What is not allowed never reaches Coq: commands of the vernacular (`Axiom`, `Admitted`, `Redirect`, `Set`), a second
sentence, comments, strings, Ltac, and everything that is not ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from turnwise_worlds.proving.prover import TacticRefused

WITHOUT_ARGUMENTS = ("assumption", "split", "left", "right", "reflexivity", "exfalso", "constructor", "f_equal")
WITH_ARGUMENTS = (
    *("intro", "intros", "exact", "apply", "destruct", "exists", "induction", "simpl", "rewrite", "symmetry", "unfold"),
    *(
        "discriminate",
        "injection",
        "contradiction",
        "specialize",
        "assert",
        "generalize",
        "revert",
        "clear",
        "inversion",
    ),
)
AUTOMATION = ("trivial", "auto", "eauto", "tauto", "intuition", "congruence", "lia", "ring", "easy", "firstorder")
"""Tactics that search. Of these only what a recipe lists is allowed."""
HEADS = (*WITHOUT_ARGUMENTS, *WITH_ARGUMENTS)
"""The tactics that are allowed unless a recipe lists others."""
KNOWN = (*HEADS, *AUTOMATION)
LONGEST_TACTIC = 400
"""Characters."""
FORBIDDEN_WORDS = frozenset(
    (
        *("admit", "give_up", "abstract", "by", "using", "ltac", "ltac2", "native_compute", "native_cast_no_check"),
        *("vm_compute", "vm_cast_no_check", "exact_no_check", "change_no_check", "convert_concl_no_check"),
    )
)
"""Words that bring another tactic into an argument, leave a goal open, or skip a check until the end."""

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][\w']*(?:\.[A-Za-z_][\w']*)*)|(?P<number>\d{1,6}(?![\w.]))"
    r"|(?P<symbol><->|->|<-|/\\|\\/|=>|:=|<>|<=|>=|[()\[\]|,:=<>+\-*~@]))",
    re.ASCII,
)
_PAIRS = {")": "(", "]": "["}


def check_tactic(text: str, heads: Collection[str] = HEADS) -> str:
    """Return the sentence for Coq, with its full stop. Raises TacticRefused of kind "vernacular"."""
    written = text.strip().removesuffix(".")
    if len(written) > LONGEST_TACTIC:
        raise _refuse(f"a tactic has at most {LONGEST_TACTIC} characters")
    if not written.isascii() or not written.isprintable():
        raise _refuse("a tactic is one line of ASCII characters")
    if "(*" in written or "*)" in written:
        raise _refuse("comments are not allowed")
    tokens = _read_tokens(written)
    head = tokens[0] if tokens else ""
    if head not in heads:
        raise _refuse(f"{head[:40]!r} is not among the allowed tactics: {', '.join(heads)}")
    if head in WITHOUT_ARGUMENTS and len(tokens) > 1:
        raise _refuse(f"{head} takes no arguments")
    forbidden = next((token for token in tokens for word in token.split(".") if word in FORBIDDEN_WORDS), None)
    if forbidden is not None:
        raise _refuse(f"{forbidden[:40]!r} is not allowed in a tactic")
    _check_brackets(tokens)
    return f"{' '.join(written.split())}."


def _read_tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if not text[at:].strip():
                break
            raise _refuse(f"{text[at:].strip()[0]!r} is not allowed in a tactic; send one tactic at a time")
        tokens.append(match[match.lastgroup or ""])
        at = match.end()
    return tokens


def _check_brackets(tokens: list[str]) -> None:
    open_brackets: list[str] = []
    for token in tokens:
        if token in _PAIRS.values():
            open_brackets.append(token)
        elif token in _PAIRS and (not open_brackets or open_brackets.pop() != _PAIRS[token]):
            raise _refuse("brackets do not match")
    if open_brackets:
        raise _refuse("brackets do not match")


def _refuse(message: str) -> TacticRefused:
    return TacticRefused("vernacular", message)
