"""Small trainers and batches for tests of several ranks; what is here can be sent to other processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from transformers import PreTrainedModel

from turnwise.algorithms.losses.table import build_loss
from turnwise.algorithms.preference.dpo import PairOutput, compute_dpo_loss
from turnwise.batching.collate import Packing
from turnwise.batching.ranks import find_largest
from turnwise.core.batch import Objective, Pair, StepReport, TrainingBatch, Wanted
from turnwise.core.protocols import Trainer
from turnwise.core.types import Origin, Sample, TrajectoryId, to_experts, to_floats, to_ids, to_mask
from turnwise.hosts.host import Host
from turnwise.models.build import build_model
from turnwise.models.lora import add_adapter, list_adapter
from turnwise.models.rows import cut_rows, own_rows
from turnwise.training.concentration import CONCENTRATIONS
from turnwise.training.critic import build_critic
from turnwise.training.implicit_reward import build_implicit_reward
from turnwise.training.local import LocalTrainer, TrainerSettings
from turnwise.training.optimizer import Schedule
from turnwise.training.placement import WHOLE, Placement
from turnwise.training.policy_step import PolicyLoss
from turnwise.training.ranks.communication import JoinedRanks, join_group
from turnwise.training.ranks.sharding import Sharded
from turnwise.training.ranks.trainer import RankedTrainer

VOCAB = 96
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "tie_word_embeddings": True,
    "initializer_range": 0.1,
}
MIXTURE = {**SIZES, "moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
HYBRID = {**SIZES, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}
"""Of `lfm2`, which takes the generic path."""
EXPERTS = np.random.default_rng(0).permuted(np.tile(np.arange(4), (VOCAB, 2, 1)), axis=-1)[..., :2]
"""Of the token ids of a vocabulary, `[V, layers, k]`."""
ADAM: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.01}


def compute_pair_loss(policy: Any, reference: Any, sequence: Any, in_step: Any, num_pairs: int) -> PairOutput:
    return compute_dpo_loss(policy, reference, sequence, num_pairs=num_pairs, beta=0.5)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A trainer and the steps it takes."""

    loss: str = "ppo"
    aggregation: str = "token_mean"
    batch_rule: bool = False
    kl: float = 0.0
    critic: Literal["", "head", "separate"] = ""
    has_implicit: bool = False
    has_teacher: bool = False
    objective: Objective = "policy_gradient"
    num_updates: int = 1
    shared_prefix: bool = True
    micro_batch_tokens: int = 40
    is_adapted: bool = False
    dtype: str = "float32"
    recomputes: bool = False
    is_mixture: bool = False
    is_hybrid: bool = False
    offloads: bool = False

    @property
    def wanted(self) -> frozenset[Wanted]:
        wanted: set[Wanted] = set() if self.objective != "policy_gradient" else {"old_logprobs"}
        wanted |= {"values"} if self.critic else set()
        wanted |= {"implicit_rewards"} if self.has_implicit else set()
        wanted |= {"teacher_logprobs", *CONCENTRATIONS} if self.has_teacher else set()
        return frozenset(wanted)

    def build_policy(self, seed: int = 0) -> PreTrainedModel:
        kinds: dict[str, dict[str, Any]] = {"qwen3": SIZES, "qwen3_moe": MIXTURE, "lfm2": HYBRID}
        model_type = "qwen3_moe" if self.is_mixture else "lfm2" if self.is_hybrid else "qwen3"
        sizes = kinds[model_type]
        model = build_model(model_type, sizes, vocab_size=VOCAB, seed=seed, dtype=self.dtype)
        if not self.is_adapted:
            return model
        model = add_adapter(model, rank=3, alpha=4, dropout=0.0, target_modules="all-linear", base="", seed=seed)
        for name, parameter in list_adapter(model).items():
            parameter.data += 0.1 * ("lora_B" in name)  # B is 0 at first, and then A has no gradient
        return model

    def build(self, model: PreTrainedModel, placement: Placement = WHOLE) -> LocalTrainer:
        settings = TrainerSettings(
            schedule=Schedule(base=1e-2, warmup_steps=2, total_steps=20, decay="linear"),
            warmup=Schedule(base=1e-2, warmup_steps=0, total_steps=10, decay="cosine"),
            pretraining=Schedule(base=1e-2, warmup_steps=0, total_steps=10, decay="cosine"),
            **ADAM,
            max_grad_norm=1.0,
            packing=Packing(micro_batch_tokens=self.micro_batch_tokens, shared_prefix=self.shared_prefix),
            temperature=0.8,
            recompute_activations=self.recomputes,
            critic_epochs=2,
            needs_reference=bool(self.kl) or self.has_implicit or self.objective == "preference",
        )
        loss = PolicyLoss(
            function=build_loss(self.loss),
            temperature=0.8,
            aggregation=self.aggregation,  # type: ignore[arg-type]
            batch_rule=self.batch_rule,
            kl_coefficient=self.kl,
            teacher_coefficient=0.5 * self.has_teacher,
        )
        critic = partial(build_critic, kind=self.critic, lr=1e-2, clip=0.2, coefficient=0.5, **ADAM)  # type: ignore[arg-type]
        teacher = None
        if self.has_teacher:
            teacher = placement.place(replace(self, is_adapted=False).build_policy(9).requires_grad_(False))
        return LocalTrainer(
            model,
            None,
            settings,
            loss=loss,
            pair_loss=compute_pair_loss,
            build_critic=critic if self.critic else None,
            build_implicit=partial(build_implicit_reward, lr=1e-2, beta=0.5, **ADAM) if self.has_implicit else None,
            teacher=teacher,
            placement=placement,
        )

    def build_local(self, seed: int = 0) -> LocalTrainer:
        return self.build(self.build_policy(seed))

    def build_ranked(
        self, num_ranks: int, seed: int = 0, *, deadline_s: float = 60.0, host: Host | None = None
    ) -> RankedTrainer:
        return RankedTrainer(
            self.build_policy(seed),
            None,
            f"{__name__}:{build_for_rank.__name__}",
            asdict(self),
            num_ranks=num_ranks,
            offloads=self.offloads,
            deadline_s=deadline_s,
            host=host,
        )


def build_for_rank(case: Mapping[str, Any], model: PreTrainedModel, placement: Placement) -> LocalTrainer:
    return Case(**case).build(model, placement)


def make_samples(step: int, *, groups: int = 3, members: int = 3) -> list[Sample]:
    """Groups of trajectories that share a prompt; of different lengths."""
    samples = []
    for draw in range(groups):
        prompt = np.random.default_rng(100 * step + draw).integers(0, VOCAB, 6 + draw)
        for member in range(members):
            rng = np.random.default_rng([step, draw, member])
            reply = rng.integers(0, VOCAB, 3 + 5 * draw + member)
            mask = np.concatenate([np.zeros(len(prompt), bool), rng.random(len(reply)) < 0.7])
            mask[-1] = True
            samples.append(
                Sample(
                    token_ids=to_ids(np.concatenate([prompt, reply])),
                    loss_mask=to_mask(mask),
                    behavior_logprobs=to_floats(np.where(mask, -np.log(VOCAB) + rng.normal(0, 0.1, len(mask)), 0.0)),
                    advantages=to_floats(np.where(mask, rng.normal(), 0.0)),
                    version_first=step,
                    version_last=step,
                    origin=Origin(trajectory=TrajectoryId(draw=draw, member=member), task_id=f"t{draw}"),
                )
            )
    return samples


def add_experts(samples: Sequence[Sample]) -> list[Sample]:
    """Two of the four experts of each of two layers per token, the same for equal token ids."""
    return [replace(each, experts=to_experts(EXPERTS[each.token_ids[:-1]])) for each in samples]


def make_batch(trainer: Trainer, case: Case, step: int, samples: list[Sample] | None = None) -> TrainingBatch:
    """What a learner would hand over, scored by the trainer itself."""
    samples = samples or make_samples(step)
    samples = add_experts(samples) if case.is_mixture else samples
    columns = trainer.score(samples, case.wanted, outcomes=[float(i % 2) for i in range(len(samples))])
    counts = [int(s.loss_mask.sum()) for s in samples]
    if case.critic:
        columns = replace(columns, returns=tuple(np.linspace(-1, 1, count) for count in counts))
    marks = [(to_mask(np.ones(count, bool)),) for count in counts]
    pairs = tuple(
        Pair(chosen=(i,), rejected=(i + 1,), chosen_in_step=marks[i], rejected_in_step=marks[i + 1])
        for i in range(0, len(samples) - 1, 2)
    )
    order = list(range(len(samples)))
    return TrainingBatch(
        step=step,
        objective=case.objective,
        samples=tuple(samples),
        columns=columns,
        updates=tuple(tuple(order[i :: case.num_updates]) for i in range(case.num_updates)),
        pairs=pairs if case.objective == "preference" else (),
    )


def train(trainer: Trainer, case: Case, step: int) -> StepReport:
    """One step on the samples of that number."""
    return trainer.step(make_batch(trainer, case, step))


def find_gap(one: PreTrainedModel, other: PreTrainedModel) -> float:
    """The largest difference of a weight."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((mine - theirs).detach().abs().max()) for mine, theirs in pairs)


def build_sharded(case: Case, seed: int = 0) -> tuple[LocalTrainer, Sharded]:
    """A trainer on this process's rows, where it has joined the other ranks."""
    ranks, device = JoinedRanks(lambda: None), torch.device("cpu")
    placement = Sharded(case.build_policy(seed), ranks, device, offloads=case.offloads)
    return case.build(placement.place(placement.copy(placement.source)), placement), placement


def compare_on_ranks(num_ranks: int, cases: Mapping[str, Case], folder: Path, *, steps: int) -> dict[str, list[float]]:
    """By case: the difference of the first loss and of the largest later one to one process, then that of the weights.

    All cases in one set of processes, because it takes seconds to start one.
    """
    spawn(_compare, (num_ranks, dict(cases), folder, steps), nprocs=num_ranks)
    gaps: dict[str, list[float]] = json.loads((folder / "gaps.json").read_text())
    return gaps


def _compare(index: int, num_ranks: int, cases: Mapping[str, Case], folder: Path, steps: int) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "meeting"), num_ranks)  # type: ignore[attr-defined]
    join_group(store, index, num_ranks, deadline_s=120, device=torch.device("cpu"))
    gaps = {}
    for name, case in cases.items():
        alone, (sharded, placement) = case.build_local(), build_sharded(case)
        losses = []
        for step in range(1, steps + 1):
            mine, theirs = train(alone, case, step), train(sharded, case, step)
            assert mine.metrics.keys() == theirs.metrics.keys()
            losses.append(abs(mine.metrics["train/loss"].value - theirs.metrics["train/loss"].value))
        pairs = zip(sharded.model.parameters(), alone.model.parameters(), strict=True)
        differences = [(own_rows(p.detach()) - cut_rows(q.detach(), p)).abs() for p, q in pairs]
        weights = max(float(each.max()) for each in differences if each.numel())
        gaps[name] = [losses[0], max(losses), find_largest(weights, placement.ranks)]
    if index == 0:
        (folder / "gaps.json").write_text(json.dumps(gaps))
