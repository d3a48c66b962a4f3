"""The keyword arguments of the family `math_code`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SkipValidation, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, Seconds, Share, check_unread, check_weights
from turnwise.environments.file_splits import MAX_BAD_ROWS
from turnwise.environments.math_code.problems import KINDS
from turnwise.environments.math_code.reasoning import DATASETS
from turnwise.environments.math_code.stories import STORY_KINDS
from turnwise.rewards.math_answer import RewardRule

Mode = Literal["generated", "stories", "reasoning_gym", "files"]
Prompt = Literal["short", "boxed", "retool"]


class MathArguments(FamilyArguments):
    """Problems that are easier with an interpreter."""

    mode: Mode = "generated"
    """"generated": arithmetic that a small model can copy into code but not do in its head. "stories": word problems in
    natural language, with several steps and irrelevant numbers. "reasoning_gym": problems of that package. "files": the
    user's own rows."""
    kinds: Annotated[Mapping[str, float] | None, SkipValidation] = None
    """Kind of problem ("generated", "stories") or data set ("reasoning_gym") to weight; None weights all equally."""
    train_path: str = ""
    """JSONL, JSON or Parquet training problems of mode "files" (layouts: see `datasets`)."""
    heldout_path: str = ""
    """JSONL, JSON or Parquet held-out problems of mode "files"."""
    max_bad_rows: Share = MAX_BAD_ROWS
    """Largest share of a file's rows that may be bad: these are left out, counted and named by file and line. With
    more, the run does not start."""
    prompt: Prompt = "retool"
    r""""retool" explains the tags, "boxed" asks a chat model for a `\boxed{}` answer, "short" is the question alone."""
    code: bool = True
    """Whether there is an interpreter. False is a control that must fail: programs are answered with a line saying
    so."""
    calculator: bool = False
    """Whether there is also a calculator; `code = false` removes both."""
    max_calls: int = Field(4, ge=0, le=2**62)
    """Most programs and expressions that an episode may run; further ones are answered with a line saying so."""
    wall_s: Seconds = 5.0
    """Most seconds of real time for a program."""
    memory_mib: int = Field(1024, ge=16, le=2**40)
    """Most memory that a program may use, in MiB."""
    output_bytes: int = Field(65_536, ge=1, le=2**40)
    """Bytes of a program's output that are kept, standard output and standard error each."""
    traceback_lines: int = Field(5, ge=1, le=2**40)
    """Last lines of a traceback that the model sees; 1 suits tiny models."""
    reward: RewardRule = "sign"
    """"sign": 1 or -1. "verl": a wrong answer costs less after more turns (see `compute_retool_reward`)."""
    bug_rate: Share = 0.75
    """Probability that the naive policy's first program contains its kind's slip."""
    fix_rate: Share = 0.15
    """Probability that the naive policy corrects a failed program instead of guessing."""
    sandbox: str = "local"
    """"local", or the import path "package.module:callable" of a function that builds a `Sandbox`."""
    sandbox_args: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of that call."""
    compare_timeout_s: Seconds = 10.0
    """Most seconds for comparing one answer, in its own process."""
    tool_timeout_s: Seconds = 30.0
    """Most seconds that a call may take, including the wait for a free place in the sandbox."""
    reward_timeout_s: Seconds = 60.0
    """Most seconds for scoring, including waits."""

    @property
    def weights(self) -> dict[str, float]:
        """The positive weights of `kinds`; empty in mode "files". Raises ConfigError."""
        if self.mode == "files":
            return {}
        names = {"generated": tuple(KINDS), "stories": tuple(STORY_KINDS), "reasoning_gym": DATASETS}[self.mode]
        return check_weights("kinds", self.kinds, names)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.weights
        if self.mode != "files":
            check_unread(self, ("train_path", "heldout_path"), self.mode)
        if self.wall_s >= self.tool_timeout_s:
            raise ConfigError(
                f"wall_s={self.wall_s} leaves no time within tool_timeout_s={self.tool_timeout_s} to wait for a free "
                "place; raise tool_timeout_s"
            )
        return self
