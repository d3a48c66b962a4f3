"""Values, advantages and gradients of a world under a policy, by enumeration over turns and states: nothing is sampled.

The objective is J = mean over tasks of the probability to succeed. Turns are counted from 0; what remains until the
limit is part of the state of the world even where the policy does not see it, so values depend on the turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laboratory.world import FloatArray, World

OPTIMAL_TOLERANCE = 1e-9
"""Actions whose values differ by less are equally good."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """Success probabilities from every point of a trajectory."""

    states: FloatArray
    """`[T + 1, S + 2]`: before turn t in state s; row T is the turn limit; the last two columns are failure (0) and
    success (1)."""
    actions: FloatArray
    """`[T, S, A]`: after choosing action a in state s at turn t, before chance moves."""

    @property
    def advantages(self) -> FloatArray:
        """`[T, S, A]`: `Q_t(s, a) - V_t(s)`, the true advantage of a turn."""
        return self.actions - self.states[:-1, : self.actions.shape[1], None]


def compute_values(world: World, probabilities: FloatArray | None) -> Values:
    """`V_t(s) = sum_a pi(a|s) Q_t(s, a)`, `Q_t(s, a) = sum_s' P(s'|s, a) V_{t+1}(s')`, backwards from the turn limit.

    `probabilities` is `[S, A]`; None stands for the best policy, `V_t(s) = max_a Q_t(s, a)`.
    """
    num_states = world.num_states
    states = np.zeros((world.max_turns + 1, num_states + 2))
    states[:, world.success] = 1.0
    actions = np.zeros((world.max_turns, num_states, world.num_actions))
    first, second = world.next_states[..., 0], world.next_states[..., 1]
    for turn in reversed(range(world.max_turns)):
        after = states[turn + 1]
        actions[turn] = world.first_probability * after[first] + (1 - world.first_probability) * after[second]
        best_or_mean = (
            actions[turn].max(axis=1) if probabilities is None else (probabilities * actions[turn]).sum(axis=1)
        )
        states[turn, :num_states] = best_or_mean
    return Values(states=states, actions=actions)


def compute_success(world: World, values: Values) -> float:
    """J: mean success probability over the tasks."""
    return float(values.states[0, list(world.starts)].mean())


def compute_occupancy(world: World, probabilities: FloatArray) -> FloatArray:
    """`[T, S]`: probability to be in state s before turn t, with tasks drawn evenly. A row sums to the share still
    under way."""
    occupancy = np.zeros((world.max_turns, world.num_states))
    now = np.zeros(world.num_states)
    np.add.at(now, list(world.starts), 1 / len(world.starts))
    for turn in range(world.max_turns):
        occupancy[turn] = now
        flow = now[:, None] * probabilities
        after = np.zeros(world.num_states + 2)
        np.add.at(after, world.next_states[..., 0], flow * world.first_probability)
        np.add.at(after, world.next_states[..., 1], flow * (1 - world.first_probability))
        now = after[: world.num_states]
    return occupancy


def compute_gradient(world: World, probabilities: FloatArray, values: Values) -> FloatArray:
    """`dJ / d logit(s, a) = sum_t d_t(s) pi(a|s) A_t(s, a)` for a table of logits, `[S, A]` (the policy gradient)."""
    weighted: FloatArray = np.einsum("ts,tsa->sa", compute_occupancy(world, probabilities), values.advantages)
    return probabilities * weighted


def find_best_actions(best: Values) -> FloatArray:
    """`[T, S, A]`: 1.0 for actions that lose nothing under the best policy, else 0.0; all 0.0 where success is out of
    reach."""
    states = best.states[:-1, : best.actions.shape[1], None]
    return ((best.actions >= states - OPTIMAL_TOLERANCE) & (states > OPTIMAL_TOLERANCE)).astype(np.float64)


def compute_plan_probability(world: World, probabilities: FloatArray, best: Values) -> FloatArray:
    """`[T + 1, S + 2]`: geometric mean probability per remaining turn that the policy plays only moves that lose
    nothing.

    The analogue of teacher-forcing a gold answer to a question: 1 after success, 0 where success is out of reach. If
    chance moves or several moves are equally good, the log-probability is averaged over them, weighted by the
    policy."""
    num_states = world.num_states
    good = find_best_actions(best) * probabilities
    logs, counts = np.zeros((2, world.max_turns + 1, num_states + 2))
    first, second = world.next_states[..., 0], world.next_states[..., 1]
    for turn in reversed(range(world.max_turns)):
        mass = good[turn].sum(axis=1)
        alive = mass > 0
        share = good[turn] / np.where(alive, mass, 1.0)[:, None]
        for table, gained in ((logs, np.log(np.where(alive, mass, 1.0))), (counts, alive.astype(np.float64))):
            after = (
                world.first_probability * table[turn + 1][first]
                + (1 - world.first_probability) * table[turn + 1][second]
            )
            table[turn, :num_states] = gained + (share * after).sum(axis=1)
    return np.where(best.states > OPTIMAL_TOLERANCE, np.exp(logs / np.maximum(counts, 1.0)), 0.0)
