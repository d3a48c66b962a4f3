"""A search episode with a budget of effort."""

from __future__ import annotations

from typing import Any

from turnwise.environments.search_qa.environment import SearchEnvironment

NO_SEARCHES = "no searches are left\n"


class BudgetedSearch(SearchEnvironment):
    """A question, a search tool that may be used `max_searches` times, an answer. Single use."""

    def __init__(self, *, max_searches: int, **arguments: Any) -> None:
        """The other arguments are those of `SearchEnvironment`."""
        super().__init__(**arguments)
        self._max_searches = max_searches

    def search(self, query: str) -> str:
        """Search the corpus for passages that share words with a query.

        Args:
            query: What to look for.
        """
        return NO_SEARCHES if len(self.tool_records) >= self._max_searches else super().search(query)
