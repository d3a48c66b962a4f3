"""Kernel, our own verifier and Debian's `metamath` on the same theorems, one by one."""

import shutil
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from random import Random

import pytest

from turnwise.core.errors import ConfigError
from turnwise_worlds.proofs.kernel.check import check_proof
from turnwise_worlds.proofs.kernel.formula import Equal
from turnwise_worlds.proofs.kernel.rules import Proof, Refused
from turnwise_worlds.proofs.kernel.sequent import Sequent
from turnwise_worlds.proofs.kinds import KIND_NAMES, make_theorem
from turnwise_worlds.proofs.metamath.debian import NoVerdict, ask_metamath, read_verdict
from turnwise_worlds.proofs.metamath.equations import state_equation
from turnwise_worlds.proofs.metamath.logic import state_logic
from turnwise_worlds.proofs.metamath.opinions import ask_program, ask_verifier, export_theorem, read_base
from turnwise_worlds.proofs.metamath.verifier import Database, Unverified
from turnwise_worlds.proofs.state import ProofState
from turnwise_worlds.proofs.theorem import Theorem


def needs_metamath(test: Callable[..., None]) -> Callable[..., None]:
    missing = pytest.mark.skipif(shutil.which("metamath") is None, reason="metamath is not installed")
    return pytest.mark.system(missing(test))


def prove(theorem: Theorem) -> Proof:
    state = ProofState.open(theorem)
    for tactic in theorem.script:
        state = state.apply(tactic)
    proof = state.build_proof()
    assert proof is not None
    return proof


def claim(sequent: Sequent, proof: Proof, claimed: Sequent) -> tuple[str, str]:
    """The exported proof of one theorem under the statement of another."""
    base, text = export_theorem(sequent, proof)
    if isinstance(sequent.conclusion, Equal):
        return base, text.replace(
            f"$p {state_equation(sequent.conclusion)}", f"$p {state_equation(claimed.conclusion)}"
        )
    return base, text.replace(state_logic(sequent), state_logic(claimed))


def change(sequent: Sequent, random: Random) -> Sequent:
    """Exchange the goal for a hypothesis or its sides, drop a hypothesis, exchange two, or change nothing."""
    hypotheses, goal = list(sequent.hypotheses), sequent.conclusion
    if isinstance(goal, Equal):
        return sequent.prove(random.choice((goal, Equal(goal.right, goal.left), Equal(goal.left, goal.left))))
    match random.randrange(4):
        case 0:
            return sequent.prove(random.choice(hypotheses)[1])
        case 1:
            hypotheses.pop(random.randrange(len(hypotheses)))
        case 2:
            (one, left), (other, right) = hypotheses[0], hypotheses[-1]
            hypotheses[0], hypotheses[-1] = (one, right), (other, left)
    return Sequent(tuple(hypotheses), sequent.conclusion)


def draw_proved(random: Random) -> tuple[Theorem, Proof]:
    theorem = make_theorem(random.choice(KIND_NAMES), random)
    return theorem, prove(theorem)


@needs_metamath
def test_every_kind_is_accepted_by_all_three() -> None:
    for kind in KIND_NAMES:
        theorem = make_theorem(kind, Random(kind))
        proof = prove(theorem)
        check_proof(theorem.sequent, proof, classical=theorem.classical)
        exported = export_theorem(theorem.sequent, proof)
        assert ask_verifier(*exported) is None
        assert ask_program(*exported) is None


@needs_metamath
def test_a_proof_claimed_for_another_theorem_gets_one_verdict_from_all_three() -> None:
    random, verdicts = Random("claims"), {True: 0, False: 0}
    for _ in range(80):
        theorem, proof = draw_proved(random)
        claimed = change(theorem.sequent, random)
        try:
            check_proof(claimed, proof, classical=theorem.classical)
            accepted = True
        except Refused:
            accepted = False
        # What the kernel refuses cannot be exported: the proof of the first theorem gets the other's statement.
        exported = export_theorem(claimed, proof) if accepted else claim(theorem.sequent, proof, claimed)
        assert (ask_verifier(*exported) is None) == accepted, claimed
        assert (ask_program(*exported) is None) == accepted, claimed
        verdicts[accepted] += 1
    assert min(verdicts.values()) >= 15


@needs_metamath
def test_a_damaged_text_gets_one_verdict_from_both_verifiers() -> None:
    random, refused = Random("labels"), 0
    for _ in range(80):
        theorem, proof = draw_proved(random)
        base, text = export_theorem(theorem.sequent, proof)
        start = text.index("$=") + 2
        labels = text[start : text.index("$.", start)].split()
        at = random.randrange(len(labels))
        match random.randrange(3):
            case 0:
                del labels[at]
            case 1:
                labels[at] = random.choice(labels)
            case 2:
                labels[at], labels[at - 1] = labels[at - 1], labels[at]
        damaged = f"{text[:start]} {' '.join(labels)} {text[text.index('$.', start) :]}"
        verdict = ask_verifier(base, damaged)
        assert (verdict is None) == (ask_program(base, damaged) is None), damaged
        refused += verdict is not None
    assert refused > 60


@needs_metamath
def test_a_database_with_errors_is_refused_although_the_program_calls_its_proofs_right() -> None:
    base, text = export_theorem(*_two_steps())
    assert ask_program(base, text) is None
    assert ask_program(base, text + "$a x") is not None
    assert ask_program(base, text + text) is not None
    assert ask_program(base, text.replace("${", "$[ /etc/passwd $] ${")) is not None


def _two_steps() -> tuple[Sequent, Proof]:
    theorem = make_theorem("absurd", Random(0))
    return theorem.sequent, prove(theorem)


@needs_metamath
def test_a_proof_with_unknown_steps_is_refused_although_the_program_only_warns() -> None:
    base, text = export_theorem(*_two_steps())
    start = text.index("$=") + 2
    unknown = f"{text[:start]} ? {text[text.index('$.', start) :]}"
    assert (ask_program(base, unknown) or "").startswith("Warning")
    assert ask_verifier(base, unknown) is not None


@needs_metamath
def test_what_the_program_does_not_compare_never_occurs() -> None:
    """It accepts an inference whose hypothesis differs, where the hypotheses have no variables; ours all have some."""
    false = "$c x y $. fact $a x $. ${ given $e y $. rule $a y $. $} theorem $p y $= fact rule $.\n"
    assert ask_metamath(false, "theorem") is None
    with pytest.raises(Unverified, match="another given"):
        Database().extend(false)
    for name in ("logic.mm", "equations.mm"):
        base = Database().extend(read_base(name))
        for label, assertion in base.assertions.items():
            essential = base.essential & set(assertion.hypotheses)
            assert not essential or len(essential) < len(assertion.hypotheses), label


@needs_metamath
def test_the_excerpt_verifies_whole() -> None:
    printed = subprocess.run(
        ["metamath", "read logic.mm", "verify proof *", "exit"],
        cwd=str(files("turnwise_worlds.proofs.metamath")),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    ).stdout
    assert "No errors were found." in printed
    assert "All proofs in the database were verified" in printed


def put_program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "metamath"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exec sleep 60", "metamath took longer than 0.3 s"),
        ("kill -9 $$", "metamath ended with code -9 and without a verdict"),
        ("exec yes", "metamath ended with code -25 and without a verdict"),
        ("exit 0", "metamath ended with code 0 and without a verdict: ''"),
        ("echo No errors were found.; echo t", "metamath ended with code 0 and without a verdict"),
    ],
)
def test_a_program_that_gives_no_verdict_is_said_to_give_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str
) -> None:
    put_program(tmp_path, monkeypatch, script)
    with pytest.raises(NoVerdict) as raised:
        ask_metamath("", "theorem", deadline_s=0.3 if "sleep" in script else 20)
    assert str(raised.value).startswith(problem)


def test_without_the_program_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="apt-get install metamath"):
        ask_metamath("", "theorem")


def test_what_the_program_prints_is_read() -> None:
    good = "Reading...\nNo errors were found.\nMM> verify proof th\nth \nMM> exit\n"
    assert read_verdict(good, "th", 0) is None
    assert (
        read_verdict(good.replace("th \n", "?Error on line 1\nIt is wrong.\n"), "th", 0)
        == "?Error on line 1 It is wrong."
    )
