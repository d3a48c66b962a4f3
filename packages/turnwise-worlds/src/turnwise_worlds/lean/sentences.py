"""Which tactics a model may send to Lean: one line, no command, no goal left open, no trust in a compiler."""

from __future__ import annotations

import re

from turnwise_worlds.proving.prover import TacticRefused

LONGEST_TACTIC = 1000
"""Characters."""
FORBIDDEN = frozenset(
    (
        *("sorry", "admit", "sorryAx", "native_decide", "axiom", "constant", "opaque", "unsafe", "implemented_by"),
        *("extern", "macro", "macro_rules", "syntax", "notation", "elab", "elab_rules", "run_tac", "run_cmd", "eval"),
        *("import", "open", "set_option", "theorem", "lemma", "def", "instance", "attribute", "initialize", "end"),
        *("ofReduceBool", "trustCompiler", "stop", "by_elab", "unsafeCast", "partial"),
    )
)
"""Words that no tactic may contain, whatever they are part of (`Lean.ofReduceBool`)."""
_WORD = re.compile(r"[^\W\d][\w'!?]*")


def check_tactic(text: str) -> str:
    """Return a tactic without blanks around it. Raises TacticRefused of kind "vernacular"."""
    written = text.strip()
    if not written or len(written) > LONGEST_TACTIC:
        raise TacticRefused("vernacular", f"a tactic has 1 to {LONGEST_TACTIC} characters")
    if not written.isprintable():
        raise TacticRefused("vernacular", "a tactic is one line")
    if any(each in written for each in (";", "--", "/-", "#", '"', "`", "@[", "«")):
        raise TacticRefused("vernacular", "send one tactic, without comments, commands, texts or attributes")
    forbidden = next((word for word in _WORD.findall(written) if word in FORBIDDEN), None)
    if forbidden is not None:
        raise TacticRefused("vernacular", f"{forbidden!r} is not allowed in a tactic")
    return written
