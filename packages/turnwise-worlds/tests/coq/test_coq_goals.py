"""Goals as coqtop prints them, and states in one line."""

from __future__ import annotations

import pytest

from turnwise_worlds.coq.goals import read_goals
from turnwise_worlds.coq.verify import close_statement, state_theorem
from turnwise_worlds.coq.words import show_terse, to_terse, write_sentence
from turnwise_worlds.proofs.words import Tactic
from turnwise_worlds.proving.prover import Goal, TacticRefused, Theorem

PRINTED = """2 goals (ID 7)
  
  p : Prop
  q : Prop
  a, b : p -> q \\/ False
  n := 3 : nat
  ============================
  p

goal 2 (ID 8) is:
 q
"""


def test_goals_are_read_as_printed() -> None:
    first, second = read_goals(PRINTED) or ()
    either = "p -> q \\/ False"
    assert first.hypotheses == (("p", "Prop"), ("q", "Prop"), ("a", either), ("b", either), ("n", "nat := 3"))
    assert (first.conclusion, second) == ("p", Goal(hypotheses=(), conclusion="q"))
    assert read_goals("No more goals.\n") == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Error: Not an inductive product.",
        "No more goals, but there are some goals you gave up:\n\n1 goal\n\ngoal 1 (ID 14) is:\n q",
        PRINTED.replace("2 goals", "3 goals"),
    ],
)
def test_another_text_is_no_goal(text: str) -> None:
    assert read_goals(text) is None


def test_a_state_in_one_line_has_numbers_after_what_hypotheses_say() -> None:
    hypotheses = (("p", "Prop"), ("c", "p -> q /\\ False"), ("n", "nat"), ("a", "(p \\/ q)"), ("l", "n = 0"))
    goal = Goal(hypotheses=hypotheses, conclusion="S n = n + 0")
    assert show_terse(goal) == " p > q & F2 ; ( p | q )0 ; n = 0h11 ; |- S n = n + 0"
    assert to_terse("(1 :: nil) ++ l' = l'") == "( 1 :: nil ) ++ l' = l'"


@pytest.mark.parametrize(
    ("type_", "sentence"),
    [
        ("p /\\ q", "destruct c as [d e]."),
        ("p \\/ q", "destruct c as [d | e]."),
        ("p /\\ q \\/ r", "destruct c as [d | e]."),
        ("(p \\/ q) /\\ r", "destruct c as [d e]."),
        ("p -> q \\/ r", "destruct c."),
        ("False", "destruct c."),
    ],
)
def test_taking_apart_names_what_comes_out(type_: str, sentence: str) -> None:
    goal = Goal(hypotheses=(("c", type_), ("a", "p")), conclusion="q")
    assert write_sentence(Tactic("destruct", "c"), goal, ("a", "c", "d", "e")) == sentence


def test_induction_names_what_is_assumed() -> None:
    goal = Goal(hypotheses=(("n", "nat"), ("l", "list nat")), conclusion="q")
    assert write_sentence(Tactic("induction", "n"), goal, ("a", "b")) == "induction n as [|n a]."
    assert write_sentence(Tactic("induction", "l"), goal, ("a", "b")) == "induction l as [|b l a]."


@pytest.mark.parametrize("tactic", [Tactic("contradict"), Tactic("apply", "a. Qed"), Tactic("apply"), Tactic("Axiom")])
def test_a_call_that_is_no_tactic_is_refused(tactic: Tactic) -> None:
    with pytest.raises(TacticRefused, match="is no tactic"):
        write_sentence(tactic, Goal(hypotheses=(), conclusion="q"), ("a", "b"))


@pytest.mark.parametrize(
    ("statement", "stated", "closed"),
    [
        ("(p : Prop) : p -> p", "Theorem t (p : Prop) : p -> p.", "forall (p : Prop), p -> p"),
        ("forall n : nat, n = n", "Theorem t : forall n : nat, n = n.", "forall n : nat, n = n"),
        ("(l : list nat) : 1 :: l = l", "Theorem t (l : list nat) : 1 :: l = l.", "forall (l : list nat), 1 :: l = l"),
        (
            "(1 = 1) -> forall n : nat, True",
            "Theorem t : (1 = 1) -> forall n : nat, True.",
            "(1 = 1) -> forall n : nat, True",
        ),
        (": True", "Theorem t : True.", "True"),
        ("1 :: nil = nil", "Theorem t : 1 :: nil = nil.", "1 :: nil = nil"),
    ],
)
def test_a_statement_may_have_binders(statement: str, stated: str, closed: str) -> None:
    theorem = Theorem(name="t", statement=statement)
    assert (state_theorem(theorem), close_statement(theorem)) == (stated, closed)
