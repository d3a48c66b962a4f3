"""The keyword arguments of the family `coding`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, SkipValidation, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, Seconds, Share, check_unread, check_weights
from turnwise.environments.file_splits import MAX_BAD_ROWS
from turnwise_worlds.coding.functions import Kind

Mode = Literal["generated", "files"]
Prompt = Literal["short", "chat"]
TestSwitch = Literal["on", "off", "shuffled"]


class CodingArguments(FamilyArguments):
    """Programs judged by hidden tests."""

    mode: Mode = "generated"
    """"generated": functions of a few numbers, by examples. "files": the user's own rows."""
    kinds: Annotated[Mapping[str, float] | None, SkipValidation] = None
    """Kind of function to weight: "arithmetic" computes three results of two numbers, "pipeline" filters, maps and
    folds a list; None weights both equally."""
    stdin: Share = 0.0
    """Share of generated problems whose program reads standard input; the others define a function."""
    shown: int = Field(1, ge=1, le=8)
    """Number of visible examples in the statement; the tool runs programs on all of them."""
    visible_tests: int = Field(2, ge=0, le=15)
    """Number of a file row's first tests that are visible; at least one test stays hidden."""
    hidden_tests: int = Field(10, ge=4, le=15)
    """Hidden tests per generated problem; for rows of a file, the maximum (the tests with the longest inputs are
    kept)."""
    train_path: str = ""
    """JSONL or Parquet training problems of mode "files" (layouts: see `datasets`)."""
    heldout_path: str = ""
    """JSONL or Parquet held-out problems of mode "files"."""
    max_bad_rows: Share = MAX_BAD_ROWS
    """Largest share of a file's rows that may be bad: these are left out, counted and named by file and line. With
    more, the run does not start."""
    prompt: Prompt = "chat"
    """"chat" explains the task, "short" shows only the examples, in words that a small model can copy."""
    tests: TestSwitch = "on"
    """"on", or a control that must fail: "off" answers every program with a line saying that there are no tests,
    "shuffled" with its results on another task's examples."""
    max_tests: int = Field(4, ge=0, le=2**62)
    """Most programs that an episode may run on the visible examples; further ones are answered with a line saying
    so."""
    wall_s: Seconds = 6.0
    """Most seconds of real time for a call, or for a program that reads standard input."""
    memory_mib: int = Field(512, ge=16, le=2**40)
    """Most memory it may use, in MiB."""
    naive_test: Share = 0.2
    """Probability that the naive policy runs a program before submitting it."""
    naive_fix: Share = 0.3
    """Probability that the naive policy corrects a program after a failing example."""
    sandbox: str = "local"
    """"local", or the import path "package.module:callable" of a function that builds a `Sandbox`."""
    sandbox_args: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of that call."""
    tool_timeout_s: Seconds = 60.0
    """Most seconds that a run may take, including the wait for a free place in the sandbox."""

    @property
    def weights(self) -> dict[Kind, float]:
        """The positive weights of `kinds`; empty in mode "files". Raises ConfigError."""
        kinds: tuple[Kind, ...] = get_args(Kind)
        weights = {} if self.mode == "files" else check_weights("kinds", self.kinds, kinds)
        return {kind: weights[kind] for kind in kinds if kind in weights}

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.weights
        if self.mode != "files":
            check_unread(self, ("train_path", "heldout_path"), self.mode)
        if self.prompt == "short" and self.mode == "files":
            raise ConfigError("prompt='short' has no wording for mode='files'; use prompt='chat'")
        if self.wall_s >= self.tool_timeout_s:
            raise ConfigError(
                f"wall_s={self.wall_s} leaves no time within tool_timeout_s={self.tool_timeout_s} to wait for a free "
                "place; raise tool_timeout_s"
            )
        return self
