"""The common interface of adapters: an episode of another package's environment as text, and that text as an
`Environment`.

An adapter implements `TextGame`. This module adds the tool, illegal actions, limits and the reward.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, TypeVar

from turnwise.core.errors import EnvironmentFault, ToolFailure, boundary
from turnwise.core.messages import ImagePart, Message, Part, TextPart, ToolCall, text_message
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.types import Reward, RewardPart, Scored, Signal, StopReason, Task
from turnwise.environments.replies import answer_message
from turnwise.environments.tool_environment import ToolEnvironment

T = TypeVar("T")
ReplyKind = Literal["call", "text"]
MAX_ACTION_CHARS = 2_000
BLANK = " nothing"
"""The answer to an action where observations are blank."""
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one action."""

    text: str
    """Text that the player sees next."""
    reward: float = 0.0
    done: bool = False
    """Whether the game is over."""
    won: bool = False
    """Whether it ended in success; read only if `done`."""


class TextGame:
    """One episode. Methods may block: they run in a thread, under a deadline. Open it once, then step until it is
    done."""

    objective = ""
    """Set by `open`: what is asked for, which is all that is shown where observations are blank."""
    is_over_at_once = False
    """Set by `open` if there is nothing to play, for example because an opponent resigns first; such a seed is
    skipped."""

    def open(self, seed: int) -> str:
        """Start the episode determined by `seed`. Returns what the player sees first."""
        raise NotImplementedError(f"{type(self).__name__} must define open")

    def step(self, action: str) -> Outcome:
        """Take a legal action. Raises ToolFailure to tell the player what was wrong with it."""
        raise NotImplementedError(f"{type(self).__name__} must define step")

    def legal_actions(self) -> Sequence[str]:
        """Return the legal actions in this state; empty if any text is legal."""
        return ()

    def expert_action(self) -> str | None:
        """Return a good action in this state, from knowledge that the player lacks; None if there is none."""
        return None

    def random_action(self, random: Random) -> str:
        """Return any legal action; "0" if any text is legal."""
        return random.choice(list(self.legal_actions()) or ["0"])

    def pictures(self) -> Sequence[ImagePart]:
        """Return the pictures of this state that are shown before its text."""
        return ()

    def report(self) -> Mapping[str, float]:
        """Return further parts of the reward, by name, of the episode so far."""
        return {}

    def close(self) -> None:
        """Free what `open` took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameRules:
    """Rules by which a game is played."""

    reply: ReplyKind
    """"call": an action is a call of the tool `act`; "text": the reply's text is the action."""
    max_actions: int
    """The episode ends after this many actions, illegal ones included."""
    reward: Literal["game", "success"]
    """The total reward: the sum of the game's rewards, or 1 for success."""
    show_actions: Literal["never", "once", "always"]
    """Where the legal actions are listed: nowhere, in the first message, or in every one."""
    observations: Literal["shown", "blank"]
    """"blank" hides the state: the first message has the objective alone, and actions are answered with nothing."""
    instructions: str
    """Text put before the first message."""
    tool_timeout_s: float
    max_observation_chars: int


def check_action(game: TextGame, action: str) -> str:
    """Return the action without surrounding space. Raises ToolFailure if it is illegal or too long."""
    action = action.strip()
    legal = game.legal_actions()
    if legal and action not in legal:
        raise ToolFailure(f"{action[:50]!r} is no legal action; choose one of: {', '.join(legal)}")
    if len(action) > MAX_ACTION_CHARS:
        raise ToolFailure(f"an action has at most {MAX_ACTION_CHARS} characters")
    return action


def list_actions(game: TextGame, text: str) -> str:
    """Append the legal actions to the text, on a line below it."""
    legal = game.legal_actions()
    return f"{text}\nActions: {', '.join(legal)}" if legal else text


def write_prompt(game: TextGame, opening: str, rules: GameRules) -> tuple[Message, ...]:
    """Return the first message of an episode that was just opened."""
    text = opening if rules.show_actions == "never" else list_actions(game, opening)
    return (Message(role="user", content=(*game.pictures(), TextPart(text=f"{rules.instructions}{text}\n"))),)


def write_outcome(game: TextGame, text: str, rules: GameRules) -> str | list[Part]:
    """Return what the player sees after an action."""
    if rules.observations == "blank":
        return BLANK
    told = list_actions(game, text) if rules.show_actions == "always" else text
    pictures = game.pictures()
    return [*pictures, TextPart(text=told)] if pictures else told


def write_action(action: str, rules: GameRules, number: int) -> Message:
    """Return the reply that takes an action; `number` counts the replies so far and makes call ids unique."""
    if rules.reply == "text":
        return answer_message(action)
    arguments = json.dumps({"action": action}, ensure_ascii=False)
    return Message(
        role="assistant", content=(), tool_calls=(ToolCall(id=f"call_{number}", name="act", arguments=arguments),)
    )


def read_actions(reply: Message) -> list[str]:
    """Return the actions of a reply: those of its calls, or else its text, inside `<answer>` if it has one."""
    if reply.tool_calls:
        return [str(json.loads(call.arguments)["action"]) for call in reply.tool_calls]
    answer = _ANSWER.search(reply.text)
    return [(answer[1] if answer else reply.text).strip()]


class GameEnvironment(ToolEnvironment):
    """A `TextGame` as an `Environment`. Single use.

    Parts of the reward: `success`, `game_reward` (their sum over the episode), `actions` and `illegal_actions`.
    """

    def __init__(self, build_game: Callable[[], TextGame], rules: GameRules) -> None:
        """`build_game` builds the game of one episode."""
        super().__init__(tool_timeout_s=rules.tool_timeout_s, max_observation_chars=rules.max_observation_chars)
        self._build_game = build_game
        self._rules = rules
        self._game: TextGame | None = None
        self._num_actions = self._num_illegal = 0
        self._total = self._last_reward = 0.0
        self._over = self._won = False

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Open the game of the task's own seed. Raises EnvironmentFault if it opens with another text."""

        def start() -> tuple[Message, ...]:
            self._game = self._build_game()
            return write_prompt(self._game, self._game.open(int(task.payload["seed"])), self._rules)

        prompt = await self._in_time(start, "opening")
        assert self._game is not None
        if prompt != task.prompt:
            raise EnvironmentFault(
                f"{task.environment} opened task {task.id} with a different text than before, so the seed does not "
                "determine the episode; use an environment that seeds all its randomness"
            )
        if self._rules.observations == "blank":  # the task, which controls share with the run, is the shown one
            prompt = (text_message("user", f"{self._rules.instructions}{self._game.objective}\n"),)
        return prompt, [self.act]

    async def reset(self, task: Task, seed: int) -> Opening:
        """See `Environment.reset`; no tool is shown if the reply's text is the action."""
        opening = await super().reset(task, seed)
        return opening if self._rules.reply == "call" else replace(opening, tools=())

    def act(self, action: str) -> str | list[Part]:
        """Take one action in the game.

        Args:
            action: The action.
        """
        assert self._game is not None  # a tool runs after setup only
        if self._over:
            raise ToolFailure("the game is over")
        self._num_actions += 1
        self._over = self._num_actions >= self._rules.max_actions
        try:
            outcome = self._game.step(check_action(self._game, action))
        except ToolFailure:
            self._num_illegal += 1
            raise
        if not math.isfinite(outcome.reward):
            raise EnvironmentFault(
                f"the game returned reward {outcome.reward} for {action[:50]!r}; a reward must be finite"
            )
        self._total += outcome.reward
        self._last_reward += outcome.reward
        self._over = self._over or outcome.done
        self._won = outcome.done and outcome.won
        return write_outcome(self._game, outcome.text, self._rules)

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`. The episode is over when the game is, or after `max_actions`."""
        as_text = self._rules.reply == "text" and not message.tool_calls and not message.tool_errors
        if as_text:
            as_call = write_action(read_actions(message)[0], replace(self._rules, reply="call"), 0)
            message = replace(message, tool_calls=as_call.tool_calls)
        self._last_reward = 0.0
        result = await super().step(message)
        signals = (Signal(name="step_reward", value=self._last_reward),)
        if as_text:
            result = replace(
                result, tool_records=()
            )  # the model called no tool, and `turnwise audit` looks for its calls
        if self._over:
            self._stage = "over"
            return replace(result, observations=(), done=True, signals=signals)
        if as_text:
            seen = tuple(Message(role="user", content=each.content) for each in result.observations)
            return replace(result, observations=seen, signals=signals)
        return replace(result, signals=signals)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return the game's rewards or its success; only a won game is a success."""
        values = {
            "success": float(self._won),
            "game_reward": self._total,
            "actions": float(self._num_actions),
            "illegal_actions": float(self._num_illegal),
            **(self._game.report() if self._game is not None else {}),
        }
        total = values["success" if self._rules.reward == "success" else "game_reward"]
        return Scored(total=total, parts=tuple(RewardPart(name=name, value=value) for name, value in values.items()))

    async def teardown(self) -> None:
        """Close the game."""
        if self._game is not None and not self.thread.is_busy:  # else it hangs, and was abandoned
            await self._in_time(self._game.close, "closing")

    async def _in_time(self, job: Callable[[], T], what: str) -> T:
        try:
            async with asyncio.timeout(self._tool_timeout_s):
                with boundary(EnvironmentFault, f"{what} the game"):
                    return await self.thread.run(job)
        except TimeoutError:
            raise EnvironmentFault(
                f"{what} the game took longer than {self._tool_timeout_s:g} s; raise environment.tool_timeout_s"
            ) from None
