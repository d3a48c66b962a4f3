"""The keyword arguments of the family `tool_calls`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, SkipValidation, model_validator

from turnwise.environments.arguments import FamilyArguments, Share, check_unread, check_weights
from turnwise.environments.file_splits import MAX_BAD_ROWS
from turnwise.rewards.tool_rl import Granularity
from turnwise_worlds.tool_calls.problems import MAX_PARAMETERS, MAX_TOOLS, NUM_CALLS
from turnwise_worlds.tool_calls.words import MAX_WORDS, MIN_WORDS

Mode = Literal["generated", "files"]
Prompt = Literal["short", "chat"]
SchemaSwitch = Literal["on", "shuffled", "blanked"]
_OF_FILES = frozenset({"train_path", "heldout_path", "max_bad_rows"})
_OF_BOTH = frozenset({"mode", "naive_skill", "naive_tact", *FamilyArguments.model_fields})


class ToolCallsArguments(FamilyArguments):
    """Requests that require API calls, or none. The calls take no time."""

    mode: Mode = "generated"
    """"generated": APIs with opaque names, and requests that require one to three calls, or none. "files": the user's
    rows with lists of allowed calls (BFCL's layout, see `rows`), each with its own functions and messages; of the
    arguments below, this mode uses the paths, `max_bad_rows` and the naive policy's."""
    train_path: str = ""
    """JSONL, JSON or Parquet training rows of mode "files"."""
    heldout_path: str = ""
    """JSONL, JSON or Parquet held-out rows of mode "files"."""
    max_bad_rows: Share = MAX_BAD_ROWS
    """Largest share of a file's rows that may be bad: these are left out, counted and named by file and line. With
    more, the run does not start."""
    kinds: Annotated[Mapping[str, float] | None, SkipValidation] = None
    """Kind of problem (`NUM_CALLS`) to weight; None weights all equally."""
    num_tools: int = Field(4, ge=3, le=MAX_TOOLS)
    """Number of tools that an API shows."""
    max_parameters: int = Field(2, ge=2, le=MAX_PARAMETERS)
    """Most parameters of a tool."""
    num_words: int = Field(MAX_WORDS, ge=MIN_WORDS, le=MAX_WORDS)
    """How many different numbers in names, and different values, are used; fewer are easier for a small model."""
    shuffle_slots: bool = True
    """Whether a request states its values in any order and may omit any, instead of in the schema's order, omitting the
    last."""
    prompt: Prompt = "chat"
    """"short" writes the API in the first message; "chat" leaves that to the chat template and explains the task."""
    schema_: SchemaSwitch = Field("on", alias="schema")
    """"on", or a control that must fail: "shuffled" permutes the numbers in an API's names, "blanked" makes them all
    0."""
    granularity: Granularity = "fine"
    """How partially right calls are rewarded: "fine" (ToolRL), "refined", "intermediate" or "coarse"."""
    scale: float = Field(3.0, ge=1e-6, le=1e6)
    """Correctness lies in [-scale, scale]; ToolRL's is 3."""
    naive_skill: Share = 0.1
    """Probability that the naive policy makes all calls of a request that requires several."""
    naive_tact: Share = 0.35
    """Probability that the naive policy says the right thing when no call is right."""

    @property
    def weights(self) -> dict[str, float]:
        """The positive weights of `kinds`. Raises ConfigError."""
        return check_weights("kinds", self.kinds, tuple(NUM_CALLS))

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.weights
        others = set(ToolCallsArguments.model_fields) - _OF_FILES - _OF_BOTH if self.mode == "files" else _OF_FILES
        check_unread(self, others, self.mode)
        return self
