"""What may be said to Coq: one allowed tactic, and nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_worlds.coq.sentences import HEADS, KNOWN, check_tactic
from turnwise_worlds.proving.prover import TacticRefused


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("split", "split."),
        (" intros   n  m. ", "intros n m."),
        ("apply H in G", "apply H in G."),
        ("rewrite <- Nat.add_comm.", "rewrite <- Nat.add_comm."),
        ("destruct H as [a [b | c]]", "destruct H as [a [b | c]]."),
        ("exact (fun x : nat => conj (f x) eq_refl)", "exact (fun x : nat => conj (f x) eq_refl)."),
        ("assert (forall n, n <= S n /\\ True)", "assert (forall n, n <= S n /\\ True)."),
        ("induction n as [|n IH']", "induction n as [|n IH']."),
    ],
)
def test_a_tactic_is_one_sentence(text: str, sentence: str) -> None:
    assert check_tactic(text) == sentence


HOLES = [
    "",
    ".",
    "Axiom x : False",
    "Admitted",
    "Abort",
    "Qed",
    "admit",
    "give_up",
    'Redirect "file" Print nat',
    'Cd "/"',
    'Load "file"',
    "Require Import Foreign",
    "From Coq Require Import Classical",
    "Set Universe Checking",
    "Unset Guard Checking",
    "Unset Positivity Checking",
    "Fail exact I",
    "Time exact I",
    "Instructions exact I",
    "Timeout 9 exact I",
    "Notation hidden := True",
    "Ltac split := admit",
    "Declare ML Module x",
    "BackTo 1",
    "Quit",
    "Drop",
    "#[bypass_check(guard)] split",
    "abstract split",
    "all: split",
    "2: split",
    "{ split }",
    "- split",
    "split. Axiom x : False",
    "split.Axiom x : False",
    "split..",
    "split; admit",
    "split\nAxiom x : False",
    "split.\tAdmitted",
    "exact I (* . *) . Admitted",
    "exact (*",
    'exact "text"',
    "exact ltac:(admit)",
    "exact (ltac:(exact I))",
    "exact $(exact I)$",
    "apply H; [ admit | idtac ]",
    "apply H using x",
    "rewrite H by admit",
    "assert (False) by admit",
    "exact_no_check I",
    "vm_cast_no_check I",
    "exact (vm_cast_no_check I)",
    "native_compute",
    "idtac",
    "repeat split",
    "try split",
    "fix f 1",
    "cofix f",
    "split I",
    "exact 1.2",
    "exact (I",
    "exact I)",
    "exact [I)",
    "exact {| x := 1 |}",
    "exact \u0391",
    "ex\u0430ct I",  # a Cyrillic letter
    "exact\u00a0I",
    "exact I\u2028Admitted",
    "exact I\x00",
    "exact </prompt>",
    "exact " + "a" * 500,
    "trivial",
    "lia",
]
"""What a policy might try, and Coq might accept."""


@pytest.mark.parametrize("text", HOLES)
def test_nothing_else_is_said(text: str) -> None:
    with pytest.raises(TacticRefused) as refused:
        check_tactic(text)
    assert refused.value.kind == "vernacular"


def test_what_a_recipe_allows_is_allowed() -> None:
    assert check_tactic("lia", ("lia",)) == "lia."
    with pytest.raises(TacticRefused, match="'split' is not among the allowed tactics: lia"):
        check_tactic("split", ("lia",))
    assert set(HEADS) < set(KNOWN)


@given(st.text(alphabet=st.sampled_from(list("ab.( )*|[]:=;\"'{}->/\\\n")) | st.characters(), max_size=40))
def test_no_text_becomes_two_sentences(text: str) -> None:
    try:
        sentence = check_tactic(f"exact {text}")
    except TacticRefused:
        return
    assert sentence.endswith(".")
    # A full stop ends a sentence where a blank follows; inside names it does not.
    assert re.search(r"\.(?![A-Za-z_])", sentence[:-1]) is None
    assert not any(each in sentence for each in ("(*", '"', ";", "\n"))
