"""Episodes in the real Coq."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import Opinion
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task, ToolCall
from turnwise_worlds.coq.environment import CoqEnvironment
from turnwise_worlds.coq.family import Coq
from turnwise_worlds.coq.kinds import KINDS
from turnwise_worlds.coq.prover import CoqProver
from turnwise_worlds.coq.theorem import CoqTheorem
from turnwise_worlds.proving.prover import ProofState, ProverLost, Theorem, Verdict

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("coqtop") is None, reason="coqtop is missing; install it with: make system"),
]


@pytest.fixture(scope="module")
def prover() -> Iterator[CoqProver]:
    """One prover for the families of all tests."""
    built = CoqProver(shutil.which("coqtop") or "", num_processes=1)
    yield built
    built.close()


def build(prover: CoqProver, **arguments: object) -> Coq:
    family = Coq(**{"style": "terse", **arguments})
    family.prover = prover
    return family


async def play(family: Coq, task: Task, policy: str) -> tuple[Reward, list[Message]]:
    environment = family.build_environment(task)
    try:
        messages = list((await environment.reset(task, 0)).messages)
        random, is_done = Random(task.id), False
        while not is_done:
            messages.append(family.policy(policy).reply(task, messages, random))
            result = await environment.step(messages[-1])
            messages += result.observations
            is_done = result.done
        return await environment.score([], StopReason.DONE), messages
    finally:
        await environment.close()


def play_all(family: Coq, policy: str, count: int) -> list[float]:
    async def gather() -> list[tuple[Reward, list[Message]]]:
        return await asyncio.gather(*(play(family, family.task("heldout", at), policy) for at in range(count)))

    rewards = [reward for reward, _ in asyncio.run(gather())]
    assert all(isinstance(reward, Scored) for reward in rewards)
    return [reward.total for reward in rewards if isinstance(reward, Scored)]


@pytest.mark.parametrize("style", ["terse", "full"])
def test_the_script_of_every_kind_is_a_proof(prover: CoqProver, style: str) -> None:
    family = build(prover, style=style)
    tasks = [family.task("train", at) for at in range(100)]
    assert {task.payload["kind"] for task in tasks} == set(KINDS)

    async def gather() -> list[tuple[Reward, list[Message]]]:
        return await asyncio.gather(*(play(family, task, "oracle") for task in tasks))

    failed = [
        task.payload["kind"]
        for task, (reward, _) in zip(tasks, asyncio.run(gather()), strict=True)
        if not isinstance(reward, Scored) or reward.total != 1.0
    ]
    assert failed == []


def test_chance_and_controls_prove_little(prover: CoqProver) -> None:
    kinds = {"chain2": 1.0, "cases": 1.0, "plus_zero": 1.0}
    assert sum(play_all(build(prover, kinds=kinds), "random", 40)) <= 4
    for shown in ("hidden", "shuffled"):
        assert sum(play_all(build(prover, kinds=kinds, shown=shown), "oracle", 40)) <= 8


def test_splits_share_no_statement() -> None:
    family = Coq(kinds={"plus_zero": 1.0})
    statements = {
        split: {family.task(split, at).payload["statement"] for at in range(60)} for split in ("train", "heldout")
    }
    assert not statements["train"] & statements["heldout"]


def call(name: str, /, **arguments: str) -> Message:
    made = ToolCall(id=name, name=name, arguments=json.dumps(arguments))
    return Message(role="assistant", content=(), tool_calls=(made,))


def open_episode(family: Coq, statement: str) -> tuple[CoqEnvironment, Task]:
    given = CoqTheorem(theorem=Theorem(name="t", statement=statement), names=("a", "b"))
    payload = {"kind": "own", **given.to_json()}
    task = Task(environment="coq", prompt=(), payload=payload)
    return family.build_environment(task), task


def test_both_styles_show_the_same_proof(prover: CoqProver) -> None:
    async def show() -> tuple[str, str, str, str]:
        terse, task = open_episode(build(prover), "(p q : Prop) (c : p -> q) : p -> q")
        full, _ = open_episode(build(prover, style="full"), "(p q : Prop) (c : p -> q) : p -> q")
        openings = [(await each.reset(task, 0)).messages[0].text for each in (terse, full)]
        steps = [await terse.step(call("intro")), await full.step(call("tactic", text="intros x"))]
        await terse.close()
        await full.close()
        return openings[0], openings[1], steps[0].observations[0].text, steps[1].observations[0].text

    opening, explained, after, text = asyncio.run(show())
    assert opening == " p > q2 ; |- p > q"
    assert explained.endswith("You have 16 calls.\n\np : Prop\nq : Prop\nc : p -> q\n|- p -> q")
    assert after == " p > q2 ; p0 ; |- q"
    assert text == "p : Prop\nq : Prop\nc : p -> q\nx : p\n|- q"


def test_a_hypothesis_is_called_by_its_word_and_number_or_by_its_name(prover: CoqProver) -> None:
    async def try_both() -> list[str]:
        environment, task = open_episode(build(prover), "(p q : Prop) (c : p -> q) (a : p) : q")
        await environment.reset(task, 0)
        calls = [call("apply", name="p2"), call("apply", name="q0"), call("apply", name="q2"), call("apply", name="a")]
        answers = [await environment.step(each) for each in calls]
        await environment.close()
        return ["".join(each.text for each in answer.observations) for answer in answers]

    refused = " no p > q2 ; p0 ; |- q"
    assert asyncio.run(try_both()) == [refused, refused, " p > q2 ; p0 ; |- p", ""]


def test_what_is_no_tactic_is_answered_and_counted(prover: CoqProver) -> None:
    async def try_all() -> tuple[list[str], Reward]:
        environment, task = open_episode(build(prover, style="full", budget=6), ": False")
        await environment.reset(task, 0)
        answers = []
        for text in ("Axiom x : False.", "admit", "exact I. Admitted", "exact x", "simpl"):
            answers.append((await environment.step(call("tactic", text=text))).observations[0].text)
        last = await environment.step(call("tactic", text="split"))
        assert last.done
        reward = await environment.score([], StopReason.DONE)
        await environment.close()
        return answers, reward

    answers, reward = asyncio.run(try_all())
    assert all(answer.startswith(" no: ") for answer in answers)
    assert isinstance(reward, Scored)
    assert {part.name: part.value for part in reward.parts} == {
        "success": 0.0,
        "finished": 0.0,
        "replies": 6.0,
        "refused": 6.0,
    }


def test_a_loop_is_no_proof(prover: CoqProver) -> None:
    async def try_it() -> str:
        environment, task = open_episode(build(prover, style="full"), ": False")
        await environment.reset(task, 0)
        result = await environment.step(call("tactic", text="exact ((fix f (n : nat) : False := f n) 0)"))
        await environment.close()
        return result.observations[0].text

    assert asyncio.run(try_it()).startswith(" no: Recursive definition of f is ill-formed.")


def test_a_fork_goes_its_own_way(prover: CoqProver) -> None:
    async def fork() -> tuple[str, str, bool]:
        environment, task = open_episode(build(prover), "(p q : Prop) (c : p) : p \\/ q")
        await environment.reset(task, 0)
        twin = await environment.fork()
        same = environment.state_hash() == twin.state_hash()
        await environment.step(call("left"))
        await twin.step(call("right"))
        shown = environment.show(), twin.show()
        await environment.close()
        await twin.close()
        return *shown, same

    assert asyncio.run(fork()) == (" p2 ; |- p", " p2 ; |- q", True)


def test_an_audit_plays_rewarded_proofs_again(prover: CoqProver) -> None:
    async def ask() -> tuple[Opinion, Opinion]:
        family = build(prover)
        _, task = open_episode(family, "(p : Prop) (c : p) : p /\\ p")
        proof = [call("split"), call("apply", name="p2"), call("apply", name="c")]
        return await family.give_opinion(task, proof), await family.give_opinion(task, proof[:2])

    earned, planted = asyncio.run(ask())
    assert earned == Opinion(by="coqc and coqchk", problem=None)
    assert planted.problem == "a goal is open after the last reply"


class LostProver:
    """A prover that dies when a proof is checked."""

    def start(self, theorem: Theorem) -> ProofState:
        return ProofState(theorem=theorem, script=(), goals=())

    def apply(self, state: ProofState, tactic: str) -> ProofState:
        raise ProverLost("gone")

    def verify(self, theorem: Theorem, script: tuple[str, ...]) -> Verdict:
        raise ProverLost("gone")

    def close(self) -> None: ...


def test_a_lost_prover_costs_the_episode_and_no_reward(prover: CoqProver) -> None:
    family = build(prover)

    async def score() -> Reward:
        _, task = open_episode(family, ": True")
        environment = CoqEnvironment(family._chosen, LostProver(), task)
        await environment.reset(task, 0)
        reward = await environment.score([], StopReason.DONE)
        await environment.close()
        return reward

    assert asyncio.run(score()) == Invalid(reason="gone", retryable=True)


def test_own_theorems_come_from_rows_or_files(prover: CoqProver, tmp_path: Path) -> None:
    rows = [
        {"statement": "(n : nat) : n + 0 = n"},
        {"statement": "(n : nat) : n < S n", "imports": ["Require Import Lia."]},
    ]
    for split in ("train", "heldout"):
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.v").write_text(
            "(* two *)\nRequire Import Lia.\n\nLemma one (n : nat) : n < S n.\nProof. Admitted.\n"
            "Theorem two :\n  True.\n"
        )
    given = {"mode": "files", "style": "full"}
    from_rows = Coq(**given, train_path=str(tmp_path / "train.jsonl"), heldout_path=str(tmp_path / "heldout.jsonl"))
    from_files = Coq(**given, train_path=str(tmp_path / "train"), heldout_path=str(tmp_path / "heldout"))
    assert from_rows.task("heldout", 1).payload["imports"] == ["Require Import Lia."]
    assert [from_files.task("heldout", at).payload["name"] for at in range(2)] == ["one", "two"]
    assert from_files.place("heldout", 1) == f"{tmp_path / 'heldout' / 'a.v'}:6"
    for family in (from_rows, from_files):
        family.prover.close()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"statement": "(n : nat : n = n"}, "brackets do not match"),
        ({"statement": ": nothing"}, "The reference nothing was not found"),
        ({"statement": 3}, '"statement" must be a text'),
        ({"statement": ": True", "name": "a b"}, '"name" must be letters'),
        ({"statement": ": True", "imports": "Lia"}, '"imports" must be a list'),
        ({"statement": ": True. Axiom x : False"}, "one sentence"),
    ],
)
def test_a_bad_row_is_refused_by_file_and_line(tmp_path: Path, row: dict[str, object], message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"statement": ": True"}) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(DataError, match=f"{path}:2: .*{message}"):
        Coq(mode="files", train_path=str(path), heldout_path=str(path), max_bad_rows=0)


def test_a_file_with_more_than_statements_is_refused(tmp_path: Path) -> None:
    for text, message in (
        ("Axiom x : False.", "a.v:1: 'Axiom x : False.' is neither"),
        ("Lemma a : True", "no full stop"),
    ):
        (tmp_path / "a.v").write_text(text)
        with pytest.raises(DataError, match=message):
            Coq(mode="files", train_path=str(tmp_path), heldout_path=str(tmp_path))


def test_a_tactic_that_is_not_known_cannot_be_allowed() -> None:
    with pytest.raises(ConfigError, match="tactics: 'admit' is not among those that can be allowed"):
        Coq(tactics=["admit"])
    with pytest.raises(ConfigError, match="style='terse' is for mode='generated'"):
        Coq(mode="files", style="terse", train_path="a", heldout_path="a")


def test_coq_that_is_missing_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"environment 'coq' needs the program coqtop, which is missing; install it"):
        Coq()
