"""The seam of the adapters, on a game of three lines: walk from 0 to 3."""

import asyncio
from typing import Any

import pytest
from played_games import act, check_family, play, success

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolFailure
from turnwise.core.packages import require_package
from turnwise.core.types import Scored, StopReason, ToolCallError, text_message
from turnwise.environments.arguments import read_arguments
from turnwise.environments.registry import FAMILIES, load_family
from turnwise_adapters.game_family import GameArguments, GameFamily
from turnwise_adapters.text_game import Outcome, TextGame, check_action, read_actions, write_action


class Walk(TextGame):
    """Starts at seed modulo 3; "up" pays 1 at the place 3 and ends there, "down" costs 0.25."""

    def open(self, seed: int) -> str:
        self.place = seed % 3
        return f"at {self.place}"

    def legal_actions(self) -> tuple[str, ...]:
        return ("up", "down") if self.place else ("up",)

    def step(self, action: str) -> Outcome:
        self.place += 1 if action == "up" else -1
        won = self.place == 3
        return Outcome(text=f"at {self.place}", reward=float(won) if action == "up" else -0.25, done=won, won=won)

    def expert_action(self) -> str:
        return "up"


class Walks(GameFamily):
    def __init__(self, **arguments: Any) -> None:
        chosen = read_arguments(GameArguments, arguments)
        super().__init__("walk", "walk", chosen, Walk)


class Restless(Walk):
    """Opens elsewhere each time."""

    opened = 0

    def open(self, seed: int) -> str:
        Restless.opened += 1
        return super().open(seed) + f", opened {Restless.opened} times"


def run(**arguments: Any) -> Walks:
    return Walks(**arguments)


def test_a_family_of_games_owes_what_every_family_owes() -> None:
    family = check_family(f"{__name__}:Walks", {"max_actions": 6})
    assert success(family, "oracle", 10) == 1.0


@pytest.mark.parametrize("reply", ["call", "text"])
def test_rewards_add_up_and_illegal_actions_are_told_and_counted(reply: str) -> None:
    # Held-out task 0 starts at its seed modulo 3; from there "down" to 0, an illegal "down", and three times "up".
    family = run(reply=reply)
    start = family.task("heldout", 0).payload["seed"] % 3
    downs = ["down"] * start
    seen, reward = asyncio.run(act(family, [*downs, "down", "fly", "up", "up", "up"]))
    assert seen[start] == "error: 'down' is no legal action; choose one of: up"
    assert seen[start + 1] == "error: 'fly' is no legal action; choose one of: up"
    assert seen[start + 2 :] == ["at 1", "at 2"]  # the last step ends the episode and shows nothing
    assert reward.total == 1.0 - 0.25 * start
    assert [reward.part(name) for name in ("success", "actions", "illegal_actions")] == [1.0, start + 5.0, 2.0]


def test_an_episode_ends_after_the_most_actions_without_success() -> None:
    _, reward = asyncio.run(act(run(max_actions=2), ["fly", "fly"]))
    assert (reward.part("success"), reward.part("actions"), reward.part("illegal_actions")) == (0.0, 2.0, 2.0)


def test_success_can_be_the_reward() -> None:
    family = run(reward="success")
    start = family.task("heldout", 0).payload["seed"] % 3
    _, reward = asyncio.run(act(family, ["down"] * min(start, 1) + ["up"] * 3))
    assert reward.total == 1.0


def test_the_reply_is_the_action_and_no_tool_is_shown_where_text_acts() -> None:
    async def first_step(reply: str) -> tuple[int, list[str], int]:
        family = run(reply=reply)
        task = family.task("heldout", 0)
        environment = family.build_environment(task)
        opening = await environment.reset(task, 0)
        result = await environment.step(write_action("up", family.rules, 0))
        await environment.close()
        return len(opening.tools), [message.role for message in result.observations], len(result.tool_records)

    assert asyncio.run(first_step("call"))[0] == 1
    assert asyncio.run(first_step("text"))[0] == 0
    assert set(asyncio.run(first_step("text"))[1]) <= {"user"}
    assert [asyncio.run(first_step(reply))[2] for reply in ("call", "text")] == [1, 0]  # the audit looks for the calls
    assert read_actions(text_message("assistant", "I go <answer> up </answer> now")) == ["up"]
    assert read_actions(text_message("assistant", " up\n")) == ["up"]


def test_a_malformed_call_is_answered() -> None:
    async def answer() -> tuple[bool, str]:
        family = run()
        task = family.task("train", 0)
        environment = family.build_environment(task)
        await environment.reset(task, 0)
        error = ToolCallError(kind="bad_json", raw="{", message="not JSON")
        result = await environment.step(text_message("assistant", "x", tool_errors=(error,)))
        assert isinstance(await environment.score([], StopReason.MAX_TURNS), Scored)
        await environment.close()
        return result.done, result.observations[0].text

    assert asyncio.run(answer()) == (False, "error: not JSON")


def test_legal_actions_are_listed_where_asked_for() -> None:
    texts = {show: run(show_actions=show).task("train", 0).prompt[0].text for show in ("never", "once", "always")}
    assert "Actions" not in texts["never"]
    assert "Actions: up" in texts["once"]
    seen, _ = asyncio.run(act(run(show_actions="always"), ["up"]))
    assert all("Actions: up, down" in text for text in seen)


def test_no_opening_is_in_both_splits_where_openings_divide_them() -> None:
    # Walk has three openings, and the hash puts all of them among the training ones: nothing is left to hold out.
    train = {run(split_by="opening").task("train", at).prompt[0].text.split("\n")[0] for at in range(20)}
    assert train == {"at 0", "at 1", "at 2"}
    with pytest.raises(ConfigError, match=r"has a heldout opening .* use split_by='seed'"):
        run(split_by="opening").task("heldout", 0)


def test_an_episode_that_its_seed_does_not_fix_is_a_fault_not_a_loss() -> None:
    family = GameFamily("restless", "restless", read_arguments(GameArguments, {}), Restless)
    with pytest.raises(EnvironmentFault, match="the seed does not determine the episode"):
        asyncio.run(play(family, family.task("train", 0), "random"))


def test_an_action_has_a_largest_length() -> None:
    class Open(TextGame): ...

    assert check_action(Open(), " hi ") == "hi"
    with pytest.raises(ToolFailure, match="at most"):
        check_action(Open(), "x" * 2001)


def test_a_game_without_expert_has_no_oracle() -> None:
    class Blind(Walk):
        expert_action = TextGame.expert_action  # type: ignore[assignment]

    family = GameFamily("blind", "blind", read_arguments(GameArguments, {}), Blind)
    family.policy("naive")
    with pytest.raises(ConfigError, match="blind has no expert for blind"):
        family.policy("oracle")


def test_a_missing_and_an_old_package_are_one_line_with_the_remedy() -> None:
    with pytest.raises(
        ConfigError, match=r"needs the package no-such-thing >= 1.0; install it with: pip install 'turn"
    ):
        require_package("no-such-thing", "1.0", "gymnasium")
    with pytest.raises(ConfigError, match=r"pytest .* is too old; this environment needs 999.1 or newer"):
        require_package("pytest", "999.1", "dev")
    assert require_package("pytest", "8.0rc1", "dev")


def test_every_built_in_family_can_be_named_or_says_what_it_needs() -> None:
    for name in FAMILIES:
        with pytest.raises(ConfigError, match=r"no_such_argument|install it with"):
            load_family(name, {"no_such_argument": 1})
