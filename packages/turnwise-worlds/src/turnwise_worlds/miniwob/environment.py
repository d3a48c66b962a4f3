"""One task of MiniWoB++: the policy reads the page, acts, and reads it again, until the page says that it is over.

user        okay 1 next 2 button okay
assistant   click number = 1
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from turnwise.core.errors import EnvironmentFault, ToolFailure
from turnwise.core.messages import Part
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, TextPart, text_message
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.pictures.read import read_picture
from turnwise_worlds.miniwob.arguments import MiniwobArguments
from turnwise_worlds.miniwob.goals import Step, shorten
from turnwise_worlds.miniwob.listing import View, write_listing
from turnwise_worlds.miniwob.pages import OpenPage, Pages

INVALID_REPLY = "error"
"""The answer to a reply without a call; short, because small models see it often at first."""
LONGEST_TEXT = 200
"""Characters that can be typed at once, at most."""
UNFINISHED = -1.0
"""The reward of an episode that ends before its task, as MiniWoB++ gives when the time is over."""


def write_page(view: View, task: str, chosen: MiniwobArguments) -> str:
    """Write a page as the policy reads it."""
    goal = shorten(task, view.goal) if chosen.style == "short" else view.goal
    shown = view if chosen.page == "own" else replace(view, elements=())
    return write_listing(shown, "" if chosen.goal == "hidden" else goal, chosen.style)


class MiniwobEnvironment(ToolEnvironment):
    """The episode's state is in its page."""

    def __init__(self, chosen: MiniwobArguments, task: Task, pages: Pages) -> None:
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._chosen = chosen
        self._task = str(task.payload["task"])
        self._seed = int(task.payload["seed"])
        self._pages = pages
        self._page: OpenPage | None = None

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Open the page and begin the task; offer the actions."""
        self._page = await self._pages.open(self._task, self._seed)
        tools: list[Callable[..., object]] = [self.click, self.type, self.select]
        if self._chosen.surface != "text":
            tools.append(self.click_at)
        shown = await self._show()
        content = (TextPart(text=shown),) if isinstance(shown, str) else tuple(shown)
        return [Message(role="user", content=content)], tools

    async def click(self, number: int) -> list[Part] | str:
        """Click on an element.

        Args:
            number: The number of the element.
        """
        return await self._act(Step(verb="click", number=number))

    async def type(self, number: int, text: str) -> list[Part] | str:
        """Write a text into a field, in place of what is there.

        Args:
            number: The number of the field.
            text: The text.
        """
        if len(text) > LONGEST_TEXT or not text.isprintable():
            raise ToolFailure(f"type one line of at most {LONGEST_TEXT} characters")
        return await self._act(Step(verb="type", number=number, text=text))

    async def select(self, number: int, option: str) -> list[Part] | str:
        """Choose an option of a list.

        Args:
            number: The number of the list.
            option: The option.
        """
        return await self._act(Step(verb="select", number=number, text=option))

    async def click_at(self, x: int, y: int) -> list[Part] | str:
        """Click at a pixel of the picture.

        Args:
            x: Pixels from the left.
            y: Pixels from the top.
        """
        await self._open_page.click_at(x, y)
        return await self._show()

    async def _act(self, step: Step) -> list[Part] | str:
        await self._open_page.act(step)
        return await self._show()

    async def _show(self) -> list[Part] | str:
        page = self._open_page
        self.done = page.view.is_done
        chosen, goal = self._chosen, "" if self._chosen.goal == "hidden" else page.view.goal
        text = goal if chosen.surface == "picture" else write_page(page.view, self._task, chosen)
        if chosen.surface == "text" or self.done:
            return text
        picture = read_picture(base64.b64decode(await page.draw()))
        return [picture, TextPart(text=text)]

    @property
    def _open_page(self) -> OpenPage:
        if self._page is None:
            raise EnvironmentFault("MiniwobEnvironment has no page before reset")
        return self._page

    def invalid_reply(self, message: Message) -> Message:
        """Return a fixed text for a reply without a call."""
        return text_message("tool", INVALID_REPLY)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return the page's raw reward, -1 to 1, and -1 if the task has not ended. A success is a reward of 1: some
        tasks give a little for a wrong answer."""
        view = self._open_page.view
        total = view.reward if view.is_done else UNFINISHED
        return Scored.of(total, {"success": float(total == 1.0), "decided": float(view.is_done)})

    async def teardown(self) -> None:
        """Give the page back."""
        if self._page is not None:
            await self._page.close()

    def state_hash(self) -> str:
        """Return a hash that is equal if what the page shows is."""
        state = (self._task, self._seed, self._open_page.view)
        return hashlib.sha256(repr(state).encode()).hexdigest()[:16]
