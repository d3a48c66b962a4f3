"""Compare credit within a team, on sampled episodes, with the true advantage of every turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from laboratory.measure import correlate
from laboratory.team import (
    Team,
    TeamPolicy,
    TeamValues,
    build_team_policy,
    compute_team_values,
    compute_tell_gradient,
)
from laboratory.world import FloatArray, IntArray
from turnwise.algorithms.credit import CreditTrajectory, CreditTurn
from turnwise.algorithms.credit_table import build_credit
from turnwise.core.seeds import derive_seed
from turnwise.rewards.teams import compute_counterfactual_reward, compute_difference_reward

NUM_GROUPS, GROUP_SIZE = 2, 8
TeamTurn = Literal["ask", "tell", "answer"]
TURNS: tuple[TeamTurn, ...] = ("ask", "tell", "answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamArm:
    """One way to credit one turn of a team."""

    turn: TeamTurn
    reward: Literal["shared", "difference", "counterfactual", "true value"]
    """The reward that the method reads for the role: the team's reward, alone or minus what the team got otherwise;
    "true value" subtracts the exact value, which no run has."""
    resamples: int = 0
    method: str = "dr_grpo"
    """Name in the table of credit methods, applied to groups of the same task."""

    @property
    def replies(self) -> int:
        """Number of replies per episode: three, plus those sampled for credit."""
        each = {"shared": 0, "difference": 1, "true value": 0, "counterfactual": len(TURNS) - TURNS.index(self.turn)}
        return len(TURNS) + each[self.reward] * max(1, self.resamples)


TEAM_ARMS = (
    TeamArm(turn="tell", reward="shared", method="grpo"),
    TeamArm(turn="tell", reward="shared"),
    TeamArm(turn="tell", reward="difference"),
    TeamArm(turn="tell", reward="counterfactual", resamples=1),
    TeamArm(turn="tell", reward="counterfactual", resamples=2),
    TeamArm(turn="tell", reward="counterfactual", resamples=4),
    TeamArm(turn="tell", reward="counterfactual", resamples=4, method="reinforce"),
    TeamArm(turn="tell", reward="true value", method="reinforce"),
    TeamArm(turn="ask", reward="shared"),
    TeamArm(turn="ask", reward="counterfactual", resamples=4),
    TeamArm(turn="answer", reward="shared"),
    TeamArm(turn="answer", reward="counterfactual", resamples=4),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TeamEpisodes:
    """N episodes; every array is `[N]`."""

    question: IntArray
    facts: IntArray
    """Row of `Team.facts`."""
    ask: IntArray
    tell: IntArray
    answer: IntArray
    rewards: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamQuality:
    """Quality of an arm's advantages under one policy."""

    correlation: float | None
    """Pearson correlation with the true advantage of the turn; None if a side is constant."""
    variance: float
    """Variance of the advantages."""
    squared_error: float
    """Mean squared difference between advantage and true advantage; meaningless for a method that divides by a
    deviation."""
    noise: float | None
    """Only for A's turn: trace of the covariance of its batch gradient over the square of the mean's component along
    the true gradient, times replies per episode: the variance at equal replies. None if that component is not
    positive."""


def draw_rows(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Sample one column of every row, `[N, K]` probabilities to `[N]`."""
    uniforms = rng.random(len(probabilities))[:, None]
    return np.asarray((uniforms >= probabilities.cumsum(axis=-1)[:, :-1]).sum(axis=-1), dtype=np.int64)


def play_from(
    team: Team, policy: TeamPolicy, episodes: TeamEpisodes, turn: TeamTurn, rng: np.random.Generator
) -> TeamEpisodes:
    """The same episodes with `turn` and everything after it drawn again."""
    question, facts, ask, tell = episodes.question, episodes.facts, episodes.ask, episodes.tell
    if turn == "ask":
        ask = draw_rows(policy.ask[question], rng)
    if turn != "answer":
        tell = draw_rows(policy.tell[facts, ask], rng)
    answer = draw_rows(policy.answer[question, tell], rng)
    rewards = (team.facts[facts, question] == answer).astype(np.float64)
    return TeamEpisodes(question=question, facts=facts, ask=ask, tell=tell, answer=answer, rewards=rewards)


def sample_team(team: Team, policy: TeamPolicy, rng: np.random.Generator) -> TeamEpisodes:
    """`NUM_GROUPS` tasks drawn evenly, `GROUP_SIZE` episodes of each, in order."""
    question = np.repeat(rng.integers(team.num_slots, size=NUM_GROUPS), GROUP_SIZE)
    facts = np.repeat(rng.integers(len(team.facts), size=NUM_GROUPS), GROUP_SIZE)
    nothing = np.zeros_like(question)
    blank = TeamEpisodes(
        question=question, facts=facts, ask=nothing, tell=nothing, answer=nothing, rewards=nothing.astype(np.float64)
    )
    return play_from(team, policy, blank, "ask", rng)


def compute_rewards(
    team: Team, policy: TeamPolicy, values: TeamValues, arm: TeamArm, episodes: TeamEpisodes, rng: np.random.Generator
) -> list[float]:
    """The reward of the role at the arm's turn, per episode."""
    shared: list[float] = episodes.rewards.tolist()
    if arm.reward == "difference":
        silent = replace(episodes, tell=np.full_like(episodes.tell, team.null_message))
        without = play_from(team, policy, silent, "answer", rng).rewards.tolist()
        return [compute_difference_reward(*pair) for pair in zip(shared, without, strict=True)]
    if arm.reward == "counterfactual":
        again = [play_from(team, policy, episodes, arm.turn, rng).rewards for _ in range(arm.resamples)]
        rows = np.stack(again, axis=1).tolist()
        return [compute_counterfactual_reward(*pair) for pair in zip(shared, rows, strict=True)]
    if arm.reward == "true value":
        known = values.asked[episodes.question, episodes.facts, episodes.ask].tolist()
        return [compute_difference_reward(*pair) for pair in zip(shared, known, strict=True)]
    return shared


def credit_role(method: str, rewards: Sequence[float]) -> FloatArray:
    """`[N]` advantages of a method of the table over groups of `GROUP_SIZE`."""
    trajectories = [
        CreditTrajectory(group=str(index // GROUP_SIZE), reward=reward, turns=(CreditTurn(num_tokens=1),))
        for index, reward in enumerate(rewards)
    ]
    return np.array([turns[0][0] for turns in build_credit(method).function(trajectories) if turns])


def find_true_advantages(values: TeamValues, turn: TeamTurn, episodes: TeamEpisodes) -> FloatArray:
    """`[N]`: the true advantage of the action at the turn."""
    task = (episodes.question, episodes.facts)
    if turn == "ask":
        return values.of_ask[(*task, episodes.ask)]
    if turn == "tell":
        return values.of_tell[(*task, episodes.ask, episodes.tell)]
    return values.of_answer[(*task, episodes.tell, episodes.answer)]


def estimate_tell_gradient(policy: TeamPolicy, episodes: TeamEpisodes, advantages: FloatArray) -> FloatArray:
    """`1/N sum A d log tell / d logits`, `[F, U, M]`."""
    gradient = np.zeros_like(policy.tell)
    np.add.at(gradient, (episodes.facts, episodes.ask, episodes.tell), advantages)
    np.add.at(
        gradient, (episodes.facts, episodes.ask), -advantages[:, None] * policy.tell[episodes.facts, episodes.ask]
    )
    return gradient / len(advantages)


def measure_team_arm(team: Team, arm: TeamArm, *, success: float, seed: int, num_batches: int) -> TeamQuality:
    """Measure one arm under this seed's policy with that success. All arms of a seed meet the same policy and
    episodes."""
    policy = build_team_policy(
        team, success=success, rng=np.random.default_rng(derive_seed(seed, "team policy", str(success)))
    )
    values = compute_team_values(team, policy)
    rng = np.random.default_rng(derive_seed(seed, "team episodes", str(success)))
    credit_rng = np.random.default_rng(derive_seed(seed, "team credit", str(success)))
    given, true, gradients = [], [], []
    for _ in range(num_batches):
        episodes = sample_team(team, policy, rng)
        advantages = credit_role(arm.method, compute_rewards(team, policy, values, arm, episodes, credit_rng))
        given.append(advantages)
        true.append(find_true_advantages(values, arm.turn, episodes))
        gradients.append(estimate_tell_gradient(policy, episodes, advantages).ravel())
    estimated, exact = np.concatenate(given), np.concatenate(true)
    noise = None
    if arm.turn == "tell":
        direction = compute_tell_gradient(team, policy, values).ravel()
        stacked = np.stack(gradients)
        along = float(stacked.mean(axis=0) @ direction) / float(np.linalg.norm(direction))
        trace = float(stacked.var(axis=0, ddof=1).sum())
        noise = trace / along**2 * arm.replies if along > 0 else None
    return TeamQuality(
        correlation=correlate(estimated, exact),
        variance=float(estimated.var()),
        squared_error=float(((estimated - exact) ** 2).mean()),
        noise=noise,
    )
