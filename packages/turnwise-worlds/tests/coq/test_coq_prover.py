"""The real Coq: tactics, forks, limits, and everything that must not become a proof."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.core.errors import DataError
from turnwise_sandbox.types import Execution
from turnwise_worlds.coq.process import CoqProcess
from turnwise_worlds.coq.prover import CoqProver
from turnwise_worlds.coq.verify import CoqVerifier, read_verdict, write_file
from turnwise_worlds.proving.program import ProgramEnded
from turnwise_worlds.proving.prover import TacticRefused, Theorem

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("coqtop") is None, reason="coqtop is missing; install it with: make system"),
]
COQTOP = shutil.which("coqtop") or ""
LOGIC = Theorem(name="t", statement="(p q : Prop) (a : p -> q) (b : p) : q /\\ p")
FALSE = Theorem(name="t", statement=": False")


@pytest.fixture(scope="module")
def prover() -> Iterator[CoqProver]:
    built = CoqProver(COQTOP, num_processes=1, tactic_timeout_s=1, memory_mib=400)
    yield built
    built.close()


def find_coqtops() -> list[int]:
    """The coqtop processes that this one started, at any depth."""
    parents, commands = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                commands[int(folder.name)] = (folder / "cmdline").read_bytes()
            except (OSError, IndexError):
                continue

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    return [pid for pid, command in commands.items() if b"coqtop" in command.split(b"\0")[0] and is_ours(pid)]


def test_a_proof_is_made_of_tactics_and_verified(prover: CoqProver) -> None:
    state = prover.start(LOGIC)
    assert state.goals[0].hypotheses[2:] == (("a", "p -> q"), ("b", "p"))
    state = prover.apply(state, "split.")
    assert [goal.conclusion for goal in state.goals] == ["q", "p"]
    with pytest.raises(TacticRefused, match='has type "p" while it is expected to have type "q"') as refused:
        prover.apply(state, "exact b.")
    assert refused.value.kind == "wrong"
    for tactic in ("apply a.", "exact b.", "exact b."):
        state = prover.apply(state, tactic)
    assert state.goals == ()
    assert prover.verify(LOGIC, state.script).accepted


def test_earlier_states_and_other_theorems_stay_reachable(prover: CoqProver) -> None:
    other = prover.start(Theorem(name="other", statement="(n : nat) : n + 0 = n"))
    start = prover.start(LOGIC)
    split = prover.apply(start, "split.")
    shown = {
        "left": prover.apply(split, "apply a.").goals,
        "other": prover.apply(other, "induction n as [|n a].").goals,
        "again": prover.apply(split, "apply a.").goals,
    }
    assert shown["left"] == shown["again"]
    assert shown["left"][0].conclusion == "p"
    assert [goal.conclusion for goal in shown["other"]] == ["0 + 0 = 0", "S n + 0 = S n"]


def test_a_killed_coqtop_is_replaced_in_the_middle_of_a_proof(prover: CoqProver) -> None:
    state = prover.apply(prover.start(LOGIC), "split.")
    started = prover.num_started
    [pid] = find_coqtops()
    os.kill(pid, signal.SIGKILL)
    assert prover.apply(state, "apply a.").goals[0].conclusion == "p"
    assert prover.num_started == started + 1


def test_a_tactic_has_limits(prover: CoqProver) -> None:
    power = Theorem(name="t", statement="(a : forall n, n = S n) : 0 = 1")
    loop = "rewrite a, a, a, a, a, a, a, a." * 1
    assert prover.apply(prover.start(power), loop).goals  # finite: accepted
    big = Theorem(name="t", statement=": 4000 * 4000 = 4000 * 4000 + 1")
    before = time.monotonic()
    with pytest.raises(TacticRefused) as refused:
        prover.apply(prover.start(big), "reflexivity.")
    assert refused.value.kind in ("time", "memory", "wrong")  # Coq may notice first that its stack is full
    assert time.monotonic() - before < 30
    assert prover.start(LOGIC).goals  # and goes on


def test_endless_output_and_memory_end_the_process(prover: CoqProver) -> None:
    for sentence, limit in (('do 10000000 idtac "endless".', "output"), ("do 1000000000 idtac.", "wall")):
        process = CoqProcess(prover._sandbox, COQTOP, memory_bytes=400 << 20)
        with pytest.raises(ProgramEnded) as ended:
            process.ask(["Goal True.", sentence], 2.0)
        assert ended.value.limit == limit


def test_a_statement_or_an_import_that_coq_refuses_is_named(prover: CoqProver) -> None:
    with pytest.raises(DataError, match="theorem 'odd': The reference nothing was not found"):
        prover.start(Theorem(name="odd", statement=": nothing = 1"))
    with pytest.raises(DataError, match=r"theorem 'odd': Require Import Nowhere\. Cannot find"):
        prover.start(Theorem(name="odd", statement=": True", imports=("Require Import Nowhere.",)))
    lia = Theorem(name="t", statement="(n : nat) : n < n + 1", imports=("Require Import Lia.",))
    assert prover.verify(lia, prover.apply(prover.start(lia), "lia.").script).accepted


LOOP = "exact ((fix f (n : nat) : False := f n) 0)."
CHEATS = {
    "an axiom inside": ["Axiom x : False.", "exact x."],
    "a parameter": ["Parameter x : False.", "exact x."],
    "admit": ["admit."],
    "admitted": ["Admitted.", "Theorem u : True.", "exact I."],
    "another statement": ["Abort.", "Theorem t : True.", "exact I."],
    "a new False": ["Abort.", "Inductive False : Prop := yes.", "Theorem t : False.", "exact yes."],
    "a notation": ["Abort.", "Notation False := True.", "Theorem t : False.", "exact I."],
    "no guard": ["Abort.", "Unset Guard Checking.", "Theorem t : False.", LOOP],
    "a loop": [LOOP],
    "type in type": ["Abort.", "Unset Universe Checking.", "Axiom x : False.", "Theorem t : False.", "exact x."],
    "fails and goes on": ["Fail exact I."],
    "redirected": ['Redirect "/tmp/x" Print nat.', "exact I."],
    "itself": ["exact t."],
    "a functor that hides a loop": [
        *("Abort.", "Module Type A.", "Parameter Inline f : nat -> False.", "End A."),
        *("Module F (S : A).", "Definition g : nat -> False := S.f.", "End F."),
        *("Module X.", "Local Unset Guard Checking.", "Fixpoint f (n : nat) : False := f (S n).", "End X."),
        *("Unset Guard Checking.", "Module G := F X.", "Set Guard Checking."),
        *("Theorem t : False.", "exact (G.g 0)."),
    ],
    "unfinished": [],
}
"""Scripts that are no proofs of False, most of which coqtop takes when they are sent as they are."""


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_refused_twice(prover: CoqProver, name: str) -> None:
    script = tuple(CHEATS[name])
    assert not prover.verify(FALSE, script).accepted
    # Past the list of tactics, the file itself is refused.
    assert not prover._verifier.check_file(FALSE, script).accepted


def test_print_assumptions_alone_would_be_deceived(prover: CoqProver) -> None:
    refused = prover._verifier.check_file(FALSE, tuple(CHEATS["a functor that hides a loop"]))
    assert refused.reason.startswith("coqchk: ")


def test_a_bad_proof_spoils_no_other_of_its_file(prover: CoqProver) -> None:
    verifier = CoqVerifier(prover._sandbox, COQTOP)
    good = ("split.", "apply a.", "exact b.", "exact b.")
    verdicts = verifier.check_all([(LOGIC, good), (FALSE, ("exact I.",)), (LOGIC, good[:-1])])
    assert [verdict.accepted for verdict in verdicts] == [True, False, False]
    assert verifier.num_runs == 4  # together, then one by one


def test_what_coqchk_reports_of_the_file_counts() -> None:
    summary = (
        "turnwise_mark\n* Axioms:\n    Coq.Reals.x\n  \n* Constants/Inductives relying on type-in-type: <none>\n"
        "* Constants/Inductives relying on unsafe (co)fixpoints: {}\n* Inductives whose positivity is assumed: <none>\n"
    )
    closed = "Closed under the global context\n"

    def judge(said: str, unsafe: str) -> bool:
        stdout = (said + summary.format(unsafe)).encode()
        return read_verdict(Execution(stdout=stdout, stderr=b"", exit_code=0), 1).accepted

    assert judge(closed, "<none>")  # an axiom that an import brings along and the proof does not use
    assert not judge(closed, "turnwise_proofs.M0.t")
    assert not judge(closed * 2, "<none>")
    assert not judge("Axioms:\nx : False\n", "<none>")
    assert "Print Assumptions proved0." in write_file([(LOGIC, ())])


def test_nothing_is_left(prover: CoqProver) -> None:
    prover.start(LOGIC)
    [pid] = find_coqtops()
    prover.close()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert find_coqtops() == []
