"""The keyword arguments of `mcp`, and of all families whose tools come from servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, Seconds, Share
from turnwise.environments.file_splits import MAX_BAD_ROWS
from turnwise.rewards.normal_form import Normalize
from turnwise.tools.mcp.servers import McpServer

Scope = Literal["episode", "run"]


class ServedArguments(FamilyArguments):
    """Questions from a file, answered with the tools of servers. A subclass defines `servers`, by label."""

    scope: Scope = "episode"
    """"episode": every episode has its own sessions (and each stdio server its own process), so that no episode's
    changes reach another. "run": all episodes share one session per server; for servers whose tools only read, or
    distinguish episodes by an argument (`bind` in a row)."""
    connect_timeout_s: Seconds = 30.0
    """Most seconds for a server to start, shake hands and list its tools."""
    tools: list[str] | None = None
    """Names of the tools that the model sees, as shown to the model or as named by their servers; None shows all except
    `check_tool`."""
    train_path: str = ""
    """JSONL rows of the training split (see `rows`)."""
    heldout_path: str = ""
    """JSONL rows of the held-out split."""
    max_bad_rows: Share = MAX_BAD_ROWS
    """Largest share of a file's rows that may be bad: these are left out, counted and named by file and line. With
    more, the run does not start."""
    prompt: str = "{question}"
    """The first message; `{question}` stands for the row's question."""
    reward: str = "exact_match"
    """"exact_match" or "f1" of the answer against the row's; "tool": the verdict of `check_tool`; or the import path
    "package.module:function" of a function over (row, replies, tool records)."""
    normalize: Normalize = "numbers"
    """How answers are normalised before comparison: "numbers" keeps signs, decimal points and fractions; "squad" is
    SQuAD's rule, used for published figures, under which 3.14 equals 314 (see `rewards.normal_form`)."""
    check_tool: str = ""
    """For `reward="tool"`: the server's tool that judges. It receives the row's `check` arguments and the model's
    answer as the text `answer`, and returns a number or a truth value."""
    show_images: bool = False
    """Shows the images in tools' results to the model, which must be one that sees. Otherwise text names each with its
    type and size."""
    naive_skill: Share = 0.1
    """Probability that the policy "naive" makes all calls of the row instead of only the first."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.reward == "tool") != bool(self.check_tool):
            raise ConfigError(
                f"reward={self.reward!r} and check_tool={self.check_tool!r} do not match; set check_tool to the name "
                "of the judging tool with reward='tool', and only then"
            )
        if "{question}" not in self.prompt:
            raise ConfigError(f"prompt={self.prompt!r} lacks {{question}}; add it where the question belongs")
        for name, path in (("train_path", self.train_path), ("heldout_path", self.heldout_path)):
            if not path:
                raise ConfigError(f"{name}={path!r}: set it to the path of a JSONL file of rows")
        return self


class McpArguments(ServedArguments):
    """Tasks over the tools of Model Context Protocol servers."""

    servers: Mapping[str, McpServer]
    """Servers by label; `environment.args.servers.LABEL` holds the fields of `McpServer`."""

    @model_validator(mode="after")
    def _check_servers(self) -> Self:
        if not self.servers:
            raise ConfigError("servers={} has no MCP server; set environment.args.servers.LABEL.command or .url")
        return self
