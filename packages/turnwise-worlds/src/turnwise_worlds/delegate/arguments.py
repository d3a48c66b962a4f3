"""The keyword arguments of the family `delegate`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.search_qa.arguments import SearchArguments

CHAINS = ("no_search", "1hop", "2hop", "3hop", "unanswerable")
"""Kinds of questions that a sequence of sub-questions answers."""
Agents = Literal["two", "one"]
AnswerSwitch = Literal["kept", "swapped"]


class DelegateArguments(SearchArguments):
    """Questions of the search world, answered by a planner that calls searchers.

    The arguments of `search_qa` have the same meaning; the questions are formally worded chains about generated worlds.
    """

    agents: Agents = "two"
    """"two": a planner and searchers. "one": a single agent that searches by itself, for comparison."""
    answers: AnswerSwitch = "kept"
    """"kept", or a control that must fail: "swapped" replaces a searcher's answer by the right answer to another task.
    Read only with two roles."""
    max_depth: int = Field(2, ge=1, le=100)
    """Maximum depth of calls: with 1 the planner asks searchers, which cannot ask others. A deeper call ends the
    episode. Read only with two roles."""
    max_replies: int = Field(24, ge=3, le=10_000)
    """Most replies of all agents of an episode together. Read only with two roles."""

    @model_validator(mode="after")
    def _check_chains(self) -> Self:
        if self.mode == "files" or self.wording != "formal":
            raise ConfigError(
                f"mode={self.mode!r} with wording={self.wording!r}: the family delegate supports only formal questions "
                "about generated worlds; use mode='fresh' or 'fixed' with wording='formal', or the family search_qa"
            )
        if composed := sorted(set(self.weights) - set(CHAINS)):
            raise ConfigError(f"kinds has {', '.join(composed)}; the family delegate supports only {', '.join(CHAINS)}")
        return self
