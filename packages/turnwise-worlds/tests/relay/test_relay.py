"""Divided facts: who hears what, what a team is worth with its channel closed, and what A is rewarded with."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from asked_episodes import play_asked, scored
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.episodes import Ask, EpisodeEnd
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Message, Scored, StopReason, text_message
from turnwise.environments.replies import answer_message as say
from turnwise.rewards.teams import compute_counterfactual_reward, compute_difference_reward
from turnwise_worlds.relay.environment import read_message
from turnwise_worlds.relay.facts import (
    NONE,
    SLOTS_OF_A,
    SLOTS_OF_B,
    Puzzle,
    build_puzzle,
    format_facts,
    parse_facts,
    scramble,
)
from turnwise_worlds.relay.family import Relay

DONE = EpisodeEnd(stop=StopReason.DONE)
Replies = Callable[[Ask], Message]


def play(
    family: Relay, index: int, reply: Replies, *, end: EpisodeEnd = DONE, seed: int = 0
) -> tuple[dict[str, Scored], list[Ask]]:
    """The rewards by role and everything that was asked, on a held-out task; told until `end.conversation` if any."""
    task = family.task("heldout", index)
    environment = family.build_environment(task)
    rewards, asks, _ = play_asked(environment, task, lambda ask, _: reply(ask), seed=seed, end=end)
    assert environment.spec.max_replies is not None
    assert len(asks) <= environment.spec.max_replies
    return scored(rewards), asks


def scripted(family: Relay, name: str, index: int) -> Replies:
    rng, task = Random(index), family.task("heldout", index)
    return lambda ask: family.policy(name).reply(task, ask.messages, rng)


def success(policy: str, count: int = 150, **arguments: Any) -> float:
    family = Relay(**arguments)
    rewards = [play(family, i, scripted(family, policy, i), seed=i)[0] for i in range(count)]
    return sum(reward["b"].total for reward in rewards) / count


def is_answered_right(ask: Ask, puzzle: Puzzle) -> Message:
    """A team of one: the right answer whatever was heard."""
    return say(format_facts(puzzle.answer)) if ask.conversation.startswith("answer") else say(NONE)


@given(st.integers(0, 2**40))
def test_each_side_holds_half_and_the_question_needs_both(seed: int) -> None:
    puzzle = build_puzzle(seed)
    assert sorted(fact[:-2] for fact in puzzle.facts_of_a) == sorted(SLOTS_OF_A)
    assert sorted(fact[:-2] for fact in puzzle.facts_of_b) == sorted(SLOTS_OF_B)
    assert len({*puzzle.question} & {*SLOTS_OF_A}) == len({*puzzle.question} & {*SLOTS_OF_B}) == 1
    assert list(puzzle.answer) == list(puzzle.question)
    assert all(fact.startswith(slot) for slot, fact in puzzle.answer.items())
    assert parse_facts(format_facts(puzzle.answer)) == puzzle.answer


def test_facts_are_read_as_they_are_written() -> None:
    assert parse_facts("red redmo gold none") == {"red": "redmo", "gold": "none"}
    assert parse_facts("so red redmo and red redka then teal") == {"red": "redmo"}
    assert read_message(say(" red   redmo")) == "red redmo"
    assert read_message(text_message("assistant", "red")) == read_message(say("")) == NONE


@given(st.integers(0, 10**6), st.sampled_from(SLOTS_OF_A))
def test_a_scrambled_message_keeps_its_form_and_its_agreement(seed: int, slot: str) -> None:
    words = scramble(f"{slot} {slot}ka", Random(seed)).split()
    assert words[0] in SLOTS_OF_A
    assert words[1][: -len("ka")] == words[0]
    assert scramble("none at all", Random(seed)) == "none at all"


def test_b_asks_a_tells_b_answers_each_in_a_context_of_its_own() -> None:
    family = Relay()
    puzzle = build_puzzle(family.task("heldout", 5).payload["seed"])
    rewards, seen = play(family, 5, scripted(family, "oracle", 5))
    assert [(ask.role, ask.conversation) for ask in seen] == [("b", "ask"), ("a", "tell"), ("b", "answer")]
    asked, told, answered = (ask.messages[0].text for ask in seen)
    missing = next(slot for slot in puzzle.question if slot in SLOTS_OF_A)
    of_a, of_b, question = (" ".join(words) for words in (puzzle.facts_of_a, puzzle.facts_of_b, puzzle.question))
    assert asked == f" facts {of_b} question {question} ask"
    assert told == f" facts {of_a} heard {missing} tell"
    heard = format_facts({missing: puzzle.answer[missing]})
    assert answered == f" facts {of_b} heard {heard} question {question} answer"
    assert rewards["a"].total == rewards["b"].total == rewards["b"].part("success") == 1.0


def test_what_the_policies_and_the_controls_are_worth() -> None:
    assert success("oracle", 100) == 1.0
    assert success("oracle", channel="silent") == 0.0
    # The slot is right one time in four, then the value one time in eight.
    assert success("oracle", channel="scrambled") < 0.1
    # .4 ** 3 that all is right, and .4 * (1 - .4 ** 2) / 4 that B listens and the first fact is the right one: .15
    assert 0.06 < success("naive") < 0.26
    assert success("random") < 0.1


def test_difference_and_counterfactual_rewards_by_hand() -> None:
    assert compute_difference_reward(1.0, 0.25) == 0.75
    assert compute_difference_reward(0.0, 1.0) == -1.0
    assert compute_counterfactual_reward(1.0, [1.0, 0.0, 0.0, 1.0]) == 0.5
    assert compute_counterfactual_reward(0.0, [1.0, 0.0]) == -0.5
    assert compute_counterfactual_reward(1.0, []) == 1.0


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_counterfactual_rewards_of_exchangeable_draws_sum_to_nothing(draws: list[float]) -> None:
    # Each draw in turn as the team's, the others as those drawn again.
    rewards = [compute_counterfactual_reward(draws[i], draws[:i] + draws[i + 1 :]) for i in range(len(draws))]
    assert sum(rewards) == pytest.approx(0.0, abs=1e-9)


def test_the_difference_reward_asks_what_b_would_have_said_had_it_heard_nothing() -> None:
    family = Relay(credit="difference")
    rewards, seen = play(family, 0, scripted(family, "oracle", 0))
    assert (seen[-1].role, seen[-1].conversation) == ("b_again", "answer_again0")
    assert " heard none question" in seen[-1].messages[0].text
    assert seen[-1].messages[0].text.replace("none", "X") != seen[2].messages[0].text
    assert (rewards["a"].total, rewards["b"].total, rewards["b_again"].total) == (1.0, 1.0, 0.0)
    # Where B would be right without A, A gets nothing for it.
    puzzle = build_puzzle(family.task("heldout", 0).payload["seed"])
    rewards, _ = play(family, 0, lambda ask: is_answered_right(ask, puzzle))
    assert (rewards["a"].total, rewards["b"].total) == (0.0, 1.0)


def test_counterfactual_credit_draws_a_s_message_again_and_lets_b_answer_each() -> None:
    family = Relay(credit="counterfactual", resamples=4)
    puzzle = build_puzzle(family.task("heldout", 1).payload["seed"])
    fact = next(fact for fact in puzzle.answer.values() if fact in puzzle.facts_of_a)
    other = next(each for each in puzzle.facts_of_a if each != fact)
    oracle = scripted(family, "oracle", 1)

    def reply(ask: Ask) -> Message:
        """Only the message of the team, and the third that is drawn again, are about what is asked."""
        if ask.conversation.startswith("tell"):
            told = fact if ask.conversation in ("tell", "tell_again2") else other
            return say(f"{told[:-2]} {told}")
        return oracle(ask)

    rewards, seen = play(family, 1, reply)
    names = [ask.conversation for ask in seen]
    again = [f"{step}_again{number}" for step in ("tell", "answer") for number in range(4)]
    assert names == ["ask", "tell", "answer", *again]
    assert {ask.role for ask in seen[3:]} == {"a_again", "b_again"}
    assert len({ask.messages for ask in seen if ask.conversation.startswith("tell")}) == 1
    assert seen[2].messages == seen[names.index("answer_again2")].messages
    assert (rewards["a"].total, rewards["b"].total) == (1 - 1 / 4, 1.0)
    assert rewards["a_again"].total == rewards["b_again"].total == 0.0


def test_a_message_beyond_its_bound_ends_the_episode_without_success() -> None:
    family = Relay(max_message_words=4)
    long, short = say("one two three four five"), say("one two three four")
    rewards, seen = play(family, 0, lambda ask: long)
    assert [ask.conversation for ask in seen] == ["ask"]
    assert (rewards["b"].total, rewards["b"].part("overflow")) == (0.0, 1.0)
    rewards, seen = play(family, 0, lambda ask: long if ask.conversation == "tell" else short)
    assert [ask.conversation for ask in seen] == ["ask", "tell"]
    assert rewards["a"].part("overflow") == 1.0
    assert play(family, 0, lambda ask: short)[0]["a"].part("overflow") == 0.0


def test_what_is_too_long_when_drawn_again_is_a_failure_there_and_not_of_the_team() -> None:
    family = Relay(credit="counterfactual", resamples=2)
    oracle = scripted(family, "oracle", 0)
    long = say("one two three four")
    rewards, seen = play(family, 0, lambda ask: long if ask.conversation == "tell_again0" else oracle(ask))
    assert "answer_again0" not in [ask.conversation for ask in seen]
    assert (rewards["a"].total, rewards["b"].total, rewards["b"].part("overflow")) == (0.5, 1.0, 0.0)
    # The team's own message is too long: what the others would have brought is subtracted all the same.
    rewards, _ = play(family, 0, lambda ask: long if ask.conversation == "tell" else oracle(ask))
    assert (rewards["a"].total, rewards["b"].total, rewards["b"].part("overflow")) == (-1.0, 0.0, 1.0)


def test_a_limit_counts_as_failure_where_it_is_reached() -> None:
    family = Relay(credit="counterfactual", resamples=2)
    oracle = scripted(family, "oracle", 0)

    def cut(conversation: str) -> tuple[float, float]:
        end = EpisodeEnd(stop=StopReason.MAX_TURN_TOKENS, conversation=conversation)
        rewards, _ = play(family, 0, oracle, end=end)
        return rewards["a"].total, rewards["b"].total

    assert cut("answer") == cut("tell") == cut("ask") == (0.0, 0.0)
    # Of two that are drawn again one is cut off before the other is known, or after it.
    assert cut("tell_again0") == (1.0, 1.0)
    assert cut("answer_again1") == (0.5, 1.0)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="channel='shut'"):
        Relay(channel="shut")
    with pytest.raises(ConfigError, match="resamples=0"):
        Relay(resamples=0)

    async def tell(conversation: str) -> None:
        family = Relay()
        task = family.task("train", 0)
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell(conversation, say("red"))

    with pytest.raises(EnvironmentFault, match="'tell', where it had not asked for"):
        asyncio.run(tell("tell"))


def test_splits_share_no_puzzle_and_a_channel_changes_none() -> None:
    train = {Relay().task("train", i).payload["seed"] for i in range(500)}
    assert not train & {Relay().task("heldout", i).payload["seed"] for i in range(500)}
    assert Relay(channel="silent", credit="difference").task("train", 3) == Relay().task("train", 3)
