"""Episodes of scripted policies as documents."""

import pytest

from turnwise.core.documents import DocumentContext
from turnwise.core.errors import ConfigError
from turnwise.environments.countdown.family import Countdown
from turnwise.environments.episodes import play_episode, run_apart
from turnwise.environments.told import MAX_AT_ONCE, tell_episodes


def test_a_document_has_the_whole_episode_of_each_policy_on_each_task() -> None:
    family = Countdown()
    context = DocumentContext(family=family, seed=3)
    told = tell_episodes(context, policies=("oracle", "random"), count=MAX_AT_ONCE // 2 + 3, first=5)
    assert [each.id for each in told[:3]] == ["oracle/train/5", "random/train/5", "oracle/train/6"]
    assert len({each.id for each in told}) == len(told) == MAX_AT_ONCE + 6
    assert told == tell_episodes(context, policies=("oracle", "random"), count=MAX_AT_ONCE // 2 + 3, first=5)
    played = run_apart(play_episode(family, family.task("train", 6), family.policy("oracle"), seed=0, max_turns=8))
    assert told[2].messages == tuple(played.messages)  # the oracle draws nothing
    assert [message.role for message in told[2].messages[:2]] == ["user", "assistant"]


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ConfigError, match="nobody"):
        tell_episodes(DocumentContext(family=Countdown(), seed=0), policies=("nobody",), count=1)
