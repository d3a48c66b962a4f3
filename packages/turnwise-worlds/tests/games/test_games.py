"""Games as episodes: who is asked what, what bad input is worth, tasks, scripted players."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from asked_episodes import play_asked, scored, speak_as

from turnwise.core.episodes import Ask, EpisodeEnd
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.types import Message, Scored, StopReason, Task, text_message
from turnwise.environments.replies import answer_message
from turnwise_worlds.games.environment import ROLES
from turnwise_worlds.games.family import Games

DONE = EpisodeEnd(stop=StopReason.DONE)


def play(
    family: Games, task: Task, players: Mapping[str, ScriptedPolicy], *, seed: int = 0
) -> tuple[list[Scored], list[Ask]]:
    """Rewards of both players, and everything that was asked."""
    rewards, asks, _ = play_asked(family.build_environment(task), task, speak_as(players, task, seed=seed))
    return [scored(rewards)[role] for role in ROLES], asks


def _scored(reward: Any) -> Scored:
    assert isinstance(reward, Scored)
    return reward


def both(player: ScriptedPolicy) -> dict[str, ScriptedPolicy]:
    return dict.fromkeys(ROLES, player)


def kuhn_task(cards: str) -> tuple[Games, Task]:
    """The task that deals these cards."""
    family = Games(game="kuhn")
    deals = [state.cards for state in family.game.deals()]
    tasks = [family.task("train", index) for index in range(6)]
    return family, next(task for task in tasks if deals[task.payload["deal"]] == tuple(cards))


def say(game: Games, task: Task, *replies: str | Message, end: EpisodeEnd = DONE) -> list[Scored]:
    """Rewards after these replies."""

    async def run() -> list[Scored]:
        environment = game.build_environment(task)
        asked = await environment.begin(task, 0)
        for reply in replies:
            message = answer_message(reply) if isinstance(reply, str) else reply
            asked = await environment.tell(asked.asks[0].conversation, message)
        rewards = await environment.score({}, end)
        return [_scored(rewards[role]) for role in ROLES]

    return asyncio.run(run())


class Saying:
    """Makes the moves of a list."""

    def __init__(self, *moves: str) -> None:
        self._moves = list(moves)

    def reply(self, task: Task, messages: Any, rng: Random) -> Message:
        return answer_message(self._moves.pop(0))


def test_every_move_is_a_context_of_its_own_with_what_its_player_knows() -> None:
    family, task = kuhn_task("JK")
    rewards, seen = play(family, task, both(Saying("check", "bet", "call")))
    assert [(ask.role, ask.conversation) for ask in seen] == [
        ("player0", "player0/0"),
        ("player1", "player1/1"),
        ("player0", "player0/2"),
    ]
    assert [ask.messages[0].text for ask in seen] == [
        " kuhn player0 card J said moves check bet",
        " kuhn player1 card K said check moves check bet",
        " kuhn player0 card J said check bet moves fold call",
    ]
    assert task.prompt == seen[0].messages
    assert [reward.total for reward in rewards] == [-2.0, 2.0]
    assert [reward.part("success") for reward in rewards] == [0.0, 1.0]


@pytest.mark.parametrize(
    "reply",
    [
        text_message("assistant", ""),
        text_message("assistant", "call"),
        text_message("assistant", "<answer> raise </answer>"),
        text_message("assistant", "<answer> check </answer>"),
        text_message("assistant", "<answer> Call </answer>"),
        text_message("assistant", "<answer> fold call </answer>"),
        text_message("assistant", "<answer> call"),
    ],
)
@pytest.mark.parametrize("cards", ["JK", "KJ"])
def test_what_is_no_legal_move_loses_all_that_can_be_lost(reply: Message, cards: str) -> None:
    family, task = kuhn_task(cards)
    rewards = say(family, task, "check", "bet", reply)
    assert [reward.total for reward in rewards] == [-2.0, 2.0]
    assert [reward.part("illegal") for reward in rewards] == [1.0, 0.0]


def test_a_reply_that_a_limit_cut_off_is_no_legal_move() -> None:
    family, task = kuhn_task("JK")
    end = EpisodeEnd(stop=StopReason.MAX_TURN_TOKENS, conversation="player1/1")
    rewards = say(family, task, "bet", end=end)
    assert [reward.total for reward in rewards] == [2.0, -2.0]
    assert [reward.part("illegal") for reward in rewards] == [0.0, 1.0]


def test_what_was_not_asked_is_refused() -> None:
    family, task = kuhn_task("JK")

    async def tell_another() -> None:
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell("player1/0", answer_message("bet"))

    with pytest.raises(EnvironmentFault, match="'player1/0', where it had not asked for"):
        asyncio.run(tell_another())
    with pytest.raises(EnvironmentFault, match="the game of kuhn is not"):
        say(family, task, "check")
    with pytest.raises(ConfigError, match="game='chess'"):
        Games(game="chess")
    with pytest.raises(
        ConfigError, match="policy 'best' is unknown; use one of uniform, naive, random, optimal, oracle"
    ):
        family.policy("best")


def test_the_share_of_best_moves_is_of_the_moves_of_the_player() -> None:
    family = Games(game="nim")
    deals = family.game.deals()
    task = next(t for t in (family.task("train", i) for i in range(60)) if sum(deals[t.payload["deal"]].heaps) == 2)
    names = [name for name, size in zip("abc", deals[task.payload["deal"]].heaps, strict=True) if size]
    # Two heaps of one: lost for player 0, so any move is best; player 1 wins by taking the last.
    rewards = say(family, task, f"{names[0]}one", f"{names[1]}one")
    assert [reward.total for reward in rewards] == [-1.0, 1.0]
    assert [reward.part("optimal") for reward in rewards] == [1.0, 1.0]
    rewards = say(family, task, f"{names[0]}one", "nonsense")
    assert [reward.part("optimal") for reward in rewards] == [1.0, 0.0]
    assert [reward.total for reward in rewards] == [1.0, -1.0]


def mean_total(family: Games, players: Mapping[str, ScriptedPolicy], count: int) -> float:
    """Mean return of player 0 over held-out tasks."""
    totals = [play(family, family.task("heldout", i), players, seed=i)[0][0].total for i in range(count)]
    return sum(totals) / count


@pytest.mark.parametrize("game", ["nim", "kuhn"])
def test_perfect_play_beats_random_moves_from_either_side(game: str) -> None:
    family = Games(game=game)
    uniform, optimal = family.policy("uniform"), family.policy("optimal")
    as_first = mean_total(family, {"player0": optimal, "player1": uniform}, 120)
    as_second = -mean_total(family, {"player0": uniform, "player1": optimal}, 120)
    assert as_first + as_second > 0.15


def test_those_who_know_the_values_of_both_agree_on_the_fairest_division() -> None:
    family = Games(game="negotiation")
    for player, least in (("oracle", 1.0), ("uniform", 0.0)):
        nash, pareto = [], []
        for index in range(60):
            rewards, _ = play(family, family.task("heldout", index), both(family.policy(player)), seed=index)
            nash.append(rewards[0].part("nash") or 0.0)
            pareto.append(rewards[1].part("pareto") or 0.0)
        assert min(nash) >= least
        assert (sum(nash) / 60, sum(pareto) / 60) == (1.0, 1.0) if least else sum(nash) / 60 < 0.5


def test_a_share_of_the_other_players_return_is_added_where_the_sum_is_not_zero() -> None:
    alone, shared = Games(game="negotiation"), Games(game="negotiation", prosocial=0.5)
    oracle = both(alone.policy("oracle"))
    for index in range(20):
        mine, theirs = (each.total for each in play(alone, alone.task("heldout", index), oracle, seed=index)[0])
        rewards, _ = play(shared, shared.task("heldout", index), oracle, seed=index)
        assert [each.total for each in rewards] == [mine + theirs / 2, theirs + mine / 2]
    with pytest.raises(ConfigError, match="nothing would be left to learn from"):
        Games(game="kuhn", prosocial=0.5)


def test_deals_come_in_rounds_and_held_out_ones_are_held_out() -> None:
    kuhn = Games(game="kuhn")
    rounds = [[kuhn.task("train", 6 * turn + i).payload["deal"] for i in range(6)] for turn in range(4)]
    assert all(sorted(each) == list(range(6)) for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1
    for name in ("nim", "negotiation"):
        first, second = Games(game=name), Games(game=name, seed=5)
        count = len(first.game.deals())
        train = {first.task("train", i).payload["deal"] for i in range(count)}
        heldout = {second.task("heldout", i).payload["deal"] for i in range(count)}
        assert not train & heldout
        assert len(train) + len(heldout) == count


def test_texts_hold_every_word_that_is_read_or_written() -> None:
    family = Games(game="nim")
    words = {word for text in family.texts(400) for word in text.split()}
    assert {"player0", "player1", "anil", "cthree", "bone", "btwo"} <= words


def test_an_agent_plays_every_deal_once_as_either_player() -> None:
    family = Games(game="kuhn", opponent=True)
    tasks = [family.task("train", index) for index in range(12)]
    assert sorted((task.payload["deal"], task.payload["agent"]) for task in tasks) == [
        (deal, agent) for deal in range(6) for agent in (0, 1)
    ]
    cards = [state.cards for state in family.game.deals()]
    first, second = (task for task in tasks if cards[task.payload["deal"]] == ("J", "K"))
    for task, roles, returns in (
        (first, ("agent", "opponent"), (-2.0, 2.0)),
        (second, ("opponent", "agent"), (2.0, -2.0)),
    ):
        environment = family.build_environment(task)
        assert {spec.name for spec in environment.spec.roles} == {"agent", "opponent"}
        spoken = {roles[0]: Saying("bet"), roles[1]: Saying("call")}
        rewards, asks, _ = play_asked(environment, task, speak_as(spoken, task, seed=0))
        assert [ask.role for ask in asks] == list(roles)
        # The jack bets, the king calls: player 0 loses two, whoever that is.
        assert (scored(rewards)["agent"].total, scored(rewards)["opponent"].total) == returns
