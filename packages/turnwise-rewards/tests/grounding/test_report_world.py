"""The family `report`: pages that contradict each other, an exact checker, policies, controls and attackers."""

import asyncio
from typing import Any

import pytest
from family_sections import check_defaults

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.types import Scored
from turnwise.environments.episodes import Played, play_episode
from turnwise_rewards.grounding.claims import Claim, read_claims
from turnwise_rewards.grounding.family import Report
from turnwise_rewards.grounding.ledger import Support
from turnwise_rewards.grounding.passages import Passage
from turnwise_rewards.grounding.world.arguments import ReportArguments
from turnwise_rewards.grounding.world.attackers import ATTACKS, Attacker
from turnwise_rewards.grounding.world.pages import SOURCES, read_page
from turnwise_rewards.grounding.world.reports import asked_facts, check_claim, read_line, write_line, write_report

SMALL: dict[str, Any] = {"num_entities": 24, "num_words": 12, "num_years": 10, "top_k": 2, "tasks_per_world": 8}
SHARED: dict[str, Report] = {}


def family_of(**more: Any) -> Report:
    """Families of equal arguments share their worlds."""
    return SHARED.setdefault(repr(more), Report(**{**SMALL, **more}))


def play(policy: str | ScriptedPolicy, count: int = 16, **more: Any) -> list[Played]:
    family = family_of(**more)

    speaker = family.policy(policy) if isinstance(policy, str) else policy

    async def play_all() -> list[Played]:
        return [
            await play_episode(family, family.task("heldout", index), speaker, seed=index, max_turns=24)
            for index in range(count)
        ]

    return asyncio.run(play_all())


def rewards(policy: str | ScriptedPolicy, **more: Any) -> list[Scored]:
    scored = [played.reward for played in play(policy, **more)]
    return [reward for reward in scored if isinstance(reward, Scored)]


def mean_of(part: str, policy: str, **more: Any) -> float:
    values = [
        reward.total if part == "reward" else value
        for reward in rewards(policy, **more)
        if (value := reward.part(part)) is not None or part == "reward"
    ]
    return sum(value for value in values if value is not None) / len(values)


def test_the_best_page_of_every_fact_is_the_truth() -> None:
    family = family_of()
    libraries = [family.library(family.task("train", 8 * number)) for number in range(40)]
    facts = disputed = same_year = 0
    for library in libraries:
        assert [page.id for page in library.pages] == [str(n) for n in range(1, len(library.pages) + 1)]
        for fact, value in library.truth.items():
            pages = [page for page in library.pages if page.fact == fact]
            assert max(pages, key=lambda page: page.rank).value == value
            assert len({page.rank for page in pages}) == len(pages)  # one of them is better
            assert (len(pages) == 2) == (fact in library.disputed)
            facts, disputed = facts + 1, disputed + (len(pages) == 2)
            same_year += len(pages) == 2 and len({page.year for page in pages}) == 1
        for page in library.pages:
            assert read_page(page.text) == (page.rank, page.fact, page.value)
    assert 0.17 < disputed / facts < 0.23
    assert 0.18 < same_year / disputed < 0.32


def test_a_page_entails_what_it_states_unless_a_better_one_overrules_it() -> None:
    fact, truth = ("author", "Blue Lantern"), {("author", "Blue Lantern"): "Mira Tolen"}
    old = Passage(id="1", texts=("1970 rumour : The author of Blue Lantern is Orin Vale",))
    new = Passage(id="2", texts=("1971 rumour : The author of Blue Lantern is Mira Tolen",))
    other = Passage(id="3", texts=("1971 rumour : The author of Blue Lanterns is Mira Tolen",))
    right, wrong = (Claim(text=write_line(fact, name, []), citations=()) for name in ("Mira Tolen", "Orin Vale"))
    assert check_claim(right, new, truth) is Support.YES
    assert check_claim(right, old, truth) is Support.NO
    assert check_claim(wrong, old, truth) is Support.NO  # it says so, and is overruled
    assert check_claim(right, other, truth) is Support.NOT_SUPPORTED
    assert check_claim(Claim(text="Mira Tolen", citations=()), new, truth) is Support.NOT_SUPPORTED
    assert read_page("The author of Blue Lantern is Mira Tolen") is None
    assert read_page("1971 diary : The author of Blue Lantern is Mira Tolen") is None
    assert "diary" not in SOURCES


def test_lines_are_read_in_the_spellings_of_citations() -> None:
    fact = ("author", "Blue Lantern")
    line = write_line(fact, "Mira Tolen", ["17"])
    assert line == "author of Blue Lantern : Mira Tolen [doc 17]"
    for spelt in (line, "- claim: author of Blue Lantern = Mira Tolen (source: doc 17)", line.replace("doc ", "")):
        [claim] = read_claims(spelt)
        assert (read_line(claim.text), claim.citations) == ((fact, "Mira Tolen"), ("17",))


def test_what_the_policies_are_worth() -> None:
    assert mean_of("success", "oracle") == mean_of("reward", "oracle") == 1.0
    naive = mean_of("citation_precision", "naive", count=60)
    assert 0.1 < naive < 0.35
    assert mean_of("answered", "naive") > 0.8
    assert mean_of("reward", "random") < 0.1
    assert mean_of("success", "oracle", show="title") == 1.0


@pytest.mark.parametrize("search", ["off", "shuffled"])
def test_controls_leave_nothing_to_cite(search: str) -> None:
    assert [reward.total for reward in rewards("oracle", search=search)] == [0.0] * 16
    assert mean_of("recall", "naive", search=search) == 0.0


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("contradictions", [0.2, 1.0])
def test_no_attack_earns_more_than_the_honest_report(attack: str, contradictions: float) -> None:
    """The attackers see the pages of the oracle's searches, and change its report."""
    honest = rewards("oracle", count=6, contradictions=contradictions)
    attacked = rewards(attack, count=6, contradictions=contradictions)
    assert all(after.total <= before.total for before, after in zip(honest, attacked, strict=True))
    assert sum(reward.total for reward in attacked) < sum(reward.total for reward in honest)
    if "fabricate" in attack:
        assert min(reward.part("fabricated") or 0 for reward in attacked) >= 1


@pytest.mark.parametrize("attack", ["cite_everything", "cite_in_one_bracket", "repeat_claims", "repeat_citations"])
def test_padding_does_not_pay_for_a_report_that_cites_badly(attack: str) -> None:
    """Where nobody knows which page says what, citing all of them would be found first."""
    family = family_of()
    naive = family.policy("naive")
    careless = sum(reward.total for reward in rewards("naive", count=30))
    padded = sum(reward.total for reward in rewards(Attacker(naive, ATTACKS[attack]), count=30))
    assert padded < careless


def test_the_reward_follows_from_the_records() -> None:
    [played] = play("oracle", count=1)
    assert isinstance(played.reward, Scored)
    tools = [message for message in played.messages if message.role == "tool"]
    assert len(tools) == len(played.task.payload["asked"])
    assert 3 <= len(tools) <= 5
    library = family_of().library(played.task)
    ids = {(page.fact, page.value): page.id for page in library.pages}
    facts = [(fact, library.truth[fact]) for fact in asked_facts(played.task)]
    report = write_report([write_line(fact, value, [ids[fact, value]]) for fact, value in facts])
    assert played.replies[-1].text == f"<answer> {report} </answer>"
    disputed = play("oracle", count=4, contradictions=1.0)
    assert all(isinstance(each.reward, Scored) and each.reward.part("resolved") == 1.0 for each in disputed)
    plain = play("oracle", count=4, contradictions=0.0)
    assert all(isinstance(each.reward, Scored) and each.reward.part("resolved") is None for each in plain)


def test_every_argument_may_be_given_as_its_default() -> None:
    check_defaults("turnwise_rewards.grounding.family:Report", ReportArguments)


def test_wrong_arguments_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="min_claims=6 is above max_claims=5"):
        Report(min_claims=6)
    with pytest.raises(ConfigError, match=r"weights\.recal"):
        Report(weights={"recal": 1})
