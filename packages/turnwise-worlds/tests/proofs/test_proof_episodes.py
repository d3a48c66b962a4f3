"""Tactics, episodes, policies, controls and the user's own theorems."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import StepResult
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task, ToolCallError
from turnwise_worlds.proofs.arguments import ProofsArguments
from turnwise_worlds.proofs.environment import ProofsEnvironment
from turnwise_worlds.proofs.family import Proofs
from turnwise_worlds.proofs.kernel.check import check_proof
from turnwise_worlds.proofs.kernel.rules import Refused
from turnwise_worlds.proofs.kinds import KIND_NAMES, make_theorem
from turnwise_worlds.proofs.policies import draw_tactic, follow, read_tactic, tactic_message
from turnwise_worlds.proofs.search import find_script
from turnwise_worlds.proofs.state import ProofState
from turnwise_worlds.proofs.tactics import MAX_TERMS
from turnwise_worlds.proofs.theorem import read_theorem
from turnwise_worlds.proofs.view import View
from turnwise_worlds.proofs.words import Tactic, find_name, format_state, pick_names, refer

LINK = {"hypotheses": [["c", "p > q"], ["a", "p"]], "goal": "q", "script": [["apply", "c"], ["apply", "a"]]}


def run(row: dict, tactics: Sequence[str]) -> ProofState:
    """Apply `word name` tactics to a theorem."""
    state = ProofState.open(read_theorem(row))
    for text in tactics:
        word, _, name = text.partition(" ")
        state = state.apply(Tactic(word, name))
    return state


def show(state: ProofState) -> str:
    goal = state.goals[0]
    return format_state(goal.hypotheses, goal.sequent.conclusion, len(state.goals), "terse")


@pytest.mark.parametrize(
    ("hypotheses", "goal", "tactics", "left"),
    [
        ([["c", "p > q > r"]], "r", ["apply c"], [" p > q > r2 ; |- p", " p > q > r2 ; |- q"]),
        ([["c", "p > q > r"]], "q > r", ["apply c"], [" p > q > r2 ; |- p"]),
        ([], "p > q", ["intro"], [" p0 ; |- q"]),
        ([], "p & q", ["split"], [" |- p", " |- q"]),
        ([], "p | q", ["left"], [" |- p"]),
        ([], "p | q", ["right"], [" |- q"]),
        ([["h", "p & q"]], "r", ["destruct h"], [" p0 ; q1 ; |- r"]),
        ([["h", "p | q"]], "r", ["destruct h"], [" p0 ; |- r", " q1 ; |- r"]),
        ([["h", "F"]], "r", ["destruct h"], []),
        ([], "r", ["exfalso"], [" |- F"]),
        ([], "r", ["contradict"], [" r > F0 ; |- F"]),
        ([["h", "m = n"]], "m * m = n", ["rewrite h"], [" m = n7 ; |- n * n = n"]),
        ([["h", "m = n"]], "m = n * n", ["rewrite_back h"], [" m = n7 ; |- m = m * m"]),
        ([["h", "e * ?x = ?x"]], "( e * m ) * n = n", ["rewrite h"], [" e * ?x = ?x7 ; |- m * n = n"]),
        ([["h", "m = n"]], "m = n", ["apply h"], []),
        ([], "m = m", ["reflexivity"], []),
    ],
)
def test_what_a_tactic_leaves(hypotheses: list, goal: str, tactics: list[str], left: list[str]) -> None:
    state = run({"hypotheses": hypotheses, "goal": goal, "classical": True}, tactics)
    shown = [format_state(each.hypotheses, each.sequent.conclusion, 1, "terse") for each in state.goals]
    assert shown == left


@pytest.mark.parametrize(
    ("row", "tactic", "why"),
    [
        (LINK, "apply a", "a does not end in the goal"),
        (LINK, "apply x", "there is no x"),
        (LINK, "intro", "the goal is no implication"),
        (LINK, "destruct c", "c cannot be taken apart"),
        (LINK, "contradict", "contradict is not allowed in intuitionistic logic"),
        (LINK, "rewrite c", "c is no equation"),
        (LINK, "auto", "there is no tactic auto"),
        ({"goal": "False"}, "exfalso", "the goal is false already"),
        ({"goal": "m = n"}, "reflexivity", "the sides differ"),
        ({"hypotheses": [["h", "?x = e * ?x"]], "goal": "m = m"}, "rewrite_back h", "nothing that h is about"),
        ({"hypotheses": [["h", "e = ?x * inv ?x"]], "goal": "e = e"}, "rewrite h", "does not say what to put in"),
    ],
)
def test_why_a_tactic_is_refused(row: dict, tactic: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        run(row, [tactic])


def test_a_hypothesis_is_called_by_its_last_word_and_a_number() -> None:
    said = [("a", "p"), ("b", "q > p"), ("k", "( p & q )"), ("e", "F"), ("unit", "e * ?x = ?x"), ("c", "x = 0")]
    called = ["p0", "p1", ")10", "F4", "?xunit", "0h2"]  # 0 and 2 apart, or it would be 02
    assert [refer(name, text) for name, text in said] == called
    assert [find_name(each, said) for each in called] == [name for name, _ in said]
    # A name calls itself; another number, or another word before it, calls nothing.
    assert [find_name(each, said) for each in ("k", "p2", "q1")] == ["k", "p2", "q1"]


def test_shuffled_names_call_another_hypothesis_or_none() -> None:
    theorem = read_theorem(LINK)
    state = ProofState.open(theorem)
    own, shuffled = (View.of(theorem, ProofsArguments(shown=shown)) for shown in ("own", "shuffled"))
    for name in ("a", "c"):
        assert own.read(state, Tactic("apply", own.call(state, name))) == Tactic("apply", name)
        assert shuffled.read(state, Tactic("apply", shuffled.call(state, name))) != Tactic("apply", name)


def test_a_term_that_is_rewritten_for_ever_stays_small() -> None:
    with pytest.raises(Refused, match="the goal gets too long"):
        run({"hypotheses": [["h", "m = m * m"]], "goal": "m = n"}, ["rewrite h"] * MAX_TERMS)


def test_names_of_new_hypotheses_are_free() -> None:
    assert pick_names("abc", ["a"], 2) == ("b", "c")
    assert pick_names("ab", ["a", "a1"], 3) == ("b", "a2", "a3")


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_whatever_random_tactics_prove_the_kernel_accepts(kind: str) -> None:
    random = Random(kind)
    for seed in range(6):
        state = ProofState.open(make_theorem(kind, Random(seed)))
        theorem = state.theorem
        view = View.of(theorem, ProofsArguments(style="full"))
        for _ in range(12):
            if not state.goals:
                break
            known = find_script(state.goals[0], theorem.names, classical=theorem.classical)
            tactic = known[0] if known and random.random() < 0.5 else draw_tactic(view, state, random)
            try:
                state = state.apply(tactic)
            except Refused:
                continue
        proof = state.build_proof()
        if proof is not None:
            check_proof(theorem.sequent, proof, classical=theorem.classical)


def test_the_search_finds_scripts_that_are_no_longer_than_those_that_came_along() -> None:
    for kind in ("chain3", "split", "cases", "either", "curry", "uncurry", "absurd", "dead_end", "contra", "equations"):
        for seed in range(8):
            theorem = make_theorem(kind, Random(seed))
            state = ProofState.open(theorem)
            found = find_script(state.goals[0], theorem.names, classical=theorem.classical)
            assert found is not None
            assert len(found) <= len(theorem.script)
    unprovable = ProofState.open(read_theorem({"hypotheses": [["c", "( p > q ) > p"]], "goal": "p"}))
    assert find_script(unprovable.goals[0], ("a", "b"), classical=False) is None


def play(environment: ProofsEnvironment, task: Task, replies: Sequence[Message]) -> tuple[list[StepResult], Reward]:
    """Reset, step until it is done, and score."""

    async def go() -> tuple[list[StepResult], Reward]:
        await environment.reset(task, 0)
        results: list[StepResult] = []
        for reply in replies:
            results.append(await environment.step(reply))
            if results[-1].done:
                break
        return results, await environment.score(replies, StopReason.DONE)

    return asyncio.run(go())


def build(**changes: object) -> tuple[Proofs, Task]:
    family = Proofs(kinds={"chain2": 1.0}, **changes)
    return family, family.task("train", 0)


def call(*texts: str) -> list[Message]:
    tactics = [Tactic(*text.split(" ")) for text in texts]
    return [tactic_message(number, tactic) for number, tactic in enumerate(tactics)]


def own_task(row: dict) -> Task:
    _, task = build()
    return Task(environment="proofs", prompt=task.prompt, payload={"kind": "own", **read_theorem(row).to_json()})


def test_an_episode_shows_what_is_left_and_rewards_the_whole_proof() -> None:
    family, _ = build()
    task = own_task(LINK)
    results, reward = play(family.build_environment(task), task, call("apply a", "apply c", "apply a"))
    assert [[each.text for each in result.observations] for result in results] == [
        [" no p > q2 ; p0 ; |- q"],
        [" p > q2 ; p0 ; |- p"],
        [],
    ]
    assert isinstance(reward, Scored)
    assert reward.total == 1
    # Three calls, one of them refused, for a script of two.
    assert {part.name: part.value for part in reward.parts} == {
        "success": 1,
        "calls": 3,
        "wrong": 1,
        "length_ratio": 1.5,
    }
    assert [record.error is not None for result in results for record in result.tool_records] == [True, False, False]


def test_wrong_tactics_use_up_the_calls() -> None:
    family, _ = build(slack=1)
    task = own_task(LINK)
    results, reward = play(family.build_environment(task), task, call("intro", "intro", "apply c", "apply a"))
    assert [result.done for result in results] == [False, False, True]  # two tactics and one more
    assert isinstance(reward, Scored)
    assert reward.total == 0


def test_malformed_replies_and_unknown_tools_use_up_calls_too() -> None:
    family, _ = build(slack=1)
    task = own_task(LINK)
    bad = Message(
        role="assistant", content=(), tool_errors=(ToolCallError(kind="no_action", raw="x", message="no call"),)
    )
    [good] = call("split")
    unknown = replace(good, tool_calls=(replace(good.tool_calls[0], name="auto"),))
    results, reward = play(family.build_environment(task), task, [bad, unknown, *call("apply c", "apply a")])
    assert results[0].observations[0].text == " no p > q2 ; p0 ; |- q"
    assert [result.done for result in results] == [False, False, True]
    assert isinstance(reward, Scored)
    assert reward.total == 0


def test_a_finished_proof_that_the_kernel_refuses_is_invalid() -> None:
    """A fault planted in the state: the proof of another theorem."""
    family, _ = build()
    task = own_task(LINK)
    environment = family.build_environment(task)
    environment._theorem = read_theorem({"hypotheses": [["c", "p > q"], ["a", "p"]], "goal": "p & q"})
    _, reward = play(environment, task, call("apply c", "apply a"))
    assert isinstance(reward, Invalid)
    assert reward.reason.startswith("the kernel refuses a finished proof")


def test_forks_share_nothing_and_equal_states_have_equal_hashes() -> None:
    family, _ = build()
    task = own_task(LINK)

    async def go() -> None:
        one = family.build_environment(task)
        await one.reset(task, 0)
        start = one.state_hash()
        other = await one.fork()
        assert other.state_hash() == start
        [wrong], [right] = call("intro"), call("apply c")
        await one.step(wrong)
        assert other.state_hash() == start
        assert one.state_hash() != start  # the goal is the same, and there is one call less
        await other.step(wrong)
        assert other.state_hash() == one.state_hash()
        await other.step(right)
        assert other.state_hash() != one.state_hash()
        await other.step(call("apply a")[0])
        assert (await other.score([], StopReason.DONE)).total == 1  # type: ignore[union-attr]
        assert (await one.score([], StopReason.DONE)).total == 0  # type: ignore[union-attr]

    asyncio.run(go())


def test_controls_show_nothing_or_names_that_are_not_theirs() -> None:
    family, task = build()
    own = family.build_environment(task)
    hidden = Proofs(kinds={"chain2": 1.0}, shown="hidden")
    shuffled = Proofs(kinds={"chain2": 1.0}, shown="shuffled")
    assert hidden.task("train", 0) == task == shuffled.task("train", 0)

    async def opening(environment: ProofsEnvironment) -> str:
        return (await environment.reset(task, 0)).messages[0].text

    shown = asyncio.run(opening(own)).split()
    assert asyncio.run(opening(hidden.build_environment(task))) == " ?"
    other = asyncio.run(opening(shuffled.build_environment(task))).split()
    names = [index for index, word in enumerate(shown) if index + 1 < len(shown) and shown[index + 1] == ";"]
    assert all(shown[index] != other[index] for index in names)
    assert [word for index, word in enumerate(shown) if index not in names] == [
        word for index, word in enumerate(other) if index not in names
    ]


def test_the_full_style_explains_and_says_why_a_tactic_is_refused() -> None:
    family, _ = build(style="full")
    task = own_task({**LINK, "goal": "q & q", "script": []})
    environment = family.build_environment(task)

    async def go() -> list[str]:
        opening = await environment.reset(task, 0)
        results = [await environment.step(reply) for reply in call("apply a", "split")]
        return [opening.messages[0].text, *(result.observations[0].text for result in results)]

    opened, refused, split = asyncio.run(go())
    assert opened.endswith("You have 16 calls.\n\nc : p -> q\na : p\n|- q /\\ q")
    assert refused.startswith(" no: a does not end in the goal\nc : p -> q")
    assert split.endswith("|- q (2 goals)")


def test_the_naive_prover_calls_what_applies_and_gives_up_where_nothing_does() -> None:
    family = Proofs(kinds={"either": 1.0}, naive_skill=0.0)
    naive, task = family.policy("naive"), own_task({"hypotheses": [["c", "p > q"], ["d", "r > q"]], "goal": "q"})
    seen = {naive.reply(task, task.prompt, Random(seed)).tool_calls[0].arguments for seed in range(20)}
    assert seen == {'{"name": "q2"}', '{"name": "q3"}'}
    stuck = naive.reply(task, [*task.prompt, *call("apply c")], Random(0))
    assert not stuck.tool_calls
    assert "stuck" in stuck.text


def test_no_theorem_is_in_both_splits() -> None:
    family = Proofs(kinds={"absurd": 1.0})
    texts = [{family.task(split, index).prompt[0].text for index in range(300)} for split in ("train", "heldout")]
    assert not texts[0] & texts[1]


def test_calls_that_are_no_tactics_are_passed_over() -> None:
    [message] = call("apply c")
    [good] = message.tool_calls
    assert read_tactic(good) == Tactic("apply", "c")
    for arguments in ("{", "[]", '{"name": 3}'):
        assert read_tactic(replace(good, arguments=arguments)) is None
    theorem = read_theorem(LINK)
    view = View.of(theorem, ProofsArguments())
    for name in ("c", "q2"):
        state, applied = follow(view, ProofState.open(theorem), call("intro", f"apply {name}"))
        assert applied == [Tactic("apply", "c")]
        assert show(state) == " p > q2 ; p0 ; |- p"


def write_rows(folder: Path, *rows: object) -> Path:
    path = folder / "theorems.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_the_users_own_theorems(tmp_path: Path) -> None:
    rows = [
        LINK,
        {"goal": "~ ~ p -> p", "classical": True},
        {"hypotheses": [["unit", "e * ?x = ?x"]], "goal": "e * m = m"},
    ]
    path = str(write_rows(tmp_path, *rows))
    family = Proofs(mode="files", train_path=path, heldout_path=path)
    goals = [family.task("heldout", index).payload["goal"] for index in range(3)]
    assert goals == ["q", "( ( p > F ) > F ) > p", "e * m = m"]
    oracle = family.policy("oracle")
    for index in range(3):
        task = family.task("heldout", index)
        environment, messages = family.build_environment(task), list(task.prompt)

        async def go(environment=environment, task=task, messages=messages) -> Reward:
            await environment.reset(task, 0)
            for _ in range(8):
                messages.append(oracle.reply(task, messages, Random(0)))
                result = await environment.step(messages[-1])
                if result.done:
                    break
                messages.extend(result.observations)
            return await environment.score([], StopReason.DONE)

        reward = asyncio.run(go())
        assert isinstance(reward, Scored)
        assert reward.total == 1
    with pytest.raises(IndexError):
        family.task("heldout", 3)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({}, '"goal" must be a formula'),
        ({"goal": "p >"}, "formula 'p >': the end at symbol 3 where a word is expected"),
        ({"goal": "p" + " & p" * 200}, "a formula has 401 symbols; use at most 200"),
        ({"goal": "p", "hypotheses": {"a": "p"}}, '"hypotheses" must be a list of pairs'),
        ({"goal": "p", "hypotheses": [["a", "p"], ["a", "q"]]}, "two hypotheses have one name"),
        ({"goal": "p", "hypotheses": [["a b", "p"]]}, "'a b' is no name for a hypothesis"),
        ({"goal": "p", "hypotheses": [["a", "m = n"]]}, "a theorem is about propositions or about equations"),
        ({"goal": "p > m = n"}, "a theorem is about propositions or about equations"),
        ({"goal": "?x = ?x"}, "only a hypothesis that is an equation may have variables"),
        ({"goal": "p", "classical": "yes"}, '"classical" must be true or false'),
        ({"goal": "p", "names": []}, '"names" must be a list of words'),
        ({"goal": "p", "script": [["auto", ""]]}, "'auto' is no tactic; use one of intro, apply"),
        ({"goal": "p", "script": ["intro"]}, '"script" must be a list of pairs'),
    ],
)
def test_a_bad_row_is_refused_by_file_and_line(tmp_path: Path, row: dict, problem: str) -> None:
    path = write_rows(tmp_path, LINK, row)
    with pytest.raises(DataError) as raised:
        Proofs(mode="files", train_path=str(path), heldout_path=str(path))
    assert str(raised.value).startswith(f"{path}:2: {problem}")


def test_arguments_of_the_other_mode_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^train_path='x' has no effect in mode='generated'"):
        Proofs(train_path="x")
    with pytest.raises(ConfigError, match=r"^kinds.magic=1: unknown kind"):
        Proofs(kinds={"magic": 1})
    with pytest.raises(ConfigError, match=r"^train_path=''"):
        Proofs(mode="files")
