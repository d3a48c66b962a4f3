"""The family `research` on generated worlds: policies, attacks, controls, long episodes, memory."""

import asyncio
from typing import Any

import pytest

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.types import ConversationOpening, Message, Scored, ToolRecord, Turn, text_message
from turnwise.environments.episodes import Played, play_episode
from turnwise.testing import make_trajectory, make_turn
from turnwise_rewards.grounding.world.pages import order_rank
from turnwise_synthesis.research.desk import list_notes, list_sections
from turnwise_synthesis.research.episodes.led import to_call
from turnwise_synthesis.research.family import build_family
from turnwise_synthesis.research.outline import read_outline
from turnwise_synthesis.research.world.attackers import ATTACKS
from turnwise_synthesis.research.world.family import WorldResearch

SMALL: dict[str, Any] = {"num_entities": 20, "num_words": 12, "tasks_per_world": 4, "max_sections": 3}
TERSE: dict[str, Any] = {"style": "terse"}
FULL: dict[str, Any] = {"style": "full", "window_words": 150, "max_contexts": 30}
SHARED: dict[str, WorldResearch] = {}


def family_of(**more: Any) -> WorldResearch:
    """Families of equal arguments share their worlds."""
    return SHARED.setdefault(repr(more), WorldResearch(**{**SMALL, **more}))


def play(policy: str, count: int = 4, **more: Any) -> list[Played]:
    family = family_of(**more)

    async def play_all() -> list[Played]:
        return [
            await play_episode(family, family.task("heldout", index), family.policy(policy), seed=index, max_turns=100)
            for index in range(count)
        ]

    return asyncio.run(play_all())


def rewards(policy: str, count: int = 4, **more: Any) -> list[Scored]:
    scored = [played.reward for played in play(policy, count, **more)]
    assert all(isinstance(reward, Scored) for reward in scored)
    return [reward for reward in scored if isinstance(reward, Scored)]


def records_of(played: Played) -> list[ToolRecord]:
    """All calls of an episode; in the style "terse" notes and sections are replies."""
    records: list[ToolRecord] = []
    headings = iter(section.heading for section in read_outline(played.task).sections)
    for ask, reply, result in zip(played.asks, played.replies, played.results, strict=True):
        records += result.tool_records
        if ask.conversation.startswith(("fact", "section")) and not reply.tool_calls:
            heading = next(headings) if ask.conversation.startswith("section") else None
            call = to_call(ask.conversation, reply, heading)
            records.append(ToolRecord(call=call, observation="", error=None, seconds=0.0))
    return records


@pytest.mark.parametrize("style", [TERSE, FULL, {**FULL, "window_words": 500, "show": "title", "top_k": 8}])
@pytest.mark.parametrize("rule", ["later", "trusted", "either"])
def test_the_oracle_earns_everything(style: dict[str, Any], rule: str) -> None:
    assert [reward.total for reward in rewards("oracle", 3, rule=rule, **style)] == [pytest.approx(1.0)] * 3


@pytest.mark.parametrize("style", [TERSE, FULL])
def test_careless_and_random_policies_earn_little(style: dict[str, Any]) -> None:
    naive = rewards("naive", 12, **style)
    assert 0.0 < sum(reward.total for reward in naive) / 12 < 0.35
    assert all(reward.part("unsupported_claims") for reward in naive)
    assert sum(reward.total for reward in rewards("random", 8, **style)) / 8 < 0.05


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("style", [TERSE, FULL])
def test_no_attack_earns_anything_and_each_is_counted(attack: str, style: dict[str, Any]) -> None:
    attacked = rewards(attack, 3, **style)
    assert all(reward.total <= 0 for reward in attacked), [reward.total for reward in attacked]
    assert all((reward.part(ATTACKS[attack].count) or 0) > 0 for reward in attacked)


@pytest.mark.parametrize("style", [TERSE, FULL])
@pytest.mark.parametrize(
    "control", [{"search": "off"}, {"search": "shuffled"}, {"citations": "shuffled"}, {"memory": "erased"}]
)
def test_controls_leave_next_to_nothing(style: dict[str, Any], control: dict[str, Any]) -> None:
    left = sum(reward.total for reward in rewards("oracle", 3, **{**style, **control}))
    assert left <= 0.2
    if control == {"search": "off"}:
        assert all(reward.part("no_sources") == 1 for reward in rewards("oracle", 1, **{**style, **control}))


def test_a_long_episode_has_thirty_calls_and_lives_on_its_notes() -> None:
    long = {"min_sections": 6, "max_sections": 6, "num_entities": 40}
    for style in (TERSE, FULL):
        [played] = play("oracle", 1, **{**style, **long})
        assert len(records_of(played)) >= 30
        assert len({ask.conversation for ask in played.asks}) >= 10  # contexts
        assert played.reward.total == pytest.approx(1.0)  # type: ignore[union-attr]
        sections = list_sections(records_of(played))
        notes = list_notes(records_of(played))
        assert len(sections) == 6
        assert all(line.strip() in notes for text in sections.values() for line in text.splitlines())


def test_the_rule_decides_which_page_is_right() -> None:
    family = family_of(rule="either", contradictions=1.0)
    seen = set()
    for number in range(6):
        task = family.task("train", 4 * number)
        rule, library = task.payload["rule"], family.library(task)
        seen.add(rule)
        for fact, value in library.truth.items():
            pages = [page for page in library.pages if page.fact == fact]
            assert max(pages, key=lambda page: order_rank(page.rank, rule)).value == value
    assert seen == {"later", "trusted"}


def test_empty_notes_and_wrong_calls_are_failed_calls() -> None:
    class Mute:
        def reply(self, task: Any, messages: Any, rng: Any) -> Message:
            return text_message("assistant", "<answer> </answer>")

    family = family_of(**TERSE)

    async def run() -> Played:
        return await play_episode(family, family.task("heldout", 0), Mute(), seed=0, max_turns=10)

    played = asyncio.run(run())
    assert isinstance(played.reward, Scored)
    assert played.reward.total == 0
    assert played.reward.part("failed") == played.reward.part("calls") == len(records_of(played)) > 4
    assert not any(result.tool_records for result in played.results)  # no reply has a call
    assert played.reward.part("no_claims") == played.reward.part("no_sources") == 1


def test_a_readers_question_becomes_an_outline_or_an_error_that_says_what_can_be_asked() -> None:
    family = family_of(**TERSE)
    fact, other = list(family.library(family.task("heldout", 0)).truth)[:2]
    task = family.ask(f"What is the {fact[0]} of {fact[1]}?".removeprefix("What is "), 0)
    assert task.payload["sections"] == [{"heading": fact[1], "asked": [list(fact)]}]
    both = family.ask(f"{fact[0]} of {fact[1].lower()} ; {other[1]}", 0)
    assert [*fact] in both.payload["sections"][0]["asked"]
    with pytest.raises(DataError, match="no page of this world states 'Blue Moon'; ask about its subjects"):
        family.ask("Blue Moon", 0)
    with pytest.raises(DataError, match="names nothing"):
        family.ask(" ; ", 0)


def test_arguments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="min_sections=9 is above max_sections=5"):
        build_family(min_sections=9)
    with pytest.raises(ConfigError, match="has no effect in mode='terse'"):
        build_family(style="terse", show="title")
    with pytest.raises(ConfigError, match="mode='web' is not a mode of research"):
        build_family(mode="web")
    with pytest.raises(ConfigError, match="corpus_path"):
        build_family(corpus_path="x")


def test_tasks_are_repeatable_and_splits_share_no_names() -> None:
    first, second = WorldResearch(**SMALL), WorldResearch(**SMALL)
    assert [first.task("train", 5)] == [second.task("train", 5)]
    named = {
        split: {page.fact[1] for at in range(0, 24, 4) for page in first.library(first.task(split, at)).pages}
        for split in ("train", "heldout")
    }
    assert not named["train"] & named["heldout"]
    assert len(first.texts(20)) == 20


def test_a_stored_episode_gives_the_desks_records_again() -> None:
    family = family_of(**TERSE)
    [played] = play("naive", 1, **TERSE)
    turns: list[Turn] = []
    last: dict[str, int] = {}
    openings: list[ConversationOpening] = []
    for ask, reply, result in zip(played.asks, played.replies, played.results, strict=True):
        if ask.conversation not in last:
            openings.append(ConversationOpening(name=ask.conversation, messages=ask.messages))
        fields: dict[str, Any] = {"message": reply, "tool_records": result.tool_records}
        turns.append(make_turn([1], [2], parent=last.get(ask.conversation), **fields))
        last[ask.conversation] = len(turns) - 1
    trajectory = make_trajectory(*turns, conversations=tuple(openings))
    records = family.records(played.task, trajectory)
    assert [(each.call.name, each.call.arguments) for each in records] == [
        (each.call.name, each.call.arguments) for each in records_of(played)
    ]
    assert isinstance(played.reward, Scored)
    assert family.check(played.task, records).parts()["covered"] == played.reward.part("covered")
    assert len(records) == played.reward.part("calls")
