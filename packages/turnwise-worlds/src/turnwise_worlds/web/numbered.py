"""WebArena's actions: on elements that are called by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwise_worlds.web.actions import Click, ClickAt, Direction, Goto, Scroll, Select, Type
from turnwise_worlds.web.environment import Shown, WebEnvironment


class NumberedEnvironment(WebEnvironment):
    """A visit with numbered elements."""

    def tools(self) -> Sequence[Callable[..., object]]:
        """Return WebArena's actions; with pictures, clicks on them too."""
        tools: list[Callable[..., object]] = [
            self.click,
            self.type,
            self.select,
            self.scroll,
            self.back,
            self.goto,
            self.stop,
        ]
        return [*tools, self.click_at] if self.chosen.pictures else tools

    async def click(self, number: int) -> Shown:
        """Click on an element: a link, a button, a radio button or a check box.

        Args:
            number: The number in front of the element.
        """
        return await self.act(lambda page: Click(number))

    async def type(self, number: int, text: str, enter: bool = False) -> Shown:
        """Write into a text field, in the place of what it has.

        Args:
            number: The number in front of the field.
            text: One line.
            enter: Whether to press enter then, which sends the form.
        """
        return await self.act(lambda page: Type(number, text, enter))

    async def select(self, number: int, option: str) -> Shown:
        """Choose an option of a combobox.

        Args:
            number: The number in front of the combobox.
            option: The option's text.
        """
        return await self.act(lambda page: Select(number, option))

    async def scroll(self, direction: Direction) -> Shown:
        """Move what is visible of a long page.

        Args:
            direction: Where to.
        """
        return await self.act(lambda page: Scroll(direction))

    async def goto(self, path: str) -> Shown:
        """Open a page of this site.

        Args:
            path: Its address, such as /cart.
        """
        return await self.act(lambda page: Goto(path))

    async def click_at(self, x: int, y: int) -> Shown:
        """Click at a place of the picture.

        Args:
            x: Pixels from the left.
            y: Pixels from the top.
        """
        return await self.act(lambda page: ClickAt(x, y))
