"""Arguments of the family "agent"."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.environments.arguments import FamilyArguments, Seconds

SANDBOX = ("wall_s", "memory_mib", "disk_mib", "output_bytes", "max_processes", "max_programs")
"""Arguments that only agents in the sandbox read."""


class AgentArguments(FamilyArguments):
    """Whose tasks are played, by which agent, and what its outcome is worth."""

    agent: str = ""
    """The agent: a function "package.module:function", async or plain, of a task, a base URL and an API key. It returns
    its outcome. Either this or `command`."""
    command: list[str] = Field(default_factory=list)
    """A program instead of a function. It finds the task as JSON on its standard input, and the endpoint in
    OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY and TURNWISE_MODEL. What it
    prints is its outcome."""
    sandbox: bool = False
    """Run `command`, with all that it runs, inside the sandbox, where the endpoint is the only network. It works in a
    folder of its own with the task's files (`payload["files"]`), and its JSON has no payload. `python FILE` runs a file
    of this machine in a preloaded interpreter."""
    wall_s: Seconds = 60.0
    """Most seconds that a program in the sandbox may take, its replies included."""
    memory_mib: int = Field(512, ge=16, le=2**40)
    """Most memory of such a program and all that it runs, in MiB."""
    disk_mib: int = Field(64, ge=1, le=2**40)
    """Most that it may write, in MiB."""
    output_bytes: int = Field(65_536, ge=1, le=2**40)
    """Most bytes that it may print, standard output and standard error each."""
    max_processes: int = Field(64, ge=1, le=2**20)
    """Most processes and threads at the same time, in each program."""
    max_programs: int = Field(64, ge=1, le=4096)
    """Most programs at the same time; further ones wait."""
    family: str
    """The family whose tasks are played: a name, or an import path. Its environments serve the warm-up's
    demonstrations, whose tools the agent is expected to offer by the same names."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of that family."""
    score: str = ""
    """A function "package.module:function" of a task and an outcome that returns a number or a reward. Empty: a posted
    reward counts, else an outcome that is a number, else the family judges the replies of the first conversation."""
    on_error: Literal["invalid", "score"] = "invalid"
    """What a raising agent means. "invalid": nothing is known, and the attempt is repeated. "score": it failed, and its
    exception is scored as its outcome, or, without `score`, the family judges the replies up to there."""
    train_roots: Literal["tools", "first", "all"] = "tools"
    """The conversations that train. "tools": those that offered tools, all if none did. "first": the first one, with
    what branches from it."""
