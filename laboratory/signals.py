"""Signals that a credit method needs beyond outcomes, made for a world: critics, forks, process models, hand-written
scores.

A signal measures a batch before credit and may learn from it afterwards. What it samples counts as cost, in turns. None
reads the true advantage, except `ExactValues`, which is a limit and not a method."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from laboratory.exact import compute_plan_probability, compute_values, find_best_actions
from laboratory.paths import Paths, sample_paths
from laboratory.policy import DECIDING, TOKENS_PER_TURN, to_probabilities
from laboratory.world import FloatArray, IntArray, World


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """A signal's measurements on N trajectories."""

    fields: dict[str, FloatArray] = field(default_factory=dict)
    """Fields of `CreditTurn` by name: `[N, T]`, or `[N, T, 3]` if there is one number per token. NaN stands for
    None."""
    greedy_rewards: FloatArray | None = None
    """`[N]` rewards of greedy attempts."""
    prior_answer_probabilities: FloatArray | None = None
    """`[N]` before the first turn."""
    num_turns: int = 0
    """Number of turns sampled for it."""


class Signal(Protocol):
    """Built once per run as `Signal(world, tokens, rng)`, where `tokens` are the probabilities of the policy the run
    starts from."""

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure a batch sampled with `tokens`, `[S, 3, A]`."""

    def learn(self, paths: Paths) -> None:
        """Learn from a batch that was credited."""


class NoSignal:
    """No signal: outcomes and state keys are enough."""

    def __init__(self, world: World, tokens: FloatArray, rng: np.random.Generator) -> None:
        self.world = world

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure nothing."""
        return Measured()

    def learn(self, paths: Paths) -> None:
        """Learn nothing."""


class Critic(NoSignal):
    """A learned table of values per token: one cell per state (first and deciding token), one per state and action
    (last token).

    A cell follows the outcomes seen from it: their mean at first, later an exponential mean with rate 0.1 per batch.
    New cells are 0. Like the policy, it sees the state and not the turn."""

    RATE = 0.1

    def __init__(self, world: World, tokens: FloatArray, rng: np.random.Generator) -> None:
        super().__init__(world, tokens, rng)
        self.values = np.zeros(world.num_states * (1 + world.num_actions))
        self.counts = np.zeros_like(self.values)

    def cells(self, paths: Paths) -> IntArray:
        """`[N, T, 3]`, -1 where there is no turn."""
        after = self.world.num_states + paths.states * self.world.num_actions + paths.tokens[..., DECIDING]
        cells = np.stack([paths.states, paths.states, after], axis=-1)
        return np.where(paths.taken[..., None], cells, -1)

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure `values`."""
        return Measured(fields={"values": self.values[self.cells(paths)]})

    def learn(self, paths: Paths) -> None:
        """Regress on the outcome (the return with gamma and lambda 1)."""
        cells = self.cells(paths)[paths.taken][:, DECIDING:].ravel()
        targets = np.repeat(np.broadcast_to(paths.outcomes[:, None], paths.states.shape)[paths.taken], 2)
        counts = np.bincount(cells, minlength=len(self.values))
        sums = np.bincount(cells, weights=targets, minlength=len(self.values))
        self.counts += counts
        seen = counts > 0
        rate = np.maximum(counts[seen] / self.counts[seen], self.RATE)
        self.values[seen] += rate * (sums[seen] / counts[seen] - self.values[seen])


class ForkedValues(NoSignal):
    """Monte-Carlo state values: `NUM_FORKS` fresh completions from the state before every turn of every trajectory, all
    counted as cost."""

    NUM_FORKS = 4

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure `state_value`."""
        rows, turns = np.nonzero(paths.taken)
        ends = sample_paths(
            self.world,
            tokens,
            np.repeat(paths.states[rows, turns], self.NUM_FORKS),
            np.repeat(turns, self.NUM_FORKS),
            rng,
        )
        values = np.zeros(paths.states.shape)
        values[rows, turns] = ends.outcomes.reshape(-1, self.NUM_FORKS).mean(axis=1)
        return Measured(fields={"state_value": values}, num_turns=int(ends.taken.sum()))


class ExactValues(NoSignal):
    """The true state values, at no cost. No run has them: they are the limit for `state_value`."""

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure `state_value`."""
        values = compute_values(self.world, tokens[:, DECIDING]).states
        return Measured(fields={"state_value": values[np.arange(self.world.max_turns), paths.states]})


class GreedyAttempts(NoSignal):
    """One trajectory per task that takes the likeliest token everywhere, counted as cost."""

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure greedy outcomes."""
        greedy = (tokens == tokens.max(axis=-1, keepdims=True)).astype(np.float64)
        greedy /= greedy.sum(axis=-1, keepdims=True)
        _, first = np.unique(paths.groups, return_index=True)
        attempts = sample_paths(self.world, greedy, paths.states[first, 0], np.zeros(len(first), dtype=np.int64), rng)
        by_group = dict(zip(paths.groups[first].tolist(), attempts.outcomes.tolist(), strict=True))
        rewards = np.array([by_group[group] for group in paths.groups.tolist()])
        return Measured(greedy_rewards=rewards, num_turns=int(attempts.taken.sum()))


class ProgressRise(NoSignal):
    """A verifier written by hand: a turn's reward is the rise of the world's `progress`; a turn that moved it carries a
    milestone score.

    The score is 1 for a rise and 0 for a fall. Failure has progress 0 and success 1.
    """

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure `reward` and `process_score`."""
        rise = np.where(paths.taken, self.world.progress[paths.next_states] - self.world.progress[paths.states], 0.0)
        return Measured(fields={"reward": rise, "process_score": np.where(np.abs(rise) > 1e-12, rise > 0, np.nan)})


class ProgressPotential(NoSignal):
    """The world's hand-written `progress` as a potential."""

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure `potential`."""
        return Measured(fields={"potential": self.world.progress[paths.states]})


class ProcessModel(NoSignal):
    """An imperfect process reward model: the success probability, after the turn, of another, competent policy, plus a
    fixed error per state.

    That policy plays a best move with probability 0.7 and any move otherwise; the error is normal with deviation
    `ERROR`. So the model is informative, but about another policy, and its errors are always in the same places."""

    ERROR = 0.1

    def __init__(self, world: World, tokens: FloatArray, rng: np.random.Generator) -> None:
        super().__init__(world, tokens, rng)
        best = find_best_actions(compute_values(world, None)).sum(axis=0) + 1e-9
        stranger = 0.7 * best / best.sum(axis=1, keepdims=True) + 0.3 / world.num_actions
        self.scores = compute_values(world, stranger).states + self.ERROR * rng.standard_normal(world.num_states + 2)

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure `process_score`."""
        return Measured(
            fields={"process_score": self.scores[np.arange(1, self.world.max_turns + 1), paths.next_states]}
        )


class PlanProbability(NoSignal):
    """The analogue of the gold answer's probability: that of a teacher-forced gold plan from the state reached, per
    remaining turn."""

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure `answer_probability` and its prior, computed from the policy without sampling."""
        best = compute_values(self.world, None)
        table = np.clip(compute_plan_probability(self.world, tokens[:, DECIDING], best), 0.0, 1.0)
        after = table[np.arange(1, self.world.max_turns + 1), paths.next_states]
        return Measured(fields={"answer_probability": after}, prior_answer_probabilities=table[0, paths.states[:, 0]])


class ProgressRegression(NoSignal):
    """A progress model: one contribution per state and action, whose sums over a trajectory fit the outcomes (ridge
    regression).

    The weight of earlier batches shrinks by `MEMORY` per batch. A batch is credited before its outcomes are seen.
    """

    MEMORY = 0.9
    RIDGE = 1.0

    def __init__(self, world: World, tokens: FloatArray, rng: np.random.Generator) -> None:
        super().__init__(world, tokens, rng)
        size = world.num_states * world.num_actions
        self.products, self.targets, self.contributions = np.zeros((size, size)), np.zeros(size), np.zeros(size)

    def cells(self, paths: Paths) -> IntArray:
        """`[N, T]` index of state and action."""
        return np.asarray(paths.states * self.world.num_actions + paths.tokens[..., DECIDING])

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure `progress`."""
        return Measured(fields={"progress": self.contributions[self.cells(paths)]})

    def learn(self, paths: Paths) -> None:
        """Refit the model."""
        rows, turns = np.nonzero(paths.taken)
        visits = np.zeros((len(paths.states), len(self.targets)))
        np.add.at(visits, (rows, self.cells(paths)[rows, turns]), 1.0)
        self.products = self.MEMORY * self.products + visits.T @ visits
        self.targets = self.MEMORY * self.targets + visits.T @ paths.outcomes
        used = np.flatnonzero(np.diag(self.products) > 1e-6)
        system = self.products[np.ix_(used, used)] + self.RIDGE * np.eye(len(used))
        self.contributions = np.zeros_like(self.contributions)
        self.contributions[used] = np.linalg.solve(system, self.targets[used])


class ImplicitRewards(NoSignal):
    """An implicit process reward model: a policy table phi with reward `log phi - log pi_start` per token, whose sum
    predicts the outcome.

    Trained by cross-entropy, `NUM_STEPS` steps of size `RATE` per batch, before the batch is credited (as PRIME updates
    it)."""

    NUM_STEPS = 4
    RATE = 1.0

    def __init__(self, world: World, tokens: FloatArray, rng: np.random.Generator) -> None:
        super().__init__(world, tokens, rng)
        self.start = np.log(tokens)
        self.logits = self.start.copy()

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure `implicit_rewards`."""
        rows, turns = np.nonzero(paths.taken)
        states, sampled = paths.states[rows, turns], paths.tokens[rows, turns]
        places = (states[:, None], np.arange(TOKENS_PER_TURN), sampled)
        rewards = np.zeros(paths.tokens.shape)
        for step in range(self.NUM_STEPS + 1):
            probabilities = to_probabilities(self.logits)
            rewards[rows, turns] = np.log(probabilities[places]) - self.start[places]
            if step == self.NUM_STEPS:
                break
            error = paths.outcomes - 1 / (1 + np.exp(-rewards.sum(axis=(1, 2))))
            weights = np.repeat(error[rows][:, None], TOKENS_PER_TURN, axis=1)
            gradient, totals = np.zeros_like(self.logits), np.zeros(self.logits.shape[:2])
            np.add.at(gradient, places, weights)
            np.add.at(totals, places[:2], weights)
            self.logits += self.RATE * (gradient - totals[..., None] * probabilities) / len(paths.outcomes)
        return Measured(fields={"implicit_rewards": rewards})


class TokenLogprobs(NoSignal):
    """Log-probabilities at sampling, which distinguish copies of a shared turn from a second sampling of the same
    tokens.

    In a table two samplings have equal ones, which floating-point noise prevents in a real engine; a difference of
    1e-12 per sampling stands for that noise."""

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure `logprobs`."""
        logprobs = np.log(tokens[paths.states[..., None], np.arange(TOKENS_PER_TURN), paths.tokens])
        return Measured(fields={"logprobs": logprobs - 1e-12 * paths.turn_ids[..., None]})


class TokenMass(NoSignal):
    """Log-probabilities at sampling, and the concentration of the policy's distribution at each token."""

    def measure(self, paths: Paths, tokens: FloatArray, rng: np.random.Generator) -> Measured:
        """Measure `logprobs` and `squared_mass`."""
        logprobs = np.log(tokens[paths.states[..., None], np.arange(TOKENS_PER_TURN), paths.tokens])
        return Measured(fields={"logprobs": logprobs, "squared_mass": np.square(tokens).sum(axis=-1)[paths.states]})
