"""Episodes of scripted policies as documents."""

import pytest

from turnwise.core.documents import DocumentContext
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Task
from turnwise.environments.countdown.environment import CountdownEnvironment
from turnwise.environments.countdown.family import Countdown
from turnwise.environments.episodes import play_episode, run_apart
from turnwise.environments.told import MAX_AT_ONCE, TRIES, tell_episodes


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


class Starved(Countdown):
    """Environments that cannot be opened as often as `left` says, as where a busy machine meets a deadline."""

    left = 0

    def build_environment(self, task: Task) -> CountdownEnvironment:
        if self.left:
            self.left -= 1
            raise EnvironmentFault("too busy")
        return super().build_environment(task)


def test_an_episode_that_fails_is_played_again_before_it_is_given_up() -> None:
    calm, starved = DocumentContext(family=Countdown(), seed=0), Starved()
    starved.left = TRIES - 1
    assert tell_episodes(DocumentContext(family=starved, seed=0), count=1) == tell_episodes(calm, count=1)
    starved.left = TRIES
    with pytest.raises(EnvironmentFault, match=r"naive/train/0: .*too busy"):
        tell_episodes(DocumentContext(family=starved, seed=0), count=1)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ConfigError, match="nobody"):
        tell_episodes(DocumentContext(family=Countdown(), seed=0), policies=("nobody",), count=1)
