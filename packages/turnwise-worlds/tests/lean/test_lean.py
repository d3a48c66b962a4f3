"""The client of Lean's REPL, against a stand-in that speaks its JSON; it was never run against Lean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.core.errors import DataError
from turnwise.core.types import Message, Reward, Scored, StopReason, ToolCall
from turnwise_worlds.lean.family import Lean
from turnwise_worlds.lean.prover import LeanProver, read_axioms, read_goals
from turnwise_worlds.lean.sentences import check_tactic
from turnwise_worlds.proving.prover import Goal, ProverLost, TacticRefused, Theorem

STAND_IN = Path(__file__).with_name("stand_in.py")
THEOREM = Theorem(name="t", statement="(p : Prop) (h : p) : p", imports=("import Library",))


@pytest.fixture(scope="module")
def prover() -> Iterator[LeanProver]:
    files = {"stand_in.py": STAND_IN.read_bytes()}
    built = LeanProver(["python3", "stand_in.py"], files=files, tactic_timeout_s=1.0, memory_mib=256)
    yield built
    built.close()


def test_a_proof_of_tactics_is_compiled_again(prover: LeanProver) -> None:
    state = prover.start(THEOREM)
    assert state.goals == (Goal(hypotheses=(("p", "Prop"), ("h", "p")), conclusion="p"),)
    split = prover.apply(state, "split")
    assert len(split.goals) == 2
    done = prover.apply(prover.apply(split, "close"), "close")
    assert done.goals == ()
    assert prover.apply(state, "close").goals == ()  # the earlier state is still there
    assert prover.verify(THEOREM, done.script).accepted
    refused = prover.verify(THEOREM, ("split", "close"))
    assert (refused.accepted, refused.reason) == (False, "unsolved goals")


def test_an_axiom_of_the_library_may_be_used_and_no_other(prover: LeanProver) -> None:
    assert prover.verify(THEOREM, ("classical",)).accepted
    verdict = prover.verify(THEOREM, ("cheat",))
    assert (verdict.accepted, verdict.reason) == (False, "rests on sneaky")
    assert not read_axioms({"messages": []}).accepted


@pytest.mark.parametrize(("tactic", "kind"), [("sleep", "time"), ("flood", "output"), ("nothing", "wrong")])
def test_a_tactic_has_limits(prover: LeanProver, tactic: str, kind: str) -> None:
    state = prover.start(THEOREM)
    with pytest.raises(TacticRefused) as refused:
        prover.apply(state, tactic)
    assert refused.value.kind == kind
    assert prover.apply(state, "close").goals == ()  # in a fresh REPL, if the other is gone


@pytest.mark.parametrize(("tactic", "message"), [("die", "ended twice"), ("rubbish", "no JSON object")])
def test_a_repl_that_is_lost_is_no_fault_of_the_policy(prover: LeanProver, tactic: str, message: str) -> None:
    with pytest.raises(ProverLost, match=message):
        prover.apply(prover.start(THEOREM), tactic)
    assert prover.start(THEOREM).goals


def test_what_lean_refuses_of_a_theorem_is_said(prover: LeanProver) -> None:
    with pytest.raises(DataError, match="theorem 't': unknown identifier"):
        prover.start(Theorem(name="t", statement=": unknown"))
    with pytest.raises(DataError, match="imports import Nowhere: unknown module"):
        prover.start(Theorem(name="t", statement=": p", imports=("import Nowhere",)))


@pytest.mark.parametrize(
    "text",
    [
        *("sorry", "exact sorry", "admit", "exact sorryAx _", "native_decide", "exact Lean.ofReduceBool a b c"),
        *(
            "simp; rfl",
            "simp <;> rfl -- x",
            "/- x -/ rfl",
            "#eval 1",
            "run_tac pure ()",
            'exact "x"',
            "axiom x : False",
        ),
        *(
            "axiom x : False",
            "rfl\naxiom x : False",
            "set_option x true in rfl",
            "open Lean in rfl",
            "",
            "a" * 2000,
            "macro x",
        ),
    ],
)
def test_what_is_no_plain_tactic_is_not_said(text: str) -> None:
    with pytest.raises(TacticRefused) as refused:
        check_tactic(text)
    assert refused.value.kind == "vernacular"


def test_plain_tactics_are_said() -> None:
    for text in ("intro h", "exact ⟨h.1, h.2⟩", "rw [Nat.add_comm]", "simp at h ⊢", "cases h with | inl a => exact a"):
        assert check_tactic(f" {text} ") == text


def test_goals_are_read_as_lean_prints_them() -> None:
    [goal] = read_goals(["case left\na b : Nat\nh : a = b\n⊢ b = a"])
    assert goal == Goal(hypotheses=(("a", "Nat"), ("b", "Nat"), ("h", "a = b")), conclusion="b = a")


def test_an_episode_is_that_of_every_prover(prover: LeanProver, tmp_path: Path) -> None:
    row = {"name": "t", "statement": "(p : Prop) (h : p) : p", "imports": ["import Library"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    path = str(tmp_path / "rows.jsonl")
    family = Lean(mode="files", train_path=path, heldout_path=path)
    family.prover = prover

    async def play(*tactics: str) -> tuple[Reward, list[str]]:
        task = family.task("heldout", 0)
        environment = family.build_environment(task)
        shown = [(await environment.reset(task, 0)).messages[0].text]
        for tactic in tactics:
            call = ToolCall(id="1", name="tactic", arguments=json.dumps({"text": tactic}))
            result = await environment.step(Message(role="assistant", content=(), tool_calls=(call,)))
            shown += [observation.text for observation in result.observations]
        reward = await environment.score([], StopReason.DONE)
        await environment.close()
        return reward, shown

    reward, shown = asyncio.run(play("sorry", "close"))
    assert isinstance(reward, Scored)
    assert reward.total == 1.0
    assert shown[0].endswith("p : Prop\nh : p\n|- p")
    assert shown[1].startswith(" no: 'sorry' is not allowed in a tactic\n")
    reward, _ = asyncio.run(play("cheat"))
    assert isinstance(reward, Scored)
    assert reward.total == 0.0
