"""What others than the kernel say of a proof: our own verifier and Debian's `metamath`, on the exported text."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from turnwise_worlds.proofs.kernel.formula import Equal
from turnwise_worlds.proofs.kernel.rules import Proof
from turnwise_worlds.proofs.kernel.sequent import Sequent
from turnwise_worlds.proofs.metamath.debian import ask_metamath
from turnwise_worlds.proofs.metamath.equations import export_equations
from turnwise_worlds.proofs.metamath.logic import export_logic
from turnwise_worlds.proofs.metamath.verifier import Database, Unverified

LABEL = "theorem"
"""The label of an exported theorem."""


def export_theorem(sequent: Sequent, proof: Proof) -> tuple[str, str]:
    """Return the name of the database that a theorem rests on, and the text to read after it. Raises Refused where the
    kernel's rules do not apply."""
    if isinstance(sequent.conclusion, Equal):
        return "equations.mm", export_equations(sequent, proof, LABEL)
    return "logic.mm", export_logic(sequent, proof, LABEL)


@cache
def read_base(name: str) -> str:
    """Return the text of a database."""
    return (files("turnwise_worlds.proofs.metamath") / name).read_text()


@cache
def _load_base(name: str) -> Database:
    return Database().extend(read_base(name))


def ask_verifier(base: str, text: str) -> str | None:
    """Let our own verifier read an exported theorem after its database; returns what it objects to, None if nothing."""
    try:
        _load_base(base).extend(text)
    except Unverified as cause:
        return str(cause)
    return None


def ask_program(base: str, text: str) -> str | None:
    """Let `metamath` verify it. Raises as `ask_metamath` does."""
    return ask_metamath(read_base(base) + text, LABEL)
