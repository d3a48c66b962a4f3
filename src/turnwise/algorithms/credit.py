"""The view of a batch for credit assignment: numbers per trajectory and per turn, no text, no token ids.

A credit method is a pure function from all trajectories of a step to one advantage per sampled token:

    CreditFunction = (Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]

`TokenAdvantages` has one float64 array per turn, `[turn.num_tokens]`; None marks a trajectory that must not train (its
reward is None). Groups are found by `group`, never by position. Observation tokens do not appear at all, so no method
can count them. Turns are in the order of time.

Placement of rewards: a turn's reward on its last sampled token, the outcome on the last sampled token of the
trajectory. A turn without sampled tokens passes its reward to the last turn before it that has some, or else to the
first turn that has some: no reward is lost. A trajectory without any sampled token counts in the statistics of its
group and trains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

TokenField = Literal["values", "logprobs", "reference_logprobs", "implicit_rewards", "squared_mass"]
"""Fields of a CreditTurn with one number per sampled token."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CreditTurn:
    """One reply. Optional fields are None if they were not measured; a method declares which ones it needs."""

    num_tokens: int
    """Sampled tokens, at least 0."""
    parent: int | None = None
    """Index of the turn before it in this trajectory; None for the first."""
    node: int | None = None
    """Number of the turn in its search tree: two leaves of one tree contain the same sampled turn if the numbers agree.
    None if turns are not numbered."""
    reward: float = 0.0
    """Reward for the end of this turn, in addition to the trajectory's outcome."""
    state: str | None = None
    """Key of the state before the turn (environment state hash, or the observation): equal keys are the same anchor
    state."""
    state_value: float | None = None
    """Monte-Carlo estimate of the value of the state before the turn."""
    process_score: float | None = None
    """A process reward model's score of this turn."""
    answer_probability: float | None = None
    """Geometric mean probability that the policy assigns to the gold answer after this turn's observations, in [0,
    1]."""
    progress: float | None = None
    """Predicted contribution of this turn to the outcome."""
    potential: float | None = None
    """Potential of the state before the turn."""
    values: FloatArray | None = None
    """Critic's value of the state before each sampled token, `[num_tokens]`."""
    logprobs: FloatArray | None = None
    """Log-probabilities at sampling, `[num_tokens]`."""
    reference_logprobs: FloatArray | None = None
    """Log-probabilities under the reference policy, `[num_tokens]`."""
    implicit_rewards: FloatArray | None = None
    """Rewards from an implicit process reward model, `[num_tokens]`."""
    squared_mass: FloatArray | None = None
    """Sum of squared probabilities over the vocabulary at each sampled token, `[num_tokens]`, in (0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CreditTrajectory:
    """One attempt."""

    group: str
    """Trajectories with the same key answered the same task."""
    reward: float | None
    """Outcome; None if it could not be scored: the trajectory is left out of every statistic and does not train."""
    turns: tuple[CreditTurn, ...]
    parts: Mapping[str, float] = field(default_factory=dict)
    """The outcome's named components, unweighted."""
    answer_prior: float | None = None
    """Probability of the gold answer before the first turn, in [0, 1]; None if it was not measured."""
    greedy_reward: float | None = None
    """Outcome of the greedy attempt at the same task."""
    role: str = ""
    """Role and environment of the policy in self-play."""
    tree: str | None = None
    """Trajectories with the same key are leaves of one search tree."""
    truncated: bool = False
    """Whether a limit, not the environment, ended it."""
    final_value: float | None = None
    """Critic's value after the last turn, to bootstrap from when truncated."""


TokenAdvantages = list[FloatArray]
"""One array per turn, `[turn.num_tokens]` each."""

CreditFunction = Callable[[Sequence[CreditTrajectory]], "list[TokenAdvantages | None]"]


@runtime_checkable
class StatefulCredit(Protocol):
    """A credit function with state that is kept between steps and can be saved and restored."""

    def __call__(self, trajectories: Sequence[CreditTrajectory], /) -> list[TokenAdvantages | None]:
        """As any CreditFunction; updates the state."""

    def state_dict(self) -> dict[str, object]:
        """The state as plain JSON values."""

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what `state_dict` returned. Raises ValueError when it is of another shape."""


Compares = Literal["group", "leaves", "nothing"]
Branches = Literal["none", "values", "random", "entropy"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CreditMethod:
    """One row of the table of credit methods, below the function that it describes: everything the library knows about
    the method."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other names a recipe may use, spelled as in the papers."""
    summary: str
    """What it estimates, in one line."""
    formula: str
    paper: str
    """arXiv id, or the place of its definition."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Every option with its default; any other name is refused."""
    group_of_one: str
    """What a trajectory gets that is alone in its group."""
    constant_group: str
    """What a group with equal rewards gets."""
    needs: tuple[str, ...] = ()
    """Fields of CreditTurn or CreditTrajectory that are optional in general but required by this method, whatever its
    options."""
    compares: Compares = "group"
    """What a trajectory is compared with. "group": the attempts at one task, so at least two are needed. "leaves": also
    the branches of an attempt, so one attempt is enough. "nothing": a trajectory is treated alone, or the whole batch
    is used."""
    branches: Branches = "none"
    """Which further continuations of an attempt are sampled. "values": rollouts from the state before every turn, whose
    mean reward is its value. "random" and "entropy": leaves that train, from random turns or where the policy is
    uncertain."""
    annotators: tuple[str, ...] = ()
    """Measurements to make on finished trajectories: the reward of a greedy attempt at the same task
    ("greedy_baseline"), the probability of the right answer after every turn ("answer_probability"), or the import path
    of a user's own annotator (`credit/annotator_kind.py`)."""
    build: Callable[..., CreditFunction]
    """Builds the function from keyword options."""
    returns: Callable[..., list[FloatArray]] | None = None
    """Computes the critic's targets from a trajectory and the method's options (without `whitening` and `epsilon`): one
    array per turn, `[turn.num_tokens]`, NaN at tokens without a target. None if no critic learns."""

    @property
    def takes_token_penalty(self) -> bool:
        """Whether it distributes rewards over tokens, including a KL penalty (`kl_coefficient`)."""
        return "kl_coefficient" in self.defaults

    @property
    def takes_batch_statistics(self) -> bool:
        """Whether it whitens over all trajectories passed to it, whatever their groups."""
        return "whitening" in self.defaults


def broadcast_outcome(
    trajectories: Sequence[CreditTrajectory], advantages: Sequence[float | None]
) -> list[TokenAdvantages | None]:
    """Assign one number per trajectory to all its sampled tokens; None stays None."""
    return [
        None if value is None else [np.full(turn.num_tokens, value, dtype=np.float64) for turn in trajectory.turns]
        for trajectory, value in zip(trajectories, advantages, strict=True)
    ]


def group_indices(keys: Sequence[str]) -> list[list[int]]:
    """Return the positions of equal keys, in the order of first appearance."""
    positions: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        positions.setdefault(key, []).append(index)
    return list(positions.values())


def compute_total_reward(trajectory: CreditTrajectory) -> float | None:
    """Outcome plus all turn rewards; None if the outcome is None."""
    if trajectory.reward is None:
        return None
    return trajectory.reward + math.fsum(turn.reward for turn in trajectory.turns)


def build_outcome_credit(estimate: Callable[[Sequence[CreditTrajectory]], Sequence[float | None]]) -> CreditFunction:
    """Build a credit function that assigns the same number to every sampled token of a trajectory.

    `estimate` receives the members of one group and returns one advantage per member, None where the reward is None.
    """

    def compute(trajectories: Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]:
        advantages: list[float | None] = [None] * len(trajectories)
        for members in group_indices([trajectory.group for trajectory in trajectories]):
            for index, value in zip(members, estimate([trajectories[i] for i in members]), strict=True):
                advantages[index] = value
        return broadcast_outcome(trajectories, advantages)

    return compute


def compute_turn_rewards(trajectory: CreditTrajectory) -> FloatArray:
    """Compute the reward per turn, `[len(turns)]`, with the outcome on the last turn with sampled tokens.

    Sums to the total reward as long as any token was sampled; all zero otherwise. Raises ValueError when the outcome is
    None.
    """
    if trajectory.reward is None:
        raise ValueError("reward is None: an unscored trajectory has no rewards to assign to turns; leave it out first")
    rewards = np.zeros(len(trajectory.turns))
    sampled = [index for index, turn in enumerate(trajectory.turns) if turn.num_tokens]
    if not sampled:
        return rewards
    receiver = sampled[0]
    for index, turn in enumerate(trajectory.turns):
        receiver = index if turn.num_tokens else receiver
        rewards[receiver] += turn.reward
    rewards[sampled[-1]] += trajectory.reward
    return rewards


def compute_token_rewards(trajectory: CreditTrajectory, *, kl_coefficient: float = 0.0) -> FloatArray:
    """Compute the reward per sampled token, all turns joined, `[L]`: turn rewards on the turns' last tokens, minus the
    KL penalty.

    The penalty of a token is `kl_coefficient * (logprob - reference_logprob)`, the k1 estimate of KL(policy ||
    reference); it may be negative. Raises ValueError when the outcome is None, or when a coefficient is set and a turn
    lacks either log-probability.
    """
    lengths = np.array([turn.num_tokens for turn in trajectory.turns], dtype=np.int64)
    rewards = np.zeros(int(lengths.sum()))
    ends = np.cumsum(lengths) - 1
    rewards[ends[lengths > 0]] = compute_turn_rewards(trajectory)[lengths > 0]
    if kl_coefficient:
        rewards -= kl_coefficient * (join_turns(trajectory, "logprobs") - join_turns(trajectory, "reference_logprobs"))
    return rewards


def join_turns(trajectory: CreditTrajectory, name: TokenField) -> FloatArray:
    """Join one per-token field of all turns end to end, `[L]`, float64.

    Raises ValueError when a turn with sampled tokens lacks it.
    """
    joined: list[FloatArray] = [np.zeros(0)]
    for index, turn in enumerate(trajectory.turns):
        array: FloatArray | None = getattr(turn, name)
        if array is None or array.shape != (turn.num_tokens,):
            if array is None and not turn.num_tokens:
                continue
            problem = "missing" if array is None else f"of shape {list(array.shape)}"
            raise ValueError(
                f"turn {index} of a trajectory of group {trajectory.group!r}: {name} is {problem}; expected shape "
                f"[{turn.num_tokens}]"
            )
        joined.append(np.asarray(array, dtype=np.float64))
    return np.concatenate(joined)


def split_turns(trajectory: CreditTrajectory, joined: FloatArray) -> TokenAdvantages:
    """The inverse of `join_turns`: split `[L]` into one array per turn. Raises ValueError for any other length."""
    lengths = [turn.num_tokens for turn in trajectory.turns]
    if joined.shape != (sum(lengths),):
        raise ValueError(f"cannot split an array of shape {list(joined.shape)} into turns of {lengths} sampled tokens")
    return list(np.split(joined, np.cumsum(lengths)[:-1])) if lengths else []
