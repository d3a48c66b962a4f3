"""Our own verifier on small databases: sound ones are read, and every kind of error is named."""

import pytest

from turnwise_worlds.proofs.metamath.opinions import read_base
from turnwise_worlds.proofs.metamath.verifier import Database, Unverified

BASE = """
$( Implication. $)
$c ( ) -> wff |- $.
$v p q r $.
wp $f wff p $. wq $f wff q $. wr $f wff r $.
wi $a wff ( p -> q ) $.
k $a |- ( p -> ( q -> p ) ) $.
s $a |- ( ( p -> ( q -> r ) ) -> ( ( p -> q ) -> ( p -> r ) ) ) $.
${ min $e |- p $. maj $e |- ( p -> q ) $. mp $a |- q $. $}
"""
ARROW = "wp wp wi"  # p -> p
LEFT = f"wp {ARROW} wi"  # p -> ( p -> p )
FIRST = f"wp {ARROW} wp wi wi {LEFT} {ARROW} wi wp {ARROW} k wp {ARROW} wp s mp"  # LEFT -> ARROW, by s and k
IDENTITY = f"{LEFT} {ARROW} wp wp k {FIRST} mp"
COMPRESSED = "( wi k s mp ) AAABZBZFAACAFABBGFBAFCAFADEE"


def read(text: str) -> Database:
    return Database().extend(BASE).extend(text)


def test_the_identity_is_proved_in_both_formats() -> None:
    for proof in (IDENTITY, COMPRESSED):
        database = read(f"id $p |- ( p -> p ) $= {proof} $.")
        assert database.assertions["id"].hypotheses == ("wp",)
        assert " ".join(database.assertions["id"].expression) == "|- ( p -> p )"


def test_reading_on_leaves_the_first_database_as_it_was() -> None:
    base = Database().extend(BASE)
    base.extend(f"id $p |- ( p -> p ) $= {IDENTITY} $.")
    assert "id" not in base.assertions
    base.extend(f"id $p |- ( p -> p ) $= {IDENTITY} $.")


def test_both_shipped_databases_are_read() -> None:
    logic = Database().extend(read_base("logic.mm"))
    axioms = {label for label in logic.assertions if label.startswith("ax-")}
    assert axioms == {"ax-mp", "ax-1", "ax-2", "ax-3"}
    assert len(Database().extend(read_base("equations.mm")).assertions) == 15


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"id $p |- ( p -> q ) $= {IDENTITY} $.", "id proves |- ( p -> p )"),
        (f"id $p |- ( p -> p ) $= {IDENTITY[:-3]} $.", "id proves"),
        ("id $p |- ( p -> p ) $= mp $.", "id has too few steps for mp"),
        ("id $p |- ( p -> p ) $= ? $.", "id uses ?, which is unknown"),
        ("id $p |- ( p -> p ) $= id $.", "id uses id, which is unknown"),
        ("id $p |- ( p -> p ) $= $.", "id proves nothing"),
        ("id $p |- ( p -> p ) $.", "id has no proof"),
        ("id $p |- ( p -> p ) $= ( ) A9 $.", "id has '9' in its proof"),
        ("id $p |- ( p -> p ) $= ( A $.", "id has an unclosed list of labels"),
        ("id $p |- ( p -> p ) $= ( ) AB $.", "id uses a step that it did not save"),
        ("id $p |- ( p -> p ) $= ( ) Z $.", "id saves nothing"),
        ("id $p |- ( p -> p ) $= ( ) AU $.", "id ends inside a number"),
        ("id $p |- ( p -> p ) $= wp wp wq k wp wp mp $.", "id gives mp a |- for a wff"),
        ("id $p |- q $= wp wq wp wq wp wi wp wq k mp $.", "id gives mp another min"),
        ("k $a |- p $.", "label 'k' is missing or taken"),
        ("$a |- p $.", "label '' is missing or taken"),
        ("x $a |- t $.", "x has the unknown symbol t"),
        ("x $a p $.", "x does not start with a constant"),
        ("x $a |- p", "a statement does not end"),
        ("x", "the text ends inside a scope or statement"),
        ("${", "the text ends inside a scope or statement"),
        ("$}", "$} closes nothing"),
        ("x y $a |- p $.", "y is not expected after x"),
        ("x ${ $}", "x is a label of ${"),
        ("x $f wff ( $.", "x is no type of a variable"),
        ("x $f wff p $.", "x gives a variable a second type"),
        ("$v -> $.", "a variable is a constant, too"),
        ("$c p $.", "a variable is a constant, too"),
        ("$d p p $.", "$d names a variable twice"),
        ("$( no end", "a comment does not end"),
        ("$[ /etc/passwd $]", "a file is included"),
        ("${ h $e |- p $. $} x $p |- p $= h $.", "x uses h, which is not active"),
        # Compressed proofs that name hypotheses of another theorem, or their own once more.
        (
            "${ h $e |- p $. x $p |- p $= ( ) B $. $} y $p |- p $= ( h ) B $.",
            "y lists h, which is mandatory or not active",
        ),
        ("x $p |- ( p -> p ) $= ( wp ) A $.", "x lists wp, which is mandatory or not active"),
        ("x $p |- ( p -> p ) $= ( x ) B $.", "x uses x, which is unknown"),
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(Unverified) as raised:
        read(text)
    assert str(raised.value).startswith(problem)


def test_variables_that_must_stay_apart_do() -> None:
    """`$d` : an axiom for distinct p and q may be used for two atoms that are declared distinct, and for no others."""
    axiom = "${ $d p q $. apart $a |- ( p -> q ) $. $} "
    read(axiom + "${ $d q r $. x $p |- ( q -> r ) $= wq wr apart $. $}")
    for text in ("x $p |- ( q -> r ) $= wq wr apart $.", "x $p |- ( p -> p ) $= wp wp apart $."):
        with pytest.raises(Unverified, match="to be distinct"):
            read(axiom + text)
