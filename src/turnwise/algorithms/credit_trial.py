"""Tries a user's credit method on a few trajectories before anything trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from turnwise.algorithms.credit import CreditTrajectory, CreditTurn, StatefulCredit, TokenAdvantages


class _AnyParts(dict[str, float]):
    """Reward parts under every name: the environment's actual names are unknown here."""

    def __missing__(self, name: str) -> float:
        return 0.5

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, name: str, default: object = None) -> float:  # type: ignore[override]
        return self[name]


def build_trial() -> list[CreditTrajectory]:
    """Build four trajectories in two groups, each with two turns and three tokens, and with every optional
    measurement."""
    return [
        CreditTrajectory(
            group=f"group {index // 2}",
            reward=reward,
            turns=(_build_turn(2, 0, None), _build_turn(1, 1, 0)),
            parts=_AnyParts(success=reward),
            answer_prior=0.2,
            greedy_reward=0.5,
            role="trial/agent",
            tree=f"trial/{index}",
            final_value=0.5,
        )
        for index, reward in enumerate((1.0, 0.0, 0.25, 1.0))
    ]


def _build_turn(num_tokens: int, number: int, parent: int | None) -> CreditTurn:
    def fill(value: float) -> np.ndarray:
        return np.full(num_tokens, value)

    return CreditTurn(
        num_tokens=num_tokens,
        parent=parent,
        node=number,
        state=f"state {number}",
        state_value=0.5,
        process_score=0.5,
        answer_probability=0.4,
        progress=0.1,
        potential=0.3,
        values=fill(0.5),
        logprobs=fill(-1.0),
        reference_logprobs=fill(-1.1),
        implicit_rewards=fill(0.1),
        squared_mass=fill(0.4),
    )


def try_credit(credit: Callable[[Sequence[CreditTrajectory]], Sequence[TokenAdvantages | None]]) -> None:
    """Compute the advantages of a few trajectories, then again with one of them lacking a reward.

    Raises ValueError naming what is wrong with them, and whatever the function raises. The function's state is
    restored.
    """
    state = credit.state_dict() if isinstance(credit, StatefulCredit) else None
    trial = build_trial()
    credit(trial)
    unscored = [*trial, CreditTrajectory(group="group 0", reward=None, turns=trial[0].turns, role="trial/agent")]
    try:
        credit(unscored)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as cause:
        raise ValueError(
            f"it cannot handle a trajectory whose reward is None (not scored): it raises {type(cause).__name__}: "
            f"{cause}; exclude it from every comparison and return None for it"
        ) from cause
    if state is not None and isinstance(credit, StatefulCredit):
        credit.load_state_dict(state)
