"""Value functions of a search, and controls among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Environment
from turnwise.core.seeds import rng
from turnwise.core.types import IntArray, Reward, Scored
from turnwise.evaluation.summary import is_right


@runtime_checkable
class SolvedEnvironment(Protocol):
    """An optional method of environments: the exact value of their state."""

    def exact_value(self) -> float:
        """The highest success, between 0 and 1, that any policy reaches from here. Read between replies and at the
        end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """A state as a value function sees it."""

    token_ids: IntArray
    """`[N]` the conversation so far: what the next reply would be conditioned on, or everything up to the last
    reply."""
    environment: Environment | None
    """The environment in that state, not to be stepped; None for the end of a stored trajectory."""
    reward: Reward | None
    """Reward of the episode if it ended here, else None."""


class ValueFunction(Protocol):
    """Scores states."""

    def score(self, states: Sequence[Judged]) -> list[float]:
        """One value per state, between 0 and 1."""
        ...


class ExactValue:
    """The exact value, from environments that know it: an upper bound for a search."""

    def score(self, states: Sequence[Judged]) -> list[float]:
        """See `ValueFunction.score`. Raises ConfigError if an environment does not know it."""
        values: list[float] = []
        for state in states:
            if not isinstance(state.environment, SolvedEnvironment):
                raise ConfigError(
                    f"{type(state.environment).__name__} cannot compute exact values; define exact_value(), or leave "
                    "out the exact value"
                )
            values.append(state.environment.exact_value())
        return values


class OutcomeValue:
    """Knows only how an episode ended: 1 or 0 at an end, 0 elsewhere. It reads the reward, so it is only for training
    tasks, and for comparison with other value functions."""

    def score(self, states: Sequence[Judged]) -> list[float]:
        """See `ValueFunction.score`."""
        return [_read_outcome(state) for state in states]


@dataclass(frozen=True, slots=True)
class CheckedEnds:
    """The outcome at ends, and another value function elsewhere, for tasks whose answers anybody can check."""

    value: ValueFunction

    def score(self, states: Sequence[Judged]) -> list[float]:
        """See `ValueFunction.score`."""
        open_states = [state for state in states if state.reward is None]
        values = iter(self.value.score(open_states) if open_states else [])
        return [_read_outcome(state) if state.reward is not None else next(values) for state in states]


@dataclass(frozen=True, slots=True)
class RandomValue:
    """The control: a uniform random number that depends only on the state's tokens and a seed, and carries no
    information."""

    seed: int

    def score(self, states: Sequence[Judged]) -> list[float]:
        """See `ValueFunction.score`."""
        return [rng(self.seed, "value", *state.token_ids.tolist()).random() for state in states]


def _read_outcome(state: Judged) -> float:
    return float(isinstance(state.reward, Scored) and is_right(state.reward))
