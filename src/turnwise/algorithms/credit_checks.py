"""Checks before and after any credit function: its inputs are present and finite, its advantages fit the batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.credit import (
    CreditFunction,
    CreditMethod,
    CreditTrajectory,
    StatefulCredit,
    TokenAdvantages,
    TokenField,
)

FIELD_REMEDIES = {
    "state": "give the environment `state_hash`",
    "state_value": "let it be estimated (credit.branching.num_continuations above 0, and an environment with `fork`), "
    "or have the environment score every reply with a `state_value`",
    "process_score": "have the environment score every reply with a `process_score`",
    "answer_probability": "give the environment's family `gold_answer` and `answer_reply`",
    "progress": "have the environment score every reply with a `progress`",
    "potential": "have the environment score every reply with a `potential`",
    "values": "set critic.kind to 'head' or 'separate'",
    "logprobs": "keep the sampler's `logprobs`",
    "reference_logprobs": "set loss.kl.place='reward' and loss.kl.coefficient above 0",
    "implicit_rewards": "train with credit.method='prime', which learns the reward model of credit.implicit.lr",
    "squared_mass": "train with credit.method='otb', which scores it",
    "parts": "have the environment's reward return its `parts`",
    "greedy_reward": "train with credit.method='remax', which rolls out one greedy attempt per task",
    "role": "give the group its `role`",
    "tree": "train with credit.method='tree' or 'arpo' (credit.branching.num_branches)",
    "final_value": "set critic.kind to 'head' or 'separate'",
}
"""Where to get an optional field: the remedy when it is missing."""

_TURN_NUMBERS = ("reward", "state_value", "process_score", "answer_probability", "progress", "potential")
_TRAJECTORY_FIELDS = {field.name for field in fields(CreditTrajectory)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCredit:
    """A credit method's function with checks before and after it.

    Calling it raises ValueError, naming trajectory and turn, when a scored trajectory

    - has a number that is not finite, a negative `num_tokens`, a `parent` that is not an earlier turn, or a per-token
      field whose length is not `num_tokens`;
    - lacks a field the method needs (an empty role or no parts count as missing; per-token fields may be None on turns
      without sampled tokens),

    or when the function returns something that does not fit the batch or is not finite, or an advantage for a
    trajectory whose reward is None. Trajectories whose reward is None are not checked.
    """

    method: CreditMethod
    function: CreditFunction

    def __call__(self, trajectories: Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]:
        """Return one array per turn for every trajectory, None if it must not train."""
        for index, trajectory in enumerate(trajectories):
            if trajectory.reward is not None:
                name = f"trajectory {index} (group {trajectory.group!r})"
                check_trajectory(trajectory, name)
                check_needs(self.method, trajectory, name)
        returned: object = self.function(trajectories)
        advantages = read_advantages(self.method.name, trajectories, returned)
        check_advantages(self.method.name, trajectories, advantages)
        return advantages

    def state_dict(self) -> dict[str, object]:
        """Return the method's state between steps; empty for most methods."""
        return self.function.state_dict() if isinstance(self.function, StatefulCredit) else {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what `state_dict` returned. Raises ValueError if it belongs to another method."""
        if isinstance(self.function, StatefulCredit):
            self.function.load_state_dict(state)
        elif state:
            raise ValueError(
                f"credit method {self.method.name!r} has no state, but {sorted(state)} was passed to restore; was it "
                "saved by another method?"
            )


def check_trajectory(trajectory: CreditTrajectory, name: str) -> None:
    """Raise ValueError naming `name`, turn and field for a number that is not finite or a wrong index or length."""
    for field, value in _numbers(trajectory):
        if not math.isfinite(value):
            raise ValueError(f"{name}: {field} is {value}; an unscorable trajectory must have reward None (Invalid)")
    for index, turn in enumerate(trajectory.turns):
        where = f"{name}, turn {index}"
        if turn.num_tokens < 0:
            raise ValueError(f"{where}: num_tokens is {turn.num_tokens}; it must be the number of sampled tokens")
        if turn.parent is not None and not 0 <= turn.parent < index:
            raise ValueError(
                f"{where}: parent is {turn.parent}; it must be the index of an earlier turn, or None for a root"
            )
        for field in get_args(TokenField):
            array = getattr(turn, field)
            if array is None:
                continue
            if array.shape != (turn.num_tokens,):
                raise ValueError(
                    f"{where}: {field} has shape {list(array.shape)}; expected one number per sampled token, "
                    f"[{turn.num_tokens}]"
                )
            if not np.isfinite(array).all():
                raise ValueError(
                    f"{where}: {field} contains {array[~np.isfinite(array)][0]}; check the model that computed it"
                )


def check_needs(method: CreditMethod, trajectory: CreditTrajectory, name: str) -> None:
    """Raise ValueError naming field, method and remedy if `trajectory` lacks a field that `method` needs."""
    for field in method.needs:
        remedy = f"{FIELD_REMEDIES[field]}, or choose another credit method"
        if field in _TRAJECTORY_FIELDS:
            if getattr(trajectory, field) in (None, "", {}):
                raise ValueError(f"{name}: {field} is missing; credit method {method.name!r} needs it; {remedy}")
            continue
        for index, turn in enumerate(trajectory.turns):
            optional = field in get_args(TokenField) and turn.num_tokens == 0
            if getattr(turn, field) is None and not optional:
                raise ValueError(
                    f"{name}, turn {index}: {field} is missing; credit method {method.name!r} needs it; {remedy}"
                )


def read_advantages(
    name: str, trajectories: Sequence[CreditTrajectory], returned: object
) -> list[TokenAdvantages | None]:
    """Convert what credit method `name` returned to arrays of float64; lists and tensors count as arrays. Raises
    ValueError naming anything else."""
    remedy = (
        "return one list per trajectory with one array per turn (build_outcome_credit makes them of one number each), "
        "or None where it must not train"
    )
    if not isinstance(returned, Sequence) or isinstance(returned, str):
        raise ValueError(f"credit method {name!r} returned a value of type {type(returned).__name__}; {remedy}")
    read: list[TokenAdvantages | None] = []
    for index, turns in enumerate(returned):
        where = f"credit method {name!r}, trajectory {index}"
        if turns is None:
            read.append(None)
        elif isinstance(turns, Sequence) and not isinstance(turns, str):
            read.append([_read_array(values, f"{where}, turn {at}", remedy) for at, values in enumerate(turns)])
        else:
            raise ValueError(f"{where}: a {type(turns).__name__}; {remedy}")
    return read


def _read_array(values: object, where: str, remedy: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as cause:  # ragged lists; a tensor with a gradient or on a GPU
        raise ValueError(
            f"{where}: {type(values).__name__} cannot be converted to an array ({cause}); {remedy}"
        ) from None
    if array.ndim != 1 or array.dtype.kind not in "fiub":
        what = f"an array of shape {list(array.shape)} and dtype {array.dtype}" if array.ndim else type(values).__name__
        raise ValueError(f"{where}: {what} instead of one number per sampled token; {remedy}")
    return array.astype(np.float64)


def check_advantages(
    name: str, trajectories: Sequence[CreditTrajectory], advantages: Sequence[TokenAdvantages | None]
) -> None:
    """Raise ValueError if the advantages of credit method `name` do not fit the trajectories or are not finite."""
    if len(advantages) != len(trajectories):
        raise ValueError(
            f"credit method {name!r} returned {len(advantages)} results for {len(trajectories)} trajectories; return "
            "one per trajectory"
        )
    for index, (trajectory, turns) in enumerate(zip(trajectories, advantages, strict=True)):
        if turns is None:
            continue
        where = f"credit method {name!r}, trajectory {index} (group {trajectory.group!r})"
        if trajectory.reward is None:
            raise ValueError(f"{where}: got an advantage for a trajectory with reward None; return None for it")
        expected = [turn.num_tokens for turn in trajectory.turns]
        returned = [array.size for array in turns]
        if returned != expected:
            raise ValueError(f"{where}: the arrays have {returned} tokens, but the turns sampled {expected}")
        if not all(np.isfinite(array).all() for array in turns):
            raise ValueError(f"{where}: an advantage is not finite; check the rewards and values it was computed from")


def _numbers(trajectory: CreditTrajectory) -> Iterator[tuple[str, float]]:
    """Iterate over every scalar of a trajectory that is not None, with its name."""
    yield from ((f"parts[{part!r}]", value) for part, value in trajectory.parts.items())
    for field in ("reward", "answer_prior", "greedy_reward", "final_value"):
        value = getattr(trajectory, field)
        if value is not None:
            yield field, value
    for index, turn in enumerate(trajectory.turns):
        for field in _TURN_NUMBERS:
            value = getattr(turn, field)
            if value is not None:
                yield f"{field} of turn {index}", value
