"""Calls TRL's trainers' arithmetic without a model, and its rewards. Runs in .venv-peers only.

A trainer object is made without its constructor and given exactly what the two methods read: log-probabilities come
from the batch instead of a forward pass, completions and rewards from the batch instead of generation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import numpy as np
import torch
from peers.batches import Batch
from peers.cases import Case, to_numpy, to_torch
from trl.experimental.gkd.gkd_trainer import GKDTrainer
from trl.experimental.gmpo.gmpo_trainer import GMPOTrainer
from trl.rewards import get_soft_overlong_punishment
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer

GRPO = "trl.trainer.grpo_trainer.GRPOTrainer"
MAX_COMPLETION_LENGTH = 40
REFERENCE_BETA = 0.04


class OneProcess:
    """What the trainers ask of an accelerator when there is one process."""

    device = torch.device("cpu")
    num_processes = 1
    process_index = 0
    sync_gradients = True

    @staticmethod
    def gather(tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    gather_for_metrics = gather

    @staticmethod
    def reduce(tensor: torch.Tensor, reduction: str) -> torch.Tensor:
        return tensor


def trl_cases(batches: Mapping[str, Batch]) -> Iterator[Case]:
    """Everything compared with TRL."""
    yield from _advantages(batches["equal"])
    yield from _losses(batches["ragged"])
    yield from _mismatch_ratios(batches["ragged"])
    yield from _sequence_masks(batches["ragged"])
    yield from _preferences(batches["equal"])
    yield _distillation()
    yield _overlong()


def _trainer(kind: type, **attributes: object) -> object:
    """A trainer that never trains; every attribute has the value of one plain step in one process."""
    trainer = object.__new__(kind)
    defaults: dict[str, object] = {
        "accelerator": OneProcess(),
        "model": SimpleNamespace(training=True, is_gradient_checkpointing=False),
        "args": _arguments(),
        "_metrics": {"train": defaultdict(list)},
        "aux_loss_enabled": False,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "importance_sampling_level": "token",
        "loss_type": "grpo",
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.28,
        "use_vllm": False,
        "vllm_importance_sampling_correction": False,
        "current_gradient_accumulation_steps": 1,
        "max_completion_length": MAX_COMPLETION_LENGTH,
        "_entropy_bonus_enabled": False,
    }
    for key, value in {**defaults, **attributes}.items():
        object.__setattr__(trainer, key, value)
    return trainer


def _arguments(**options: object) -> SimpleNamespace:
    defaults: dict[str, object] = {
        "delta": None,
        "use_bias_correction_kl": False,
        "sapo_temperature_pos": 1.0,
        "sapo_temperature_neg": 1.05,
        "vespo_k_pos": 2.0,
        "vespo_lambda_pos": 3.0,
        "vespo_k_neg": 3.0,
        "vespo_lambda_neg": 2.0,
        "steps_per_generation": 1,
        "gradient_accumulation_steps": 1,
        "gradient_checkpointing_kwargs": None,
        "per_device_train_batch_size": 1,
    }
    return SimpleNamespace(**{**defaults, **options})


def _generated(
    batch: Batch, rows: np.ndarray, kind: type, rewards: torch.Tensor, **attributes: object
) -> Mapping[str, torch.Tensor]:
    """The method that scores completions and computes advantages, on the batch's completions (`rows` in this order)."""
    lengths = [int(length) for length in batch.length[rows]]
    completions = [[5] * length for length in lengths]
    masks = [batch.mask[row, :length].tolist() for row, length in zip(rows, lengths, strict=True)]
    sampled = [batch.behavior_logprobs[row, :length].tolist() for row, length in zip(rows, lengths, strict=True)]
    prompts = [[3, 4]] * len(rows)
    generated = (prompts, completions, completions) if kind is RLOOTrainer else (
        prompts, completions, masks, completions, sampled, {}, None, None,
    )  # fmt: skip
    width = max(lengths)
    old, reference = (to_torch(array[rows, :width]) for array in (batch.old_logprobs, batch.reference_logprobs))
    names = [f"part{index}" for index in range(rewards.shape[1])]
    defaults: dict[str, object] = {
        "environment_factories": None,
        "environments": None,
        "tools": None,
        "_tokenizer": SimpleNamespace(pad_token_id=0),
        "pad_to_multiple_of": None,
        "mask_truncated_completions": False,
        "num_iterations": 1,
        "ref_model": "reference",
        "num_generations": 4,
        "multi_objective_aggregation": "sum_then_normalize",
        "scale_rewards": "group",
        "normalize_advantages": False,
        "reward_clip_range": None,
        "reward_weights": torch.ones(rewards.shape[1]),
        "reward_funcs": names,
        "reward_func_names": names,
        "_logs": {
            "prompt": [],
            "completion": [],
            "rewards": defaultdict(list),
            "advantages": [],
            "extra": defaultdict(list),
        },
        "_pending_extra_logs": {},
        "_pending_metrics": {},
        "log_multimodal": False,
        "_generate": lambda _: generated,
        "_calculate_rewards": lambda *_: rewards.clone(),
        "_get_per_token_logps_and_entropies": lambda model, *_, **__: (
            reference if model == "reference" else old,
            None,
            None,
        ),
    }
    trainer = _trainer(kind, **{**defaults, **attributes})
    scored: Mapping[str, torch.Tensor] = trainer._generate_and_score_completions([{"prompt": "p"} for _ in rows])  # type: ignore[attr-defined]
    return scored


def _advantages(batch: Batch) -> Iterator[Case]:
    rows = np.argsort(batch.group, kind="stable")  # TRL knows groups by position
    back = np.argsort(rows)
    outcome, parts = torch.from_numpy(batch.reward[rows, None]), torch.from_numpy(batch.parts[rows])
    unscored = outcome.clone()
    unscored[1] = torch.nan
    plan: list[tuple[str, type, torch.Tensor, dict[str, object]]] = [
        ("grpo", GRPOTrainer, outcome, {"scale_rewards": "group"}),
        ("dr_grpo", GRPOTrainer, outcome, {"scale_rewards": "none"}),
        ("grpo_unscored_row", GRPOTrainer, unscored, {"scale_rewards": "group"}),
        (
            "gdpo",
            GRPOTrainer,
            parts,
            {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": torch.tensor([1.0, 0.5])},
        ),
        ("rloo", RLOOTrainer, outcome, {}),
        ("rloo_unscored_row", RLOOTrainer, unscored, {}),
    ]
    for name, kind, rewards, options in plan:
        column = _generated(batch, rows, kind, rewards, **options)["advantages"]
        yield Case(
            name=f"trl/advantage/{name}",
            function=f"{kind.__module__}.{kind.__name__}._generate_and_score_completions",
            batch="equal",
            options={
                key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in options.items()
            },
            inputs={"unscored_row": int(rows[1])} if rewards is unscored else {},
            outputs={"advantages": to_numpy(column)[back]},
        )


def _loss(batch: Batch, kind: type, attributes: Mapping[str, object], *, by_token: bool) -> dict[str, np.ndarray]:
    """`value` and `gradient` of the loss method."""
    logprobs = to_torch(batch.policy_logprobs).requires_grad_()
    seen = (torch.arange(logprobs.shape[1]) < to_torch(batch.length)[:, None]).to(torch.float64)
    mask = to_torch(batch.mask)
    trainer = _trainer(
        kind,
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs, to_torch(batch.entropy), None),
        **attributes,
    )
    inputs = {
        "prompt_ids": torch.zeros(len(mask), 2),
        "prompt_mask": torch.ones(len(mask), 2),
        "completion_ids": torch.zeros_like(mask),
        "completion_mask": mask if kind is RLOOTrainer else seen,
        "tool_mask": mask,
        "advantages": to_torch(batch.token_advantages if by_token else batch.advantages),
        "old_per_token_logps": to_torch(batch.old_logprobs),
        "old_logps": (to_torch(batch.old_logprobs) * mask).sum(1),
        "ref_per_token_logps": to_torch(batch.reference_logprobs),
        "sampling_per_token_logps": to_torch(batch.behavior_logprobs),
        "num_items_in_batch": mask.sum(),
    }
    value = trainer._compute_loss(trainer.model, inputs)  # type: ignore[attr-defined]
    return {"value": to_numpy(value), "gradient": to_numpy(torch.autograd.grad(value, logprobs)[0])}


def _losses(batch: Batch) -> Iterator[Case]:
    narrow = {"epsilon_low": 0.03, "epsilon_high": 0.04}
    bonus = {"_entropy_bonus_enabled": True, "use_adaptive_entropy": False, "entropy_coef": 0.02}
    plan: list[tuple[str, type, bool, dict[str, object], dict[str, object]]] = [
        ("grpo", GRPOTrainer, True, {"loss_type": "grpo"}, {}),
        ("dr_grpo", GRPOTrainer, True, {"loss_type": "dr_grpo"}, {}),
        ("dapo", GRPOTrainer, True, {"loss_type": "dapo"}, {}),
        ("bnpo", GRPOTrainer, True, {"loss_type": "bnpo"}, {}),
        ("two_sided", GRPOTrainer, True, {"loss_type": "dapo"}, {"delta": 1.5}),
        ("cispo", GRPOTrainer, True, {"loss_type": "cispo", "epsilon_high": 1.2}, {}),
        ("sapo", GRPOTrainer, True, {"loss_type": "sapo"}, {}),
        ("gspo", GRPOTrainer, False, {"loss_type": "grpo", "importance_sampling_level": "sequence", **narrow}, {}),
        ("luspo", GRPOTrainer, False, {"loss_type": "luspo", "importance_sampling_level": "sequence", **narrow}, {}),
        ("vespo", GRPOTrainer, False, {"loss_type": "vespo"}, {}),
        ("gmpo", GMPOTrainer, False, {"epsilon_low": 0.1, "epsilon_high": 0.1}, {}),
        ("opsm", GRPOTrainer, False, {"loss_type": "dapo", "off_policy_mask_threshold": 0.1}, {}),
        ("kl_in_loss", GRPOTrainer, True, {"loss_type": "dapo", "beta": REFERENCE_BETA}, {}),
        (
            "kl_unbiased",
            GRPOTrainer,
            True,
            {"loss_type": "dapo", "beta": REFERENCE_BETA},
            {"use_bias_correction_kl": True},
        ),
        ("entropy_bonus", GRPOTrainer, True, {"loss_type": "dapo", **bonus}, {}),
        ("rloo", RLOOTrainer, False, {}, {}),
    ]
    for name, kind, by_token, attributes, arguments in plan:
        yield Case(
            name=f"trl/loss/{name}",
            function=f"{kind.__module__}.{kind.__name__}._compute_loss",
            batch="ragged",
            options={**attributes, **arguments, "advantages": "token" if by_token else "row"},
            outputs=_loss(batch, kind, {**attributes, "args": _arguments(**arguments)}, by_token=by_token),
        )


def _mismatch_ratios(batch: Batch) -> Iterator[Case]:
    rows = np.arange(len(batch.group))
    for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"):
        lower = 0.5 if mode.endswith("mask") else None
        column = _generated(
            batch,
            rows,
            GRPOTrainer,
            torch.from_numpy(batch.reward[:, None]),
            num_generations=1,
            scale_rewards="none",
            use_vllm=True,
            vllm_importance_sampling_correction=True,
            vllm_importance_sampling_mode=mode,
            vllm_importance_sampling_clip_min=lower,
            vllm_importance_sampling_clip_max=1.5,
        )["importance_sampling_ratio"]
        width = int(batch.length.max())
        ratios = np.zeros_like(batch.mask)
        ratios[:, :width] = np.broadcast_to(to_numpy(column), (len(rows), width)) * batch.mask[:, :width]
        yield Case(
            name=f"trl/correction/{mode}",
            function=f"{GRPO}._generate_and_score_completions",
            batch="ragged",
            options={"mode": mode, "clip_min": lower, "clip_max": 1.5},
            outputs={"weights": ratios},
        )


def _sequence_masks(batch: Batch) -> Iterator[Case]:
    mask = to_torch(batch.mask)
    kept = GRPOTrainer.get_off_policy_mask(
        to_torch(batch.advantages)[:, None],
        to_torch(batch.policy_logprobs),
        to_torch(batch.behavior_logprobs),
        mask,
        0.1,
    )
    yield Case(
        name="trl/opsm",
        function=f"{GRPO}.get_off_policy_mask",
        batch="ragged",
        options={"off_policy_threshold": 0.1},
        outputs={"kept": to_numpy(kept * mask)},
    )


def _preferences(batch: Batch) -> Iterator[Case]:
    """Even rows are chosen, odd rows rejected. In a step only the first turn that trains counts."""
    every = batch.mask
    step = np.zeros_like(every)
    for row, turn in enumerate(batch.trains.argmax(1)):
        step[row, slice(*batch.spans[row, turn])] = 1.0
    plan: list[tuple[str, str, float, float, np.ndarray]] = [
        ("dpo/beta_0.1", "sigmoid", 0.1, 0.0, every),
        ("dpo/beta_0.7", "sigmoid", 0.7, 0.0, every),
        ("step_dpo", "sigmoid", 0.1, 0.0, step),
        ("cdpo", "aot", 0.1, 0.2, every),
        ("ipo", "ipo", 0.1, 0.0, every),
        ("sft", "sft", 0.1, 0.0, every),
    ]
    for name, loss_type, beta, smoothing, mask in plan:
        logprobs = to_torch(batch.policy_logprobs).requires_grad_()
        chosen = np.arange(0, len(mask) - 1, 2)
        # AOT sorts its batch; of one pair at a time it is the conservative DPO.
        calls = [chosen] if loss_type != "aot" else [chosen[index : index + 1] for index in range(len(chosen))]
        losses = [
            _preference(batch, logprobs, mask, rows, loss_type=loss_type, beta=beta, smoothing=smoothing)
            for rows in calls
        ]
        value = torch.stack(losses).mean()
        yield Case(
            name=f"trl/preference/{name}",
            function="trl.trainer.dpo_trainer.DPOTrainer._compute_loss",
            batch="equal",
            options={"loss_type": loss_type, "beta": beta, "label_smoothing": smoothing, "chosen": "even rows"},
            outputs={"value": to_numpy(value), "gradient": to_numpy(torch.autograd.grad(value, logprobs)[0])},
        )


def _preference(
    batch: Batch,
    logprobs: torch.Tensor,
    mask: np.ndarray,
    chosen: np.ndarray,
    *,
    loss_type: str,
    beta: float,
    smoothing: float,
) -> torch.Tensor:
    rows = np.concatenate([chosen, chosen + 1])
    where = to_torch(mask[rows])
    padded = torch.cat([torch.zeros(len(rows), 1), where], dim=1)  # the first column stands for the prompt
    reference = (to_torch(batch.reference_logprobs[rows]) * where).sum(1)
    zeros = torch.zeros_like(where)
    outputs = SimpleNamespace(log_probs=logprobs[rows] * where, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())
    trainer = _trainer(
        DPOTrainer,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=[loss_type],
        loss_weights=[1.0],
        beta=beta,
        label_smoothing=smoothing,
        use_weighting=False,
        _tp_size=1,
        _total_train_tokens=0,
    )
    inputs = {
        "input_ids": torch.zeros_like(padded, dtype=torch.long),
        "attention_mask": torch.ones_like(padded),
        "completion_mask": padded.long(),
        "ref_chosen_logps": reference[: len(chosen)],
        "ref_rejected_logps": reference[len(chosen) :],
    }
    loss: torch.Tensor = trainer._compute_loss(lambda **_: outputs, inputs, False)  # type: ignore[attr-defined]
    return loss


def _distillation() -> Case:
    rng = np.random.default_rng(7)
    student, teacher = (torch.from_numpy(rng.standard_normal((1, 6, 5))) for _ in range(2))
    logits = student.clone().requires_grad_()
    value = GKDTrainer.generalized_jsd_loss(logits, teacher, labels=torch.zeros(1, 6), beta=1.0)
    return Case(
        name="trl/distillation/reverse_kl",
        function="trl.experimental.gkd.gkd_trainer.GKDTrainer.generalized_jsd_loss",
        batch=None,
        options={"beta": 1.0},
        inputs={"student": student[0].tolist(), "teacher": teacher[0].tolist()},
        outputs={"value": to_numpy(value), "gradient": to_numpy(torch.autograd.grad(value, logits)[0][0])},
    )


def _overlong() -> Case:
    lengths = [0, 79, 80, 81, 90, 99, 100, 101, 150]
    reward = get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=20)
    return Case(
        name="trl/reward/overlong",
        function="trl.rewards.get_soft_overlong_punishment",
        batch=None,
        options={"max_completion_len": 100, "soft_punish_cache": 20},
        inputs={"lengths": lengths},
        outputs={"rewards": np.array(reward([[1] * length for length in lengths]), dtype=np.float64)},
    )
