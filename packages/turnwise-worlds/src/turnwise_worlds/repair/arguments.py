"""The keyword arguments of the family `repair`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SkipValidation, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, Seconds, Share, check_weights
from turnwise_worlds.repair.bugs import KINDS, TRAINED_KINDS

TestSwitch = Literal["on", "off", "shuffled"]
TestsGraded = Literal["pristine", "workdir"]
Prompt = Literal["short", "shell"]


class RepairArguments(FamilyArguments):
    """Miniature programs with bugs."""

    prompt: Prompt = "shell"
    """"shell" explains the commands, "short" only states the request."""
    kinds: Annotated[Mapping[str, float] | None, SkipValidation] = None
    """Kind of bug to weight in the training split; None gives `TRAINED_KINDS` the same weight."""
    heldout_kinds: Annotated[Mapping[str, float] | None, SkipValidation] = None
    """Kind of bug to weight in the held-out split; None gives all `KINDS` the same weight."""
    min_functions: int = Field(4, ge=4, le=9)
    """Fewest functions of a program."""
    max_functions: int = Field(6, ge=4, le=9)
    """Most functions of a program."""
    bugs: int = Field(1, ge=1, le=2)
    """Bugs of one kind per program, each in a different function of one module. With two, an edit stays until its line
    is written again; with one, the next edit replaces it."""
    calls: bool = False
    """Whether functions call later ones of their module, so that a test may blame a caller of the faulty function."""
    decoys: bool = True
    """Whether the module without a bug has functions that look wrong but are right."""
    tests: TestSwitch = "on"
    """"on", or a control that must fail: "off" answers `test` with a line saying that there are no tests, "shuffled"
    blames another function."""
    tests_graded: TestsGraded = "pristine"
    """"pristine" rewards programs that pass the task's own tests, and gives 0 if a test was edited. "workdir" is a
    control that must show reward hacking: it rewards programs that pass the tests as the agent left them."""
    wall_s: Seconds = 2.0
    """Most seconds of real time for a run of the tests."""
    naive_test: Share = 0.1
    """Probability that the naive policy runs the tests first."""
    naive_retest: Share = 0.4
    """Probability that such an episode runs them again after an edit."""
    naive_again: Share = 0.7
    """Probability that the naive policy continues with another line after an untested edit."""
    naive_retry: Share = 0.5
    """Probability that it continues with another line if tests still fail."""
    naive_eye: Share = 0.1
    """Probability that it leaves a line whose code matches its intent, and views another."""
    naive_same: Share = 0.4
    """Probability that it takes the same line again when it continues."""
    naive_next: Share = 0.3
    """Probability that it takes the next line instead; otherwise any line."""
    naive_follow: Share = 0.0
    """Probability that it moves to a function that the viewed line calls, or that the tests blame."""
    naive_commands: int = Field(16, ge=1)
    """Number of commands after which it submits."""
    naive_cheat: Share = 0.0
    """Probability that it overwrites the failing test in an episode that runs the tests first."""
    sandbox: str = "local"
    """"local", or the import path "package.module:callable" of a function that builds a `Sandbox`."""
    sandbox_args: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of that call."""
    tool_timeout_s: Seconds = 30.0
    """Most seconds that a command may take, including the wait for a free place in the sandbox."""

    @property
    def weights(self) -> dict[str, dict[str, float]]:
        """The positive weights of each split's kinds. Raises ConfigError."""
        trained = dict.fromkeys(TRAINED_KINDS, 1.0) if self.kinds is None else self.kinds
        return {
            "train": check_weights("kinds", trained, KINDS),
            "heldout": check_weights("heldout_kinds", self.heldout_kinds, KINDS),
        }

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.weights
        if self.min_functions > self.max_functions:
            raise ConfigError(
                f"min_functions={self.min_functions} is above max_functions={self.max_functions}; lower min_functions"
            )
        if self.naive_same + self.naive_next > 1:
            raise ConfigError(
                f"naive_same={self.naive_same} and naive_next={self.naive_next} add up to more than 1; lower one"
            )
        if self.wall_s >= self.tool_timeout_s:
            raise ConfigError(
                f"wall_s={self.wall_s} leaves no time within tool_timeout_s={self.tool_timeout_s} to wait for a free "
                "place; raise tool_timeout_s"
            )
        return self
