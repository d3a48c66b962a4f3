"""Questions that a model proposes: their worth, their flaws, and what solvers see of them."""

from random import Random
from typing import Any

import pytest
from asked_episodes import play_asked, read_parts, speak_as
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.episodes import Ask
from turnwise.core.errors import ConfigError
from turnwise.core.types import Message, Scored, Task
from turnwise.environments.replies import answer_message as say
from turnwise.environments.search_qa.projection import Constant, Project, Projection, evaluate
from turnwise_worlds.proposer.family import SearchProposer
from turnwise_worlds.proposer.pay import FLAWS, MIXED, VALID, Pay, compute_pay
from turnwise_worlds.proposer.policies import read_question
from turnwise_worlds.proposer.search import build_scene, judge, list_chain, propose_text, read_expression

FAMILY = SearchProposer(num_entities=24, num_words=16, solvers=3)
SCENE = build_scene("train", 5, num_entities=24, num_words=16)


def find(num_hops: int, flaw: str | None) -> Projection:
    """The first chain of that many hops in the world with that flaw, or without any."""
    for entity in SCENE.world.entities:
        chains: list[Projection] = [Constant(entity)]
        for _ in range(num_hops):
            chains = [
                Project(relation, chain) for chain in chains for relation in ("author", "mentor", "twin", "mayor")
            ]
        for chain in chains:
            if judge(chain, SCENE) == flaw:
                return chain
    raise AssertionError(f"no chain of {num_hops} hops with {flaw}")


def test_every_flaw_of_a_proposal_has_its_name() -> None:
    good = find(2, None)
    assert len(evaluate(good, SCENE.world)) == 1
    entity, target = next((s, o) for (relation, s), o in SCENE.world.facts.items() if relation == "author")
    twin = next((s, o) for (r, s), o in SCENE.world.facts.items() if r == "twin")
    expected = {
        propose_text(good): None,
        "": "ill_formed",
        "no expression": "ill_formed",
        f"author( [ {entity} ]": "ill_formed",
        f"author [ {entity}": "ill_formed",
        f"colour( [ {entity} ] )": "ill_formed",
        f"twin( [ {entity} ] )": "ill_formed",  # a work has no twin
        "twin( twin( twin( twin( [ Port Vessa ] ) ) ) )": "ill_formed",  # four hops
        "author( [ Nobody Knows ] )": "unsolvable",
        propose_text(find(1, "unsolvable")): "unsolvable",
        f"author^-1( [ {entity} ] )": "unsolvable",
        f"([ {entity} ] | [ {target} ])": "ambiguous",
        f"([ {entity} ] & [ {entity} ])": "ill_formed",  # one answer, and no wording
        f"[ {entity} ]": "trivial",
    }
    assert {text: judge(read_expression(text), SCENE) for text in expected} == expected
    there_and_back = SCENE.world.facts.get(("twin", twin[1])) == twin[0]
    assert judge(read_expression(f"twin( twin( [ {twin[0]} ] ) )"), SCENE) == ("trivial" if there_and_back else None)


@given(st.text(alphabet="authormn()[]&|^-1 ABé\\", max_size=60))
def test_any_text_is_read(text: str) -> None:
    assert judge(read_expression(text), SCENE) in (None, *FLAWS)


def test_deep_nesting_is_a_flaw_and_no_crash() -> None:
    assert judge(read_expression("twin(" * 50_000), SCENE) == "ill_formed"


def test_expressions_and_questions_are_read_as_they_are_written() -> None:
    query = Project("birthplace", Project("author", Constant("Blue Lantern")))
    assert propose_text(query) == "birthplace author [ Blue Lantern ]"
    for text in (propose_text(query), "birthplace(author([Blue Lantern]))", "birthplace( author( [ Blue Lantern ] ) )"):
        assert read_expression(text) == query
    assert list_chain(query) == ("Blue Lantern", ("author", "birthplace"))
    assert read_question("Question: What is the birthplace of the author of Blue Lantern ?\n") == query


def test_solvers_read_the_wording_and_never_the_proposal() -> None:
    task = FAMILY.task("train", 3)
    _, _, said = play_asked(FAMILY.build_environment(task), task, speak_as(FAMILY.policy("oracle"), task, seed=2))
    assert list(said) == ["main", "solver0", "solver1", "solver2"]
    proposal = said["main"][-1].text
    query = read_expression(proposal.removeprefix("<answer> ").removesuffix(" </answer>"))
    for name in ("solver0", "solver1", "solver2"):
        assert read_question(said[name][0].text) == query
        assert not any("[" in message.text for message in said[name])


def play_rates(num_right: int, **arguments: Any) -> tuple[Scored, list[float]]:
    """The proposer's reward and the solvers', where the first `num_right` of three answer right."""
    family = SearchProposer(num_entities=24, num_words=16, solvers=3, **arguments)
    oracle = family.policy("oracle")
    task = next(t for t in (family.task("train", i) for i in range(50)) if _is_answerable(family, t))

    def speak(ask: Ask, messages: list[Message]) -> Message:
        right = ask.conversation == "main" or int(ask.conversation[-1]) < num_right
        return speak_as(oracle, task, seed=0)(ask, messages) if right else say("nobody")

    rewards, _, _ = play_asked(family.build_environment(task), task, speak)
    proposer = rewards["proposer"]
    assert isinstance(proposer, Scored)
    return proposer, [r.total for name, r in rewards.items() if name != "proposer" and isinstance(r, Scored)]


def _is_answerable(family: SearchProposer, task: Task) -> bool:
    rewards, _, _ = play_asked(family.build_environment(task), task, speak_as(family.policy("oracle"), task, seed=0))
    return read_parts(rewards["proposer"])["success"] == 1


@pytest.mark.parametrize(
    ("pay", "pays"),
    [
        ("progress", [0.0, MIXED, MIXED, 0.0]),
        ("learnability", [0.0, 8 / 9, 8 / 9, 0.0]),
        ("difficulty", [1.0, 2 / 3, 1 / 3, 0.0]),
        ("azr", [-0.5, 2 / 3, 1 / 3, -0.5]),
        ("flat", [0.0] * 4),
    ],
)
def test_what_a_proposal_earns(pay: Pay, pays: list[float]) -> None:
    assert [compute_pay(pay, right / 3) for right in range(4)] == pytest.approx(pays)
    proposer, solvers = play_rates(1, pay=pay)
    assert proposer.total == pytest.approx(VALID + pays[1])
    assert solvers == [1.0, 0.0, 0.0]
    parts = read_parts(proposer)
    [kind] = [name for name, value in parts.items() if name.startswith("kind_") and value == 1]
    assert parts[kind.replace("kind_", "solved_")] == pytest.approx(1 / 3)
    assert len([name for name in parts if name.startswith("solved_")]) == 1


def test_a_bad_proposal_earns_nothing_and_nobody_is_asked_to_solve_it() -> None:
    task = FAMILY.task("train", 0)
    rewards, _, said = play_asked(FAMILY.build_environment(task), task, lambda ask, messages: say("what ever"))
    assert list(said) == ["main"]
    flaws: dict[str, float] = {flaw: float(flaw == "ill_formed") for flaw in FLAWS}
    assert read_parts(rewards["proposer"]) == flaws | {"success": 0.0}
    assert [reward.total for reward in rewards.values() if isinstance(reward, Scored)] == [0.0] * 4


def test_a_solver_that_never_answers_fails_alone() -> None:
    task = next(t for t in (FAMILY.task("train", i) for i in range(50)) if _is_answerable(FAMILY, t))
    oracle = speak_as(FAMILY.policy("oracle"), task, seed=0)

    def search(ask: Ask, messages: list[Message]) -> Message:
        if ask.conversation != "solver1":
            return oracle(ask, messages)
        return oracle(ask, messages[:1])

    rewards, _, said = play_asked(FAMILY.build_environment(task), task, search)
    assert sum(message.role == "assistant" for message in said["solver1"]) == 5
    totals = {name: reward.total for name, reward in rewards.items() if isinstance(reward, Scored)}
    assert (totals["solver0"], totals["solver1"], totals["solver2"]) == (1.0, 0.0, 1.0)


def test_a_heldout_task_brings_its_question_to_one_solver() -> None:
    for index, kind in enumerate(("1hop", "2hop", "3hop")):
        task = FAMILY.task("heldout", index)
        assert task.payload["kind"] == kind
        environment = FAMILY.build_environment(task)
        rewards, _, said = play_asked(environment, task, speak_as(FAMILY.policy("oracle"), task, seed=0))
        assert [role.name for role in environment.spec.roles] == ["solver0"]
        assert list(said) == ["main"]
        assert said["main"][0] == task.prompt[0]
        assert read_parts(rewards["solver0"])["success"] == 1.0


def test_what_the_policies_are_worth() -> None:
    def rate(policy: str, kind: int, family: SearchProposer = FAMILY) -> float:
        wins = 0.0
        for index in range(kind, 60, 3):
            task = family.task("heldout", index)
            rewards, _, _ = play_asked(
                family.build_environment(task), task, speak_as(family.policy(policy), task, seed=index)
            )
            wins += read_parts(rewards["solver0"])["success"]
        return wins / 20

    assert [rate("oracle", kind) for kind in range(3)] == [1.0] * 3
    assert rate("naive", 0) > 0.6
    assert rate("naive", 1) < 0.2
    assert rate("naive", 2) < 0.1
    assert rate("random", 1) < 0.2
    # Where the demonstrator goes on it searches for the relation that is left, until it has searched three times.
    wanders = SearchProposer(num_entities=24, num_words=16, naive_wander=1.0)
    assert rate("naive", 0, wanders) == 0.0
    assert rate("naive", 2, wanders) > 0.3


def test_the_prior_is_that_of_the_arguments() -> None:
    family = SearchProposer(num_entities=24, num_words=16, prior={"3hop": 1.0})
    task = family.task("train", 0)
    reply = family.policy("prior").reply(task, task.prompt, Random(0))
    assert len(reply.text.partition("[")[0].split()) == 1 + 3
    with pytest.raises(ConfigError, match=r"prior.4hop=1.0: unknown kind; use 1hop, 2hop, 3hop"):
        SearchProposer(prior={"4hop": 1.0})


def test_splits_share_no_name() -> None:
    names = {split: {word for i in range(0, 40) for word in _names(split, i)} for split in ("train", "heldout")}
    assert not names["train"] & names["heldout"]


def _names(split: Any, index: int) -> set[str]:
    task = FAMILY.task(split, index)
    scene = build_scene(split, task.payload["world"], num_entities=24, num_words=16)
    return set(scene.world.entities)


def test_the_first_training_tasks_bring_questions_where_they_are_those_of_a_warm_up() -> None:
    family = SearchProposer(num_entities=24, num_words=16, given_tasks=8)
    brought = [family.task("train", index).payload.get("kind") for index in range(12)]
    assert brought == [None, "2hop", "3hop", "1hop", None, "3hop", "1hop", "2hop"] + [None] * 4
    assert len(family.texts(30)) == 30
