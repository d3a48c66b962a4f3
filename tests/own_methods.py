"""Losses and credit methods as users write them: right ones, and each in its own way wrong ones."""

from collections.abc import Sequence

import numpy as np
import torch

from turnwise.algorithms.credit import CreditTrajectory, build_outcome_credit
from turnwise.algorithms.losses.inputs import LossInputs, LossOutput


def weigh(inputs: LossInputs, scale: float = 1.0) -> LossOutput:
    """Policy gradient, with three metrics in the forms that are taken."""
    losses = -scale * inputs.advantages * (inputs.policy_logprobs - inputs.old_logprobs).exp()
    ratio = (inputs.policy_logprobs - inputs.behavior_logprobs).exp()
    return LossOutput(
        losses=losses,
        clipped=torch.zeros_like(inputs.advantages, dtype=torch.bool),
        metrics={"ratio": ratio, "scale": scale, "largest": ratio.max()},  # type: ignore[dict-item]
    )


def _with(**changes: object) -> LossOutput:
    fields = {"losses": torch.zeros(3, requires_grad=True), "clipped": torch.zeros(3, dtype=torch.bool), **changes}
    return LossOutput(**fields)  # type: ignore[arg-type]


def loss_raises(inputs: LossInputs) -> LossOutput:
    raise KeyError("beta")


def loss_of_other_arguments(log_prob: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    return -log_prob * advantages


def loss_is_a_tensor(inputs: LossInputs) -> torch.Tensor:
    return -inputs.policy_logprobs * inputs.advantages


def loss_is_none(inputs: LossInputs) -> None: ...


def loss_is_a_mean(inputs: LossInputs) -> LossOutput:
    return _with(losses=(-inputs.policy_logprobs * inputs.advantages).mean())


def loss_is_nan(inputs: LossInputs) -> LossOutput:
    return _with(losses=inputs.policy_logprobs * float("nan"))


def loss_is_detached(inputs: LossInputs) -> LossOutput:
    return _with(losses=-inputs.policy_logprobs.detach() * inputs.advantages)


def loss_of_a_sharp_corner(inputs: LossInputs) -> LossOutput:
    return _with(losses=(inputs.policy_logprobs - inputs.policy_logprobs.detach()).sqrt())


def loss_is_numpy(inputs: LossInputs) -> LossOutput:
    return _with(losses=np.zeros(3))


def clipped_is_a_float(inputs: LossInputs) -> LossOutput:
    return _with(losses=-inputs.policy_logprobs, clipped=torch.zeros(3))


def metric_is_text(inputs: LossInputs) -> LossOutput:
    return _with(losses=-inputs.policy_logprobs, metrics={"mode": "fast"})


def loss_turns_bad(inputs: LossInputs) -> LossOutput:
    """Fails where there are more tokens than in a trial."""
    if len(inputs.policy_logprobs) > 3:
        raise IndexError("only three")
    return weigh(inputs)


# ------------------------------------------------------------------------------------------------ credit


def compare(members: Sequence[CreditTrajectory]) -> list[float | None]:
    rewards = [member.reward for member in members if member.reward is not None]
    return [None if member.reward is None else member.reward - sum(rewards) / len(rewards) for member in members]


above_mean = build_outcome_credit(compare)


def credit_of_lists(trajectories: Sequence[CreditTrajectory]) -> object:
    """Lists and tensors, and a part by name."""
    return [
        None
        if t.reward is None
        else [[t.parts["success"]] * t.turns[0].num_tokens, *(torch.zeros(turn.num_tokens) for turn in t.turns[1:])]
        for t in trajectories
    ]


def credit_is_none(trajectories: Sequence[CreditTrajectory]) -> None: ...


def credit_is_a_number_each(trajectories: Sequence[CreditTrajectory]) -> object:
    return [t.reward for t in trajectories]


def credit_is_a_number_per_turn(trajectories: Sequence[CreditTrajectory]) -> object:
    return [[0.5 for _ in t.turns] for t in trajectories]


def credit_is_too_short(trajectories: Sequence[CreditTrajectory]) -> object:
    return [[np.zeros(1) for _ in t.turns] for t in trajectories]


def credit_lacks_one(trajectories: Sequence[CreditTrajectory]) -> object:
    return [[np.zeros(turn.num_tokens) for turn in t.turns] for t in trajectories][1:]


def credit_is_nan(trajectories: Sequence[CreditTrajectory]) -> object:
    return [[np.full(turn.num_tokens, np.nan) for turn in t.turns] for t in trajectories]


def credit_is_text(trajectories: Sequence[CreditTrajectory]) -> object:
    return [[["a"] * turn.num_tokens for turn in t.turns] for t in trajectories]


def credit_forgets_invalid(trajectories: Sequence[CreditTrajectory]) -> object:
    mean = sum(t.reward for t in trajectories) / len(trajectories)  # type: ignore[misc]
    return [[np.full(turn.num_tokens, t.reward - mean) for turn in t.turns] for t in trajectories]  # type: ignore[operator]


def credit_raises(trajectories: Sequence[CreditTrajectory]) -> object:
    raise AttributeError("no attribute 'rewards'")
