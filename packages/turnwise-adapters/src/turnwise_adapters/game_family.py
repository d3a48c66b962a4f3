"""A family of text games: tasks are seeds, policies play the game itself, and sample texts come from playing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from random import Random
from typing import Literal

from pydantic import Field

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolFailure, boundary
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task
from turnwise.environments.arguments import FamilyArguments, Share, check_index, choose_policy
from turnwise.environments.math_code.problems import MAX_DRAWS, split_of
from turnwise.rendering.calls import format_calls
from turnwise_adapters.text_game import (
    GameEnvironment,
    GameRules,
    ReplyKind,
    TextGame,
    check_action,
    list_actions,
    read_actions,
    write_action,
    write_prompt,
)


class GameArguments(FamilyArguments):
    """Arguments shared by all adapters; each adds its own."""

    reply: ReplyKind = "call"
    """"call": an action is a call of the tool `act`; "text": the reply's text is the action."""
    max_actions: int = Field(30, ge=1, le=100_000)
    """The episode ends after this many actions, illegal ones included."""
    reward: Literal["game", "success"] = "game"
    """The total: the sum of the game's rewards, or 1 for success."""
    show_actions: Literal["never", "once", "always"] = "once"
    """Where the legal actions are listed: nowhere, in the first message, or in every one."""
    observations: Literal["shown", "blank"] = "shown"
    """"blank" hides the state, as a control: the first message has the objective alone, and actions are answered with
    nothing."""
    instructions: str = ""
    """Text put before the first message."""
    split_by: Literal["seed", "opening"] = "seed"
    """What separates the splits: they share no seed, or no first message. A game with few openings can only be split by
    seed."""
    naive_skill: Share = 0.3
    """Probability that the naive policy takes the expert's action; otherwise it takes a random legal one."""


class GameFamily:
    """Implements `EnvironmentFamily` for the games that `build_game` makes."""

    def __init__(self, name: str, kind: str, chosen: GameArguments, build_game: Callable[[], TextGame]) -> None:
        """`name` is the environment named by the tasks, `kind` their kind in reports."""
        self._name = name
        self._kind = kind
        self._chosen = chosen
        self.build_game = build_game
        """Builds the game of one episode."""
        self.rules = GameRules(
            **{key: getattr(chosen, key) for key in inspect.signature(GameRules).parameters},
        )
        """Rules by which the games are played."""

    # ------------------------------------------------------------------------------------------- tasks

    def task(self, split: Split, index: int) -> Task:
        """Return the index-th task of a split, which is endless: a seed, and the text with which the game opens under
        it.

        Raises IndexError for a negative index, ConfigError if no opening of the split is found.
        """
        check_index(split, index)
        for attempt in range(MAX_DRAWS):
            drawn = derive_seed(self._chosen.seed, "game", split, index, attempt) % 2**30
            seed = 2 * drawn + (split == "heldout")
            prompt = self._open(seed)
            if prompt and (self._chosen.split_by == "seed" or split_of(prompt[0].text) == split):
                payload = {"kind": self.kind_of(seed), "seed": seed, "split": split}
                return Task(environment=self._name, prompt=prompt, payload=payload)
        raise ConfigError(
            f"{self._name}: none of {MAX_DRAWS} seeds has a {split} opening with a move to make; use split_by='seed' "
            "or other arguments"
        )

    def kind_of(self, seed: int) -> str:
        """Return the kind, for reports, of the task with this seed."""
        return self._kind

    def _open(self, seed: int) -> tuple[Message, ...]:
        """Return the first messages; none if the game is over at once."""
        game = self.build_game()
        try:
            with boundary(EnvironmentFault, f"{self._name} cannot open {self.kind_of(seed)} with seed {seed}"):
                opening = game.open(seed)
                return () if game.is_over_at_once else write_prompt(game, opening, self.rules)
        finally:
            game.close()

    def build_environment(self, task: Task) -> Environment:
        """Build a fresh, single-use `GameEnvironment`."""
        return GameEnvironment(self.build_game, self.rules)

    # ------------------------------------------------------------------------------------------- policies

    def policy(self, name: str) -> ScriptedPolicy:
        """Return a scripted policy: "oracle" (the expert), "random" (over legal actions) or "naive" (a weak mixture of
        both).

        Raises ConfigError listing these; a game without an expert has no oracle, and its naive policy is the random
        one.
        """
        policies: dict[str, ScriptedPolicy] = {
            "random": GamePolicy(self, 0.0),
            "naive": GamePolicy(self, self._chosen.naive_skill),
        }
        if self._has_expert:
            policies["oracle"] = GamePolicy(self, 1.0)
        elif name == "oracle":
            raise ConfigError(f"{self._name} has no expert for {self._kind}; use the policy 'random' or 'naive'")
        return choose_policy(name, policies)

    @cached_property
    def _has_expert(self) -> bool:
        game = self.build_game()
        try:
            game.open(int(self.task("train", 0).payload["seed"]))
            return game.expert_action() is not None
        finally:
            game.close()

    def texts(self, count: int) -> list[str]:
        """Return `count` texts from training games played by the naive policy: openings, actions, observations, an
        error."""
        texts: list[str] = []
        index = 0
        while len(texts) < count:
            texts += [text for text in self._play(index) if text.strip()]
            index += 1
        return Random(self._chosen.seed).sample(texts, len(texts))[:count]

    def _play(self, index: int) -> list[str]:
        random, game = rng(self._chosen.seed, "texts", index), self.build_game()
        try:
            seed = self.task("train", index).payload["seed"]
            texts = [write_prompt(game, game.open(seed), self.rules)[0].text]
            for _ in range(self._chosen.max_actions):
                action = choose_action(game, random, self._chosen.naive_skill)
                reply = write_action(action, self.rules, 0)
                texts.append(f" {format_calls(reply.tool_calls) if reply.tool_calls else action}")
                try:
                    outcome = game.step(check_action(game, action))
                except ToolFailure as failure:
                    texts.append(f" error: {failure}")
                    continue
                always = self.rules.show_actions == "always"
                texts.append(f" {list_actions(game, outcome.text) if always else outcome.text}")
                if outcome.done:
                    break
            return texts
        finally:
            game.close()


def choose_action(game: TextGame, random: Random, skill: float) -> str:
    """Return the expert's action with probability `skill`, otherwise a random one."""
    expert = game.expert_action() if random.random() < skill else None
    return expert if expert is not None else game.random_action(random)


class GamePolicy:
    """Implements `ScriptedPolicy`: plays its own copy of the game along with the conversation, so that it can ask the
    expert."""

    def __init__(self, family: GameFamily, skill: float) -> None:
        """`skill` is the probability of the expert's action."""
        self._family = family
        self._skill = skill
        self._game: TextGame | None = None
        self._seed = -1
        self._played: list[str] = []

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next action."""
        replies = [message for message in messages if message.role == "assistant"]
        game = self._catch_up(
            int(task.payload["seed"]), [action for reply in replies for action in read_actions(reply)]
        )
        return write_action(choose_action(game, rng, self._skill), self._family.rules, len(replies))

    def _catch_up(self, seed: int, actions: list[str]) -> TextGame:
        """Return a game of the seed in which these actions were taken, continuing the present one if its actions are a
        prefix."""
        if self._game is None or seed != self._seed or self._played != actions[: len(self._played)]:
            if self._game is not None:
                self._game.close()
            self._game, self._seed, self._played = self._family.build_game(), seed, []
            self._game.open(seed)
        for action in actions[len(self._played) :]:
            self._played.append(action)
            try:
                self._game.step(check_action(self._game, action))
            except ToolFailure:
                continue  # the environment answered this action with an error, and the game did not change
        return self._game
