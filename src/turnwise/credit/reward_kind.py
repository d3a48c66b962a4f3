"""One row of rewards of groups, and the parts from which such a reward is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnwise.config.section import Section
from turnwise.core.protocols import EnvironmentFamily, Renderer
from turnwise.core.rewards import GroupReward
from turnwise.core.types import TrajectoryGroup
from turnwise.credit.annotator_kind import ScoreSamples

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardParts:
    """The parts of a run that a reward may use."""

    name: str
    """The reward's name in the recipe."""
    options: Any
    """An object of the row's `options`, or the recipe's table if the row has none."""
    family: EnvironmentFamily
    renderer: Renderer
    score: ScoreSamples
    seed: int
    tokenizer: PreTrainedTokenizerBase | None = None
    """None where scripted policies play, whose attempts have no tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardAccount:
    """Why a reward gave a trajectory its value."""

    value: float
    reason: str
    """What was found, such as "2 of 5 calls failed: calls 3 and 4"."""
    change: str = ""
    """What would have changed the value, such as "without them"; empty if nothing is known that would."""
    changed: float | None = None
    """The value after that change; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardKind:
    """One row of rewards, named in `rewards.NAME.kind`: offered by an installed package, or at the import path
    "package.module:NAME"."""

    name: str
    summary: str
    formula: str = ""
    """The value of one trajectory."""
    paper: str = ""
    """Where the formula comes from; empty if it has no source."""
    options: type[Section] | None = None
    """What `rewards.NAME.options` may hold; None leaves the options, unchecked, to `build`."""
    build: Callable[[RewardParts], GroupReward]
    explain: Callable[[TrajectoryGroup, int, Any], RewardAccount] | None = None
    """Accounts for the value of the group's member at an index under the options, from what is stored: without a model.
    None if it cannot."""
