"""Arguments of the family "agent"."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from turnwise.core.episodes import AGENT, ASIDE
from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, Seconds
from turnwise.gateway.session import ROLE

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
    """A function "package.module:function" of a task and an outcome that returns a number or a reward, or a dict with
    one for each of the `roles`. Empty: a posted reward counts, else an outcome that is one of these, else the family
    judges the replies of the first conversation."""
    on_error: Literal["invalid", "score"] = "invalid"
    """What a raising agent means. "invalid": nothing is known, and the attempt is repeated. "score": it failed, and its
    exception is scored as its outcome, or, without `score`, the family judges the replies up to there."""
    model: str = Field("policy", min_length=1)
    """The name of the model that the agent asks for, where it is written into the agent. A slash and a role behind it
    name the role of a conversation."""
    reasoning: Literal["keep", "follow"] = "keep"
    """What it means when the agent leaves out a reply's reasoning. "keep": the reasoning stays in the context.
    "follow": the context is what the agent sends, which makes a conversation of its own of every such request."""
    on_rewrite: Literal["branch", "refuse"] = "branch"
    """What becomes of a request whose earlier messages are not those received and delivered. "branch": a conversation
    of its own, which trains. "refuse": an error that says what differs; the attempt is invalid."""
    train_roots: str = "tools"
    """The conversations that train. "tools": those that offered tools, all if none did. "first": the first one, with
    what branches from it. "all". Or a function "package.module:function" of the openings of those that began from
    nothing, in their order (`core.types.ConversationOpening`), that returns a bool for each."""
    roles: list[str] = Field(default_factory=list)
    """Roles that have trajectories, rewards and bindings in `[roles]` of their own: a conversation has the role that
    its client named with the model, as in "policy/planner". All of them train, and no others. Empty: one trajectory
    has everything, and its reward credits every turn."""

    @field_validator("roles")
    @classmethod
    def _check_roles(cls, roles: list[str]) -> list[str]:
        for at, role in enumerate(roles):
            if not ROLE.fullmatch(role) or role in (AGENT, ASIDE) or role in roles[:at]:
                raise ConfigError(
                    f"roles has {role!r}; name each role once, by letters, digits, hyphens and underscores, and none "
                    f"{AGENT} or {ASIDE}"
                )
        return roles

    @model_validator(mode="after")
    def _check_trained(self) -> Self:
        if self.roles and "train_roots" in self.model_fields_set and self.train_roots != "all":
            raise ConfigError(
                f"train_roots={self.train_roots!r} has no effect with roles, all of whose conversations train; leave "
                "it out"
            )
        return self
