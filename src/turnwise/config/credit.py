"""From rewards to advantages: the credit method, what shapes a reward before it, and the critic some methods need."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class StageSection(Section):
    """One stage of `credit.shaping.stages`. The part of the reward that it scores must lie between 0 and 1."""

    weight: float = Field(1.0, ge=0)
    """Weight of a score of 1."""
    threshold: float = Field(1.0, ge=0, le=1)
    """Minimum score to pass. Below it the stage counts but later ones do not."""


class ShapingSection(Section):
    """What happens to rewards before they become advantages, in the order of these options. Metrics and evaluations
    report them as the environment gave them."""

    stages: dict[str, StageSection] = Field(default_factory=dict)
    """Progressive reward shaping (arXiv 2512.07478): replaces the reward by the weighted sum of its parts, in the order
    of the table and up to the first that does not pass. A label is the name of a part, or "reward" for the total. Empty
    keeps the reward."""
    success: str = "success"
    """Part of the reward that is 1 for a right answer; `few_calls` and `length_weight` read it."""
    few_calls: bool = False
    """Whether to multiply every reward by OTC's factor for few tool calls (arXiv 2504.14870): 1 with the fewest calls
    of a right answer in the group, less with more. A group without a right answer keeps its rewards."""
    length_weight: float = Field(0.0, ge=0)
    """Weight of Kimi k1.5's length reward (arXiv 2501.12599), which is added: from 0.5 for the fewest sampled tokens in
    a group to -0.5 for the most; a wrong answer gets at most 0. 0 is off."""
    max_tokens: int = Field(0, ge=0)
    """Trajectories that sampled this many tokens lose 1 (DAPO's overlong penalty); 0 is off."""
    buffer: int = Field(0, ge=0)
    """Number of tokens below `max_tokens` over which the penalty grows from 0; 1 makes it a hard limit."""
    gate: str = ""
    """Part of the reward, such as "success": a group in which no member has it at 1 gets equal rewards, so that shaping
    does not make failures look better than each other. Empty is off."""


class ImplicitSection(Section):
    """The implicit process reward model that prime learns beside the policy."""

    lr: float = Field(1e-3, gt=0)
    """Constant."""
    beta: float = Field(0.05, gt=0)
    """Reward of a token per nat of log-ratio to the policy RL started from."""


class BranchingSection(Section):
    """Further futures of an attempt, for credit methods that sample some; the environment must be able to fork."""

    num_continuations: int = Field(4, ge=0)
    """vine: number of rollouts from the state before every reply; their mean reward is its value, and they do not
    train. 0 forks nothing and reads signals called state_value, which the environment must then return with every
    reply."""
    num_branches: int = Field(2, ge=1)
    """tree: leaves added to each attempt per round. arpo: leaves added to each attempt, at most one per uncertain state
    and round; the remaining ones start from the beginning."""
    num_rounds: int = Field(1, ge=1)
    """tree: later rounds may branch from earlier branches."""
    entropy_threshold: float = Field(0.5, ge=0, le=1)
    """arpo: share of states to branch from when the entropy equals that at the start."""
    entropy_weight: float = Field(0.2, ge=0)
    """arpo: how much an increase of the entropy adds to that share."""
    num_entropy_tokens: int = Field(20, ge=1)
    """arpo: number of first tokens of a reply whose entropy counts."""


class CreditSection(Section):
    """The credit method; `turnwise algorithms` lists them all with their options."""

    method: str = "grpo"
    """A name from the table, or a paper's ("VinePPO"; case and punctuation do not matter), a name provided by an
    installed package, or the import path "package.module:NAME" of your own CreditFunction or of its row, a CreditMethod
    (docs/extending.md)."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the method, as a table; unknown ones are rejected."""
    shaping: ShapingSection = ShapingSection()
    """Changes to rewards before credit."""
    branching: BranchingSection = BranchingSection()
    """For credit methods that sample several futures of one past."""
    implicit: ImplicitSection = ImplicitSection()
    """For credit.method = "prime"."""


class CriticSection(Section):
    """The critic, for credit methods that read values (gae, turn_gae, bilevel_gae)."""

    kind: Literal["none", "head", "separate"] = "none"
    """"head": one linear layer on the policy's last hidden state, trained with the policy. "separate": a separate model
    that starts as a copy of the policy."""
    lr: float = Field(1e-3, gt=0)
    """Learning rate of the head, or of the whole separate model; constant."""
    clip: float = Field(0.2, ge=0)
    """Maximum change of a value in one step, in units of the reward; 0 does not clip."""
    coefficient: float = Field(0.5, gt=0)
    """Weight of the value loss relative to the policy's; "head" only."""
    epochs: int = Field(1, ge=1)
    """Optimizer steps of the critic per batch of rollouts; "separate" only."""
