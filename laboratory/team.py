"""A team of two small enough to enumerate: B asks, A tells, B answers. Policies are tables, values are exact.

A Dec-POMDP in the form of the family `relay`: A holds `num_slots` facts with one of `num_values` values each, B knows
which of them the question is about. Neither sees everything: B's request depends on the question, A's message on its
facts and the request, B's answer on the question and the message. The team's reward is 1 for the right value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from laboratory.world import FloatArray, IntArray


@dataclass(frozen=True)
class Team:
    """The world. A task is a question with facts; all tasks are equally likely."""

    num_slots: int = 2
    num_values: int = 3

    @cached_property
    def facts(self) -> IntArray:
        """`[F, num_slots]`: every combination of facts, F = num_values ** num_slots."""
        return np.array(list(product(range(self.num_values), repeat=self.num_slots)), dtype=np.int64)

    @property
    def null_message(self) -> int:
        """The message that B hears if A says nothing; it is not an action of A."""
        return self.num_values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TeamPolicy:
    """Action probabilities of each step, by what it sees."""

    ask: FloatArray
    """`[Q, U]`: which slot B asks for, by the question."""
    tell: FloatArray
    """`[F, U, M]`: which value A tells, by its facts and what it was asked."""
    answer: FloatArray
    """`[Q, M + 1, Y]`: which value B answers, by the question and what it heard; the last row is for no message."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TeamValues:
    """Success probabilities, by question q, facts f, what was asked u, told m, answered y."""

    start: FloatArray
    """`[Q, F]`."""
    asked: FloatArray
    """`[Q, F, U]`: after B asked."""
    told: FloatArray
    """`[Q, F, M + 1]`: after A told; the last column is the null message."""
    answered: FloatArray
    """`[Q, F, Y]`: 1.0 for the right value."""

    @property
    def of_ask(self) -> FloatArray:
        """`[Q, F, U]`: true advantage of asking for u."""
        return self.asked - self.start[..., None]

    @property
    def of_tell(self) -> FloatArray:
        """`[Q, F, U, M]`: true advantage of telling m when asked for u."""
        return self.told[:, :, None, :-1] - self.asked[..., None]

    @property
    def of_answer(self) -> FloatArray:
        """`[Q, F, M, Y]`: true advantage of answering y after m."""
        return self.answered[:, :, None, :] - self.told[:, :, :-1, None]


def compute_team_values(team: Team, policy: TeamPolicy) -> TeamValues:
    """`V_told = sum_y answer(y|q,m) [y = f_q]`, `V_asked = sum_m tell(m|f,u) V_told`, `V = sum_u ask(u|q) V_asked`."""
    right = team.facts.T  # [Q, F]: the value that is asked for
    answered = (right[..., None] == np.arange(team.num_values)).astype(np.float64)
    told = np.einsum("qmy,qfy->qfm", policy.answer, answered)
    asked = np.einsum("fum,qfm->qfu", policy.tell, told[..., :-1])
    start = np.einsum("qu,qfu->qf", policy.ask, asked)
    return TeamValues(start=start, asked=asked, told=told, answered=answered)


def compute_tell_gradient(team: Team, policy: TeamPolicy, values: TeamValues) -> FloatArray:
    """dJ / d logits of A, `[F, U, M]`, where J is the mean success over tasks: the policy gradient, by enumeration."""
    weight = policy.ask[:, None, :, None] * policy.tell[None] / (team.num_slots * len(team.facts))
    return np.asarray((weight * values.of_tell).sum(axis=0), dtype=np.float64)


def build_team_policy(team: Team, *, success: float, rng: np.random.Generator, roughness: float = 0.5) -> TeamPolicy:
    """A policy that succeeds with the given probability (to 1e-3).

    Normal noise of deviation `roughness` on every logit, plus one bonus on asking for the slot of the question, telling
    what was asked and answering what was heard, found by bisection. Raises ValueError if no bonus reaches `success`.
    """
    slots, values, count = team.num_slots, team.num_values, len(team.facts)
    shapes = ((slots, slots), (count, slots, values), (slots, values + 1, values))
    noises = [roughness * rng.standard_normal(shape) for shape in shapes]
    rights = [np.zeros(shape) for shape in shapes]
    rights[0][:] = np.eye(slots)
    rights[1][:] = team.facts[..., None] == np.arange(values)
    rights[2][:, :values] = np.eye(values)
    low, high = -12.0, 24.0
    for _ in range(60):
        middle = (low + high) / 2
        policy = TeamPolicy(
            **dict(
                zip(
                    ("ask", "tell", "answer"),
                    (_softmax(noise + middle * right) for noise, right in zip(noises, rights, strict=True)),
                    strict=True,
                )
            )
        )
        reached = float(compute_team_values(team, policy).start.mean())
        low, high = (middle, high) if reached < success else (low, middle)
    if abs(reached - success) > 1e-3:
        raise ValueError(f"no policy of the team with success {success} was found (nearest {reached:.4f})")
    return policy


def _softmax(logits: FloatArray) -> FloatArray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), dtype=np.float64)
