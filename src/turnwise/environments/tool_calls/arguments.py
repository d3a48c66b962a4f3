"""The keyword arguments of the family `tool_calls`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, SkipValidation, model_validator

from turnwise.environments.arguments import FamilyArguments, Share, check_weights
from turnwise.environments.tool_calls.environment import Prompt, SchemaSwitch
from turnwise.environments.tool_calls.problems import MAX_PARAMETERS, MAX_TOOLS, NUM_CALLS
from turnwise.environments.tool_calls.words import MAX_WORDS, MIN_WORDS
from turnwise.rewards.tool_rl import Granularity


class ToolCallsArguments(FamilyArguments):
    """Requests that take one to three API calls, or none. The calls themselves take no time."""

    kinds: Annotated[Mapping[str, float] | None, SkipValidation] = None
    """Kind of problem (`NUM_CALLS`) to weight; None gives all the same weight."""
    num_tools: int = Field(4, ge=3, le=MAX_TOOLS)
    """Tools an API shows."""
    max_parameters: int = Field(2, ge=2, le=MAX_PARAMETERS)
    """Parameters a tool has at most."""
    num_words: int = Field(MAX_WORDS, ge=MIN_WORDS, le=MAX_WORDS)
    """Different numbers in names, and different values; fewer are easier for a small model."""
    shuffle_slots: bool = True
    """Whether a request gives the values in any order, and leaves out any, instead of in the schema's and the last."""
    prompt: Prompt = "chat"
    """"short" writes the API out in the first message; "chat" leaves that to the chat template and explains the
    task."""
    schema_: SchemaSwitch = Field("on", alias="schema")
    """"on", or a control that must fail: "shuffled" or "blanked" (see `Rules`)."""
    granularity: Granularity = "fine"
    """How partly right calls are rewarded: "fine" (ToolRL), "refined", "intermediate" or "coarse"."""
    scale: float = Field(3.0, ge=1e-6, le=1e6)
    """Correctness lies in [-scale, scale]; ToolRL's is 3."""
    naive_skill: Share = 0.1
    """Probability that the naive policy makes all calls of a request that takes several."""
    naive_tact: Share = 0.35
    """Probability that the naive policy says the right thing where no call is right."""

    @property
    def weights(self) -> dict[str, float]:
        """The positive weights of `kinds`. Raises ConfigError."""
        return check_weights("kinds", self.kinds, tuple(NUM_CALLS))

    @model_validator(mode="after")
    def _check_kinds(self) -> Self:
        _ = self.weights
        return self
