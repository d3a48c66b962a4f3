"""One screen: the policy sees it, acts, and sees it again, until a click decides.

user        [picture] form kalo red
assistant   click row = 2 column = 3
tool        [picture]
assistant   type text = kalo
tool        [picture]
assistant   click row = 4 column = 1
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from turnwise.core.errors import ToolFailure
from turnwise.core.messages import Part
from turnwise.core.protocols import StepResult
from turnwise.core.types import Message, Reward, Scored, Signal, StopReason, Task, TextPart, text_message
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise_worlds.screens.arguments import Prompt, ScreensArguments
from turnwise_worlds.screens.screen import SIDE, Kind, Screen
from turnwise_worlds.screens.session import Session
from turnwise_worlds.screens.show import show

_RULES = (
    f" The screen has {SIDE} x {SIDE} cells. click(row, column) clicks at a cell, counted from 1 at the top left; "
    "type(text) writes into the field that was clicked; scroll(direction) moves a list. "
)
QUESTIONS: dict[Prompt, dict[Kind, str]] = {
    "short": {"press": " press {target}", "form": " form {word} {target}", "list": " list {target}"},
    "full": {
        "press": _RULES + "Click the {target} button.",
        "form": _RULES + "Write {word} into the {target} field, leave the others empty, and click ok.",
        "list": _RULES + "Click the {target} item of the list.",
    },
}
"""What is asked, after the screen; the colour is the last word, where models find it first."""
LONGEST_TEXT = 16
"""Characters of a text that can be typed, at most."""
INVALID_REPLY = "error"
"""The answer to a reply without a call; short, because small models see it often at first."""


def build_prompt(session: Session, chosen: ScreensArguments) -> tuple[Message, ...]:
    """Build the first message: the screen and the question."""
    screen = session.screen
    question = QUESTIONS[chosen.prompt][screen.kind].format(target=screen.target, word=screen.word)
    gap = "" if chosen.surface == "picture" else "\n"
    return (Message(role="user", content=(*show(session.elements, chosen.surface), TextPart(text=gap + question))),)


class ScreensEnvironment(ToolEnvironment):
    """The episode's state is its `Session`."""

    def __init__(self, chosen: ScreensArguments, task: Task) -> None:
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._chosen = chosen
        self._id = task.id
        self._session = Session.open(task.payload, chosen)

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Show the screen; offer the actions."""
        return build_prompt(self._session, self._chosen), [self.click, self.type, self.scroll]

    def click(self, row: int, column: int) -> list[Part] | str:
        """Click at a cell of the screen.

        Args:
            row: The row of the cell, from 1 at the top.
            column: The column of the cell, from 1 at the left.
        """
        for name, number in (("row", row), ("column", column)):
            if not 1 <= number <= SIDE:
                raise ToolFailure(f"no {name} {str(number)[:8]}")
        return self._act(lambda screen: screen.click((row - 1, column - 1)))

    def type(self, text: str) -> list[Part] | str:
        """Write a text into the field that was clicked last.

        Args:
            text: One word.
        """
        if not text.isalnum() or len(text) > LONGEST_TEXT:
            raise ToolFailure("no word")  # line breaks would look like elements where the screen is shown as text
        return self._act(lambda screen: screen.type(text))

    def scroll(self, direction: Literal["up", "down"]) -> list[Part] | str:
        """Scroll a list.

        Args:
            direction: Where to.
        """
        return self._act(lambda screen: screen.scroll(direction))

    def _act(self, action: Callable[[Screen], Screen]) -> list[Part] | str:
        self._session = self._session.act(action)
        self.done = bool(self._session.screen.chosen)
        parts = show(self._session.elements, self._chosen.surface)
        return parts[0].text if isinstance(parts[0], TextPart) else list(parts)

    def invalid_reply(self, message: Message) -> Message:
        """Return a fixed text for a reply without a call."""
        return text_message("tool", INVALID_REPLY)

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`. Signal: `changes_screen`, whether a reply changed anything."""
        before = self._session
        result = await super().step(message)
        changed = Signal(name="changes_screen", value=float(self._session != before))
        return replace(result, signals=(changed,))

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 if the decisive click was right, else 0; see `Screen.succeeded`. The part "decided" says whether
        there was one."""
        screen = self._session.screen
        parts = {"success": float(screen.succeeded), "decided": float(bool(screen.chosen))}
        return Scored.of(float(screen.succeeded), parts)

    def state_hash(self) -> str:
        """Return a hash that is equal if the screen is, however it was reached."""
        return hashlib.sha256(f"{self._id} {self._session}".encode()).hexdigest()[:16]

    async def fork(self) -> ScreensEnvironment:
        """See `ForkableEnvironment`."""
        return self.copy_episode()
