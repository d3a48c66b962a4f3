"""One visit of the site: the policy sees a page, acts, and sees the next, until it has bought or stops.

user        mug soft red 30
            search
assistant   search query = mug
tool        hard kalo 20 soft rosu 50 soft tefa 30
assistant   click name = tefa
tool        30 soft red green blue buy
assistant   click name = red
tool        30 soft red on green blue buy
assistant   click name = buy
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from turnwise.core.errors import ToolFailure
from turnwise.core.messages import Part
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, TextPart, text_message
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise_worlds.web.actions import Action, Back, Scroll
from turnwise_worlds.web.arguments import WebArguments
from turnwise_worlds.web.goals.evaluators import check_visit
from turnwise_worlds.web.goals.purchase import reward_purchase
from turnwise_worlds.web.goals.tasks import Visit, make_visit
from turnwise_worlds.web.page import Page
from turnwise_worlds.web.snapshot import format_aria, format_page, format_short
from turnwise_worlds.web.surfaces.open import build_surface
from turnwise_worlds.web.surfaces.surface import Seen, Surface

RULES = {
    "webarena": "Elements are called by the numbers in front of them. ",
    "webshop": "Elements are called by what is written on them. ",
}
"""What precedes the question on full sites."""
Shown = str | list[Part]
"""What an action shows: text, and a picture before it on surfaces that draw."""
INVALID_REPLY = "error"
"""The answer to a reply without a call on terse sites; short, because small models see it often at first."""
REFUSED = "no"
"""What a refused action says on terse sites."""


def open_visit(chosen: WebArguments, task: Task) -> Visit:
    """Make the task's site and what is asked there, under the chosen control."""
    disguised = chosen.page == "shuffled"
    return make_visit(task.payload, chosen.site, lure=chosen.lure, disguised=disguised)


def build_prompt(visit: Visit, chosen: WebArguments) -> str:
    """Build the first message, without the page."""
    return visit.question if chosen.site == "terse" else RULES[chosen.actions] + visit.question


def write_page(page: Page, chosen: WebArguments, start: int = 0) -> str:
    """Write what the policy reads of a page; `start` lines are above what is visible."""
    if chosen.page == "blank":
        return format_short(Page(title="", nodes=()))
    if chosen.format == "short":
        return format_short(page)
    lines = (format_page if chosen.format == "numbered" else format_aria)(page).splitlines()
    below = len(lines) - start - chosen.window
    shown = lines[start : start + chosen.window]
    return "\n".join(
        (*([f"({start} lines above)"] if start else []), *shown, *([f"({below} lines below)"] if below > 0 else []))
    )


class WebEnvironment(ToolEnvironment):
    """The episode's state is that of the site, where the visitor is, and what is typed and not yet sent."""

    def __init__(self, chosen: WebArguments, task: Task) -> None:
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self.chosen = chosen
        """The family's arguments."""
        self._id = task.id
        self._visit = open_visit(chosen, task)
        self._surface: Surface = build_surface(chosen.surface, pictures=chosen.pictures)
        self._seen: Seen | None = None
        self._urls: tuple[str, ...] = ()
        self._start = 0
        self._actions: tuple[Action, ...] = ()
        self._answer = ""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Show the question and the home page; offer the actions."""
        await self._open()
        question = TextPart(text=f"{build_prompt(self._visit, self.chosen)}\n{self._write_page()}")
        return [Message(role="user", content=(*self._pictures, question))], self.tools()

    def tools(self) -> Sequence[Callable[..., object]]:
        """Return the actions on offer."""
        raise NotImplementedError(f"{type(self).__name__} must define tools")

    async def back(self) -> Shown:
        """Return to the page before."""
        return await self.act(lambda page: Back())

    async def stop(self, answer: str = "") -> str:
        """End the visit.

        Args:
            answer: The answer, if one is asked for.
        """
        self._answer, self.done = answer, True
        return ""

    def invalid_reply(self, message: Message) -> Message:
        """Return a short fixed text on terse sites, what is wrong on full ones."""
        return text_message("tool", INVALID_REPLY) if self.chosen.site == "terse" else super().invalid_reply(message)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return WebShop's reward of what was bought first, or 1 if all of WebArena's checks hold, else 0. The part
        "success" is 1 for the full reward, "fit" is WebShop's, "stopped" says whether the policy ended the visit."""
        state, purchase = self._surface.state, self._visit.purchase
        if purchase is not None:
            placed = state.orders[len(self._visit.state.orders) :]
            lines = placed[0].lines if placed else ()
            total = reward_purchase(state.site, purchase, lines[0]) if len(lines) == 1 else 0.0
        else:
            total = check_visit(self._visit.checks, self._answer, self._urls[-1], state) if self.done else 0.0
        success = float(total == 1.0)
        paid = success if self.chosen.reward == "success" else total
        return Scored.of(paid, {"success": success, "fit": total, "stopped": float(self.done)})

    def state_hash(self) -> str:
        """Return a hash of the site's state, the addresses visited, what is visible, and what is typed and not sent,
        which is nowhere but in the page."""
        seen = self._current
        entries = tuple((node.number, node.value) for node in seen.page.nodes if node.form is not None)
        parts = (self._id, self._surface.state.digest, self._urls, self._start, entries)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    async def fork(self) -> WebEnvironment:
        """See `ForkableEnvironment`. The copy opens a surface of its own and does every action again."""
        twin = self.copy_episode()
        twin._surface, twin._actions = build_surface(self.chosen.surface, pictures=self.chosen.pictures), ()
        async with AsyncExitStack() as opened:
            opened.push_async_callback(twin.close)
            await twin._open()
            for action in self._actions:
                await twin._do(action)
            opened.pop_all()
        return twin

    async def teardown(self) -> None:
        """Close the surface."""
        await self._surface.close()

    @property
    def _current(self) -> Seen:
        assert self._seen is not None, "setup shows the first page"
        return self._seen

    @property
    def _pictures(self) -> tuple[Part, ...]:
        """The page as a picture, where there is one; blank pages have none."""
        picture = self._current.picture
        return () if picture is None or self.chosen.page == "blank" else (picture,)

    async def _open(self) -> None:
        self._seen = await self._surface.open(self._visit.state)
        self._urls, self._start = (self._seen.url,), 0

    async def act(self, choose: Callable[[Page], Action]) -> Shown:
        """Do what `choose` makes of the page; return what is shown then."""
        try:
            await self._do(choose(self._current.page))
        except ToolFailure:
            if self.chosen.site == "terse":
                raise ToolFailure(REFUSED) from None
            raise
        placed = len(self._surface.state.orders) > len(self._visit.state.orders)
        self.done = self._visit.purchase is not None and placed
        return self._show()

    async def _do(self, action: Action) -> None:
        before = (self._current.url, self._surface.state)
        self._seen = await self._surface.act(action)
        self._actions = (*self._actions, action)
        if isinstance(action, Scroll):
            last = max(len(format_page(self._seen.page).splitlines()) - 1, 0)
            step = self.chosen.window if action.direction == "down" else -self.chosen.window
            self._start = max(self._start + step, 0) if self._start + step <= last else self._start
        elif isinstance(action, Back):
            self._urls, self._start = self._urls[:-1], 0
        elif (self._seen.url, self._surface.state) != before:
            self._urls, self._start = (*self._urls, self._seen.url), 0

    def _write_page(self) -> str:
        return write_page(self._current.page, self.chosen, self._start)

    def _show(self) -> Shown:
        text = self._write_page()
        if self.chosen.remind:
            text += f"\n{self._visit.question}"
        return [*self._pictures, TextPart(text=text)] if self._pictures else text
