"""WebShop's actions: a search, and clicks on elements that are called by what is written on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwise.core.errors import ToolFailure
from turnwise_worlds.web.actions import Click, Type
from turnwise_worlds.web.environment import Shown, WebEnvironment
from turnwise_worlds.web.page import TYPED, Page


def find_search(page: Page, query: str) -> Type:
    """Return the action that searches. Raises ToolFailure where there is no field to search in."""
    field = next((node for node in page.nodes if node.role in TYPED and node.target == "q"), None)
    if field is None or field.number is None:
        raise ToolFailure("this page has no search")
    return Type(field.number, query, enter=True)


def find_named(page: Page, name: str) -> Click:
    """Return the click on the first element with this name, in any case. Raises ToolFailure if there is none."""
    wanted = " ".join(name.split()).lower()
    named = (node for node in page.nodes if node.number is not None and node.name.lower() == wanted)
    node = next(named, None)
    if node is None or node.number is None or not wanted:
        raise ToolFailure("this page has no such element")
    return Click(node.number)


class NamedEnvironment(WebEnvironment):
    """A visit with named elements."""

    def tools(self) -> Sequence[Callable[..., object]]:
        """Return WebShop's actions, the way back, and stop."""
        return [self.search, self.click, self.back, self.stop]

    async def search(self, query: str) -> Shown:
        """Search the shop.

        Args:
            query: Words.
        """
        return await self.act(lambda page: find_search(page, query))

    async def click(self, name: str) -> Shown:
        """Click on an element.

        Args:
            name: What is written on it.
        """
        return await self.act(lambda page: find_named(page, name))
