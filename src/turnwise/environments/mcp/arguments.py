"""The keyword arguments of the families whose tools are those of servers, and those of `mcp`."""

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
    """Questions of a file, answered with the tools of servers. A subclass says what `servers` are, by label."""

    scope: Scope = "episode"
    """"episode": every episode has sessions of its own, a stdio server a process of its own, so that nothing one
    episode changes reaches another. "run": all episodes share one session per server; for servers whose tools only
    read, or tell episodes apart by an argument (`bind` in a row)."""
    connect_timeout_s: Seconds = 30.0
    """Seconds a server has to start, shake hands and list its tools."""
    tools: list[str] | None = None
    """Names of the tools that the model sees, as it reads them or as their servers have them; None shows all but
    `check_tool`."""
    train_path: str = ""
    """JSONL rows of the training split (see `rows`)."""
    heldout_path: str = ""
    """JSONL rows of the held-out split."""
    max_bad_rows: Share = MAX_BAD_ROWS
    """Share of a file's rows that may be bad: they are left out, counted and named by file and line. More end the start
    of the run."""
    prompt: str = "{question}"
    """The first message; `{question}` stands for the row's question."""
    reward: str = "exact_match"
    """"exact_match" or "f1" of the answer against the row's; "tool": what `check_tool` says; or the import path
    "package.module:function" of a function over (row, replies, tool records)."""
    normalize: Normalize = "numbers"
    """What answers are compared by: "numbers" keeps signs, decimal points and fractions, "squad" is SQuAD's rule, by
    which published figures were computed and 3.14 is 314 (see `rewards.normal_form`)."""
    check_tool: str = ""
    """For `reward="tool"`: the server's tool that judges. It gets the row's `check` arguments and `answer`, the model's
    answer as text, and returns a number or a truth value."""
    naive_skill: Share = 0.1
    """Probability that the policy "naive" makes all calls of the row instead of its first."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.reward == "tool") != bool(self.check_tool):
            raise ConfigError(
                f"reward={self.reward!r} and check_tool={self.check_tool!r} do not fit; reward='tool' needs the name "
                "of the tool that judges, and only it does"
            )
        if "{question}" not in self.prompt:
            raise ConfigError(f"prompt={self.prompt!r} lacks {{question}}; put it where the question belongs")
        for name, path in (("train_path", self.train_path), ("heldout_path", self.heldout_path)):
            if not path:
                raise ConfigError(f"{name}={path!r}: give the path of a JSONL file of rows")
        return self


class McpArguments(ServedArguments):
    """Tasks over the tools of Model Context Protocol servers."""

    servers: Mapping[str, McpServer]
    """Label to server; `environment.args.servers.LABEL` holds the fields of `McpServer`."""

    @model_validator(mode="after")
    def _check_servers(self) -> Self:
        if not self.servers:
            raise ConfigError("servers={} names no MCP server; give environment.args.servers.LABEL.command or .url")
        return self
