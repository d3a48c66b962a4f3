"""The critic: values of states at sampled tokens, and its training. It is a head on the policy or a separate model.

The value of a token is read where the token is predicted: it is the value of the state *before* the token. Observation
tokens have no value.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.algorithms.value_loss import compute_value_loss
from turnwise.batching.collate import MicroBatch, TokenColumn, TokenColumns, iterate_micro_batches
from turnwise.batching.ranks import ALONE, Ranks, add_totals, join_rows
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Mean, Metric, Sum
from turnwise.core.types import Sample
from turnwise.models.forward import compute_hidden as run_backbone
from turnwise.models.rows import find_device
from turnwise.training.forward import replay_experts, to_runs
from turnwise.training.loss_scale import scale_loss
from turnwise.training.optimizer import BuildOptimizer, apply_gradients, build_optimizer
from turnwise.training.placement import WHOLE, Backbone, Placement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Critic:
    """A value function and its optimizer."""

    policy: PreTrainedModel
    """The policy whose layers, or a copy of them, the critic has; their forward path is the policy's."""
    backbone: Backbone
    """Maps tokens to hidden states."""
    head: torch.nn.Linear
    """Maps a hidden state to its value; starts with zeros, so that every first value is 0."""
    module: torch.nn.ModuleDict
    """Modules that the critic's optimizer trains: the head, and the backbone unless it is the policy's."""
    optimizer: torch.optim.Optimizer
    lr: float
    clip: float | None
    coefficient: float
    """Weight of the value loss beside the policy's; used only if the backbone is the policy's."""

    @property
    def is_shared(self) -> bool:
        """Whether the policy and the critic share their layers."""
        return "backbone" not in self.module


def build_critic(
    policy: PreTrainedModel,
    placement: Placement = WHOLE,
    *,
    kind: Literal["head", "separate"],
    lr: float,
    clip: float | None,
    coefficient: float,
    betas: tuple[float, float],
    weight_decay: float,
    build: BuildOptimizer | None = None,
) -> Critic:
    """Build a critic for `policy`; "separate" copies its layers as they are now (of layers with an adapter, only the
    adapter). `build` is that of `build_optimizer`."""
    separate = None if kind == "head" else placement.place(placement.copy(policy).base_model)
    width = policy.config.get_text_config().hidden_size
    head = torch.nn.Linear(width, 1, device=find_device(policy), dtype=policy.dtype)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    placement.place(head)
    module = torch.nn.ModuleDict({"head": head} if separate is None else {"head": head, "backbone": separate})
    optimizer = build_optimizer(
        module,
        lr=lr,
        betas=betas,
        weight_decay=weight_decay,
        build=build,
        computes_in=placement.find_dtype(policy),
    )
    backbone = separate or placement.find_backbone(policy)
    return Critic(
        policy=policy,
        backbone=backbone,
        head=head,
        module=module,
        optimizer=optimizer,
        lr=lr,
        clip=clip,
        coefficient=coefficient,
    )


def compute_hidden(critic: Critic, batch: MicroBatch) -> torch.Tensor:
    """Compute the hidden states of all tokens, `[T, H]`."""
    return run_backbone(critic.backbone, critic.policy, to_runs(batch), routing=replay_experts(batch))


@torch.no_grad()
def score_values(
    critic: Critic,
    samples: Sequence[Sample],
    *,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
    ranks: Ranks = ALONE,
) -> tuple[list[NDArray[np.generic]], list[float]]:
    """Return the values before every trained token, `[K_i]` per sample, and after the last token of every sample."""
    values: dict[int, NDArray[np.generic]] = {}
    finals: dict[int, NDArray[np.generic]] = {}
    for indices, batch in iterate_micro_batches(
        samples,
        find_device(critic.head),
        micro_batch_tokens=micro_batch_tokens,
        shared_prefix=shared_prefix,
        ranks=ranks,
    ):
        everywhere = critic.head(compute_hidden(critic, batch))[:, 0].float()
        counts = [int(samples[i].loss_mask.sum()) for i in indices]
        values |= {
            i: part.numpy()
            for i, part in zip(indices, everywhere[batch.predict_at[batch.row]].cpu().split(counts), strict=True)
        }
        finals |= dict(zip(indices, everywhere[batch.ends].cpu().numpy(), strict=True))
    lasts = join_rows(finals, [1] * len(samples), ranks)
    return join_rows(values, [int(s.loss_mask.sum()) for s in samples], ranks), [last.item() for last in lasts]


def compute_value_columns(old_values: TokenColumn, returns: TokenColumn) -> dict[str, TokenColumn]:
    """Return the columns `old_values`, `returns` and `value_weights` of one step; the weights give the mean over all
    tokens with a return."""
    trained = [np.isfinite(np.asarray(array, dtype=np.float64)) for array in returns]
    count = max(1, sum(int(mask.sum()) for mask in trained))
    return {
        "old_values": old_values,
        "returns": [np.where(mask, array, 0.0) for mask, array in zip(trained, returns, strict=True)],
        "value_weights": [mask / count for mask in trained],
    }


def compute_micro_batch_value_loss(
    values: torch.Tensor, batch: MicroBatch, clip: float | None
) -> tuple[torch.Tensor, dict[str, float]]:
    """Compute the micro-batch's share of the value loss of `values [K]`, and sums for the metrics."""
    columns = batch.columns
    losses, clipped = compute_value_loss(
        values if values.dtype == torch.float64 else values.float(),
        columns["old_values"],
        columns["returns"],
        clip=clip,
    )
    loss = (columns["value_weights"] * losses).sum()
    return loss, {
        "train/value_loss": float(loss.detach()),
        "train/value_clip_fraction": float((columns["value_weights"] * clipped).sum()),
    }


def run_critic_step(
    critic: Critic,
    samples: Sequence[Sample],
    columns: TokenColumns,
    *,
    max_grad_norm: float,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
    ranks: Ranks = ALONE,
) -> dict[str, Metric]:
    """Take one optimizer step of a critic with its own layers; `columns` come from `compute_value_columns`.

    Raises TrainingError, with the weights unchanged, if the loss is not finite.
    """
    started = time.perf_counter()
    totals: dict[str, float] = {}
    for _, batch in iterate_micro_batches(
        samples,
        find_device(critic.head),
        columns,
        micro_batch_tokens=micro_batch_tokens,
        shared_prefix=shared_prefix,
        ranks=ranks,
    ):
        values = critic.head(compute_hidden(critic, batch)[batch.predict_at])[batch.row, 0]
        loss, sums = compute_micro_batch_value_loss(values, batch, critic.clip)
        problem = None
        if not bool(torch.isfinite(loss)):
            problem = f"the value loss is {float(loss.detach())}; the critic was not changed. Lower critic.lr"
        if (problem := ranks.agree(problem)) is not None:
            critic.optimizer.zero_grad(set_to_none=True)
            raise TrainingError(problem)
        scale_loss(loss, critic.optimizer).backward()
        for name, amount in sums.items():
            totals[name] = totals.get(name, 0.0) + amount
    apply_gradients(critic.module, critic.optimizer, lr=critic.lr, max_grad_norm=max_grad_norm)
    metrics: dict[str, Metric] = {name: Mean(total) for name, total in add_totals(totals, ranks).items()}
    return metrics | {"train/critic_seconds": Sum(time.perf_counter() - started)}
