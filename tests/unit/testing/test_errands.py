"""The family of errands: what its scripted policies solve."""

import asyncio

import pytest

from turnwise.core.errors import ConfigError
from turnwise.core.types import Draw, Scored
from turnwise.rollout.demonstrate import play_demonstration
from turnwise.testing import build_tiny_renderer, build_tiny_tokenizer
from turnwise.testing.errands import ErrandsFamily


def success_of(name: str, count: int = 200) -> float:
    """Mean reward of a scripted policy."""
    family = ErrandsFamily()
    renderer = build_tiny_renderer(build_tiny_tokenizer(family.texts(200)))
    total = 0.0
    for index in range(count):
        task = family.task("heldout", index)
        environment = family.build_environment(task)
        draw = Draw(index=index, task=task)
        episode = asyncio.run(
            play_demonstration(draw, family.policy(name), environment, renderer, seed=index, max_turns=4)
        )
        assert [t.id.role for t in episode.trajectories] == ["planner", "worker"]
        assert isinstance(episode.reward, Scored)
        total += episode.reward.total
    return total / count


def test_the_oracle_solves_everything_and_the_demonstrator_little() -> None:
    assert success_of("oracle") == 1.0
    # A code is found directly (1/2) or by following (1/2 * 0.1): 0.55. One is wanted, or two and two workers are sent:
    # 1/2 * 0.55 + 1/2 * 0.2 * 0.55 ** 2 = 0.31.
    assert 0.2 < success_of("naive") < 0.42
    assert success_of("random") < 0.13  # 1/2 * 0.1 + 1/2 * 1/2 * 0.1 ** 2 = 0.05
    with pytest.raises(ConfigError, match="choose one of oracle, naive, random"):
        ErrandsFamily().policy("best")
