"""The keyword arguments of the family `swe`."""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

from pydantic import Field, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, Seconds, Share

ToolName = Literal["bash", "view", "search", "edit", "edit_lines", "edit_diff", "test", "python", "pdb", "submit"]
Protocol = Literal["tools", "mini"]
Prompt = Literal["full", "short", "oracle"]


class SweArguments(FamilyArguments):
    """Bugs in real repositories."""

    instances: str = ""
    """JSONL file of instances (`turnwise bugs make`) from repositories listed by `turnwise repos list`."""
    library: str = ""
    """Folder of the repositories; "" is the one used by `turnwise repos add`."""
    heldout: list[str] | None = None
    """Packages whose instances form the held-out split; None holds out the packages that SWE-smith does not use."""
    allow_installed: bool = False
    """Whether to accept repositories that this Python has also installed, so that an agent could read the right
    source."""
    protocol: Protocol = "tools"
    """Protocol of replies; "mini" is mini-swe-agent's: one fenced command per reply, no tools."""
    tools: list[ToolName] = Field(default_factory=lambda: list(get_args(ToolName)))
    """The tools of protocol "tools"."""
    prompt: Prompt = "full"
    """"full" says what to do and how it is judged, "short" is only the issue, "oracle" instead names a failing test and
    shows the functions with the bug; for patches that create or remove files it is "short"."""
    max_lines: int | None = Field(None, ge=1)
    """Most lines of the functions with the bug together; instances with more are left out. None keeps all."""
    hide_tests: bool = False
    """Whether the agent's tree lacks the files of the tests that the bug breaks, which are still used for grading. The
    issue may name or quote them."""
    command_s: Seconds = 30.0
    """Most seconds of real time for a command, a snippet, a search, or a step of pdb."""
    test_s: Seconds = 120.0
    """Most seconds of real time for a run of tests."""
    disk_mib: int = Field(64, ge=1, le=65_536)
    """Most MiB of all changed files of an episode."""
    view_lines: int = Field(100, ge=1, le=100_000)
    """Most lines of a file shown at a time."""
    tool_timeout_s: Seconds = 600.0
    """Most seconds that a call may take, including the wait for a free place in the sandbox; a longer call is not the
    model's failure and makes the reward Invalid."""
    naive_right: Share = 0.3
    """Probability that an edit of the naive policy is the right one."""
    naive_test: Share = 0.2
    """Probability that the naive policy runs the failing tests after its edit instead of submitting."""
    sandbox: str = "local"
    """"local", or the import path "package.module:callable" of a function that builds a `Sandbox` with support for
    trees."""
    sandbox_args: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of that call."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.hide_tests and self.prompt == "oracle":
            raise ConfigError("prompt='oracle' shows a failing test, which hide_tests=true hides; change one of them")
        if "submit" not in self.tools:
            raise ConfigError(f"tools={self.tools!r} lacks 'submit', which every episode needs to succeed; add it")
        if max(self.command_s, self.test_s) >= self.tool_timeout_s:
            raise ConfigError(
                f"command_s={self.command_s:g} and test_s={self.test_s:g} leave no time within "
                f"tool_timeout_s={self.tool_timeout_s:g} to wait for a free place; raise tool_timeout_s"
            )
        return self
