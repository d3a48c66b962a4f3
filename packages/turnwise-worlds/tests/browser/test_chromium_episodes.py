"""Episodes of the family `web` in Chromium: observations, hashes of states and rewards are those of the text."""

from __future__ import annotations

import asyncio
import os
import signal
from random import Random

import pytest

from turnwise.core.errors import EnvironmentFault
from turnwise.core.messages import ImagePart
from turnwise.core.types import Reward, StopReason
from turnwise_worlds.browser.browser import share_browser
from turnwise_worlds.browser.settings import BrowserSettings
from turnwise_worlds.programs import BROWSER
from turnwise_worlds.web.environment import WebEnvironment
from turnwise_worlds.web.family import Web

pytest.importorskip("playwright")
pytestmark = pytest.mark.system


@pytest.fixture(scope="module", autouse=True)
def _browser() -> None:
    try:
        BROWSER.find()
    except ValueError:
        pytest.skip("chromium-headless-shell is missing")


async def play(family: Web, index: int, policy: str, most: int) -> tuple[list[str], list[str], Reward]:
    """Play an episode; returns what was read, the hashes of the states and the reward."""
    task = family.task("heldout", index)
    environment: WebEnvironment = family.build_environment(task)
    messages = list((await environment.reset(task, 0)).messages)
    hashes, random = [environment.state_hash()], Random(index)
    for _ in range(most):
        messages.append(family.policy(policy).reply(task, messages, random))
        result = await environment.step(messages[-1])
        messages += result.observations
        hashes.append(environment.state_hash())
        if result.done:
            break
    reward = await environment.score([each for each in messages if each.role == "assistant"], StopReason.DONE)
    await environment.close()
    return [each.text for each in messages if each.role != "assistant"], hashes, reward


@pytest.mark.parametrize("policy", ["oracle", "random"])
@pytest.mark.parametrize("kind", ["shop", "wiki", "form", "order", "cross"])
def test_episodes_are_the_same_as_text_and_in_chromium(kind: str, policy: str) -> None:
    text, chromium = (Web(kinds={kind: 1.0}, surface=surface) for surface in ("text", "chromium"))
    played = asyncio.run(play(text, 0, policy, 12))
    assert asyncio.run(play(chromium, 0, policy, 12)) == played


def test_a_browser_that_is_killed_is_a_fault_of_the_environment_and_the_next_episode_plays() -> None:
    family = Web(surface="chromium")

    async def kill() -> None:
        task = family.task("train", 0)
        environment = family.build_environment(task)
        messages = (await environment.reset(task, 0)).messages
        for pid in share_browser(BrowserSettings()).pids():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(EnvironmentFault, match="browser"):
            await environment.step(family.policy("oracle").reply(task, messages, Random(0)))
        await environment.close()

    asyncio.run(kill())
    assert asyncio.run(play(family, 0, "oracle", 40))[2].total == 1.0  # type: ignore[union-attr]


def test_a_policy_may_see_the_page() -> None:
    family = Web(surface="chromium", pictures=True)

    async def look() -> None:
        task = family.task("train", 0)
        environment = family.build_environment(task)
        opening = await environment.reset(task, 0)
        pictures = [part for message in opening.messages for part in message.content if isinstance(part, ImagePart)]
        assert [(each.width, each.height) for each in pictures] == [(224, 224)]
        assert "click_at" in {tool.name for tool in opening.tools}
        await environment.close()

    asyncio.run(look())
