"""A family of ours as a Gymnasium environment, accepted by Gymnasium's own checker."""

import json

import pytest
from played_games import need

from turnwise.core.errors import EnvironmentFault
from turnwise.testing.notes import NotesFamily


def test_gymnasiums_checker_accepts_it() -> None:
    gymnasium = need("gymnasium", "a")
    from gymnasium.utils.env_checker import check_env

    from turnwise_adapters.as_gymnasium import to_gymnasium

    env = to_gymnasium(NotesFamily())
    assert isinstance(env, gymnasium.Env)
    check_env(env, skip_render_check=True)
    env.close()


def test_an_episode_is_played_with_calls_and_an_answer() -> None:
    need("gymnasium", "a")
    from turnwise_adapters.as_gymnasium import to_gymnasium

    env = to_gymnasium(NotesFamily(linked=0.0))
    opening, info = env.reset(seed=5)
    assert env.reset(seed=5)[0] == opening
    assert "search" in info["tools"]
    call = {"name": "search", "arguments": {"query": opening.split()[-1]}}
    observation, reward, terminated, _, _ = env.step(json.dumps(call))
    assert observation.startswith("code ")
    assert (reward, terminated) == (0.0, False)
    _, reward, terminated, _, parts = env.step(f"<answer> {observation.split()[-1]} </answer>")
    assert (reward, terminated, parts) == (1.0, True, {"success": 1.0})
    with pytest.raises(EnvironmentFault, match="call reset"):
        env.step("again")
    env.close()


def test_a_limit_of_turns_truncates() -> None:
    need("gymnasium", "a")
    from turnwise_adapters.as_gymnasium import to_gymnasium

    env = to_gymnasium(NotesFamily(), max_turns=1)
    env.reset(seed=0)
    _, reward, terminated, truncated, _ = env.step('{"name": "search", "arguments": {"query": "nothing"}}')
    assert (reward, terminated, truncated) == (0.0, False, True)
    env.close()
