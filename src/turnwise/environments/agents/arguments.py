"""Arguments of the family "agent"."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.environments.arguments import FamilyArguments


class AgentArguments(FamilyArguments):
    """Whose tasks are played, by which agent, and what its outcome is worth."""

    agent: str = ""
    """The agent: a function "package.module:function", async or plain, of a task, a base URL and an API key. It returns
    its outcome. Either this or `command`."""
    command: list[str] = Field(default_factory=list)
    """A program instead of a function. It finds the task as JSON on its standard input, and the endpoint in
    OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY and TURNWISE_MODEL. What it prints is its
    outcome."""
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
    exception is scored as its outcome; needs `score`."""
    model: str = Field("policy", min_length=1)
    """The name of the model that the agent asks for, where it is written into the agent. A slash and a role behind it
    name the role of a conversation."""
    reasoning: Literal["keep", "follow"] = "keep"
    """What it means when the agent leaves out a reply's reasoning. "keep": the reasoning stays in the context.
    "follow": the context is what the agent sends, which makes a conversation of its own of every such request."""
    on_rewrite: Literal["branch", "refuse"] = "branch"
    """What becomes of a request whose earlier messages are not those received and delivered. "branch": a conversation
    of its own, which trains. "refuse": an error that says what differs; the attempt is invalid."""
    train_roots: Literal["tools", "first", "all"] = "tools"
    """The conversations that train. "tools": those that offered tools, all if none did. "first": the first one, with
    what branches from it."""
