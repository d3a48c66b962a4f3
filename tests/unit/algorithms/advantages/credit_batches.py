"""Small batches for the tests of credit methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from turnwise.algorithms.credit import CreditTrajectory, CreditTurn, TokenAdvantages


def make_trajectory(
    reward: float | None,
    lengths: Sequence[int] = (2,),
    *,
    group: str = "g",
    turn_rewards: Sequence[float] | None = None,
    **fields: Any,
) -> CreditTrajectory:
    """One trajectory with turns of the given numbers of sampled tokens.

    `values=[..]` (all tokens joined) is cut into turns.
    """
    starts = np.cumsum([0, *lengths])
    per_token: dict[str, Any] = {
        name: fields.pop(name) for name in ("values", "logprobs", "reference_logprobs") if name in fields
    }
    turns = tuple(
        CreditTurn(
            num_tokens=length,
            parent=index - 1 if index else None,
            reward=0.0 if turn_rewards is None else turn_rewards[index],
            **{  # type: ignore[arg-type]
                name: np.array(array, dtype=np.float64)[starts[index] : starts[index + 1]]
                for name, array in per_token.items()
            },
        )
        for index, length in enumerate(lengths)
    )
    return CreditTrajectory(group=group, reward=reward, turns=turns, **fields)


def flatten(turns: TokenAdvantages | None) -> list[float]:
    """All tokens of a trajectory in order."""
    assert turns is not None
    return [float(x) for turn in turns for x in turn]


group_rewards = st.lists(st.integers(-20, 20).map(lambda x: x / 4), min_size=2, max_size=10)
"""Rewards in quarters: equal or clearly different."""

numbers = st.floats(-3, 3, allow_nan=False).map(lambda x: round(x, 3))


@st.composite
def valued_trajectories(draw: st.DrawFn) -> CreditTrajectory:
    """A trajectory of one to four turns, some without tokens or reward, with a value at every token."""
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(lambda x: sum(x) > 0))
    turn_rewards = draw(st.lists(numbers, min_size=len(lengths), max_size=len(lengths)))
    values = draw(st.lists(numbers, min_size=sum(lengths), max_size=sum(lengths)))
    return make_trajectory(draw(numbers), lengths, turn_rewards=turn_rewards, values=values)
