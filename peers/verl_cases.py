"""Calls verl's estimators, losses and corrections. Runs in .venv-peers only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import numpy as np
import torch
from peers.batches import Batch, squared_mass, token_rewards
from peers.cases import Case, to_numpy, to_torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.utils.reward_score import rlla, search_r1_like_qa_em
from verl.workers.config import ActorConfig

CORE = "verl.trainer.ppo.core_algos"
NO_DUAL_CLIP = 1e9


def verl_cases(batches: Mapping[str, Batch]) -> Iterator[Case]:
    """Everything compared with verl."""
    yield from _group_advantages(batches)
    yield from _token_baselines(batches["ragged"])
    yield from _token_advantages(batches["ragged"])
    for name in ("ragged", "extreme"):
        yield from _policy_losses(batches[name], name)
    yield from _policy_losses_off_policy(batches["ragged"])
    yield from _aggregation(batches["ragged"])
    yield from _divergences(batches["ragged"])
    yield from _corrections(batches["ragged"])
    yield from _critic(batches["ragged"])
    yield from _rewards()


def _group_advantages(batches: Mapping[str, Batch]) -> Iterator[Case]:
    plan: list[tuple[str, str, str, dict[str, object]]] = [
        ("grpo", "compute_grpo_outcome_advantage", "ragged", {}),
        ("dr_grpo", "compute_grpo_outcome_advantage", "ragged", {"norm_adv_by_std_in_grpo": False}),
        ("grpo_vectorized", "compute_grpo_vectorized_outcome_advantage", "ragged", {}),
        ("rloo", "compute_rloo_outcome_advantage", "ragged", {}),
        ("rloo_vectorized", "compute_rloo_vectorized_outcome_advantage", "ragged", {}),
        ("opo", "compute_opo_outcome_advantage", "ragged", {}),
        ("gpg", "compute_gpg_outcome_advantage", "ragged", {}),
        ("reinforce_pp_baseline", "compute_reinforce_plus_plus_baseline_outcome_advantage", "equal", {}),
        ("reinforce_pp_baseline_ragged", "compute_reinforce_plus_plus_baseline_outcome_advantage", "ragged", {}),
        ("gdpo_one_reward", "compute_gdpo_outcome_advantage", "equal", {}),
    ]
    for name, function, batch_name, options in plan:
        batch = batches[batch_name]
        rewards, mask = to_torch(token_rewards(batch, turn_rewards=False)), to_torch(batch.mask)
        advantages, _ = getattr(core_algos, function)(rewards, mask, batch.group, **options)
        outputs = {"advantages": to_numpy(advantages)}
        yield Case(
            name=f"verl/{name}", function=f"{CORE}.{function}", batch=batch_name, options=options, outputs=outputs
        )
    yield from _group_advantages_with_more(batches["equal"])


def _token_baselines(batch: Batch) -> Iterator[Case]:
    function = "compute_multi_turn_optimal_token_baseline_advantage"
    for name, turn_rewards in (("outcome", False), ("turn_rewards", True)):
        advantages, _ = getattr(core_algos, function)(
            to_torch(token_rewards(batch, turn_rewards=turn_rewards)),
            to_torch(batch.mask),
            batch.group,
            to_torch(batch.old_logprobs),
            to_torch(squared_mass(batch)),
        )
        outputs = {"advantages": to_numpy(advantages)}
        yield Case(
            name=f"verl/otb/{name}",
            function=f"{CORE}.{function}",
            batch="ragged",
            options={"rewards": name},
            outputs=outputs,
        )


def _group_advantages_with_more(batch: Batch) -> Iterator[Case]:
    rewards, mask = to_torch(token_rewards(batch, turn_rewards=False)), to_torch(batch.mask)
    for by_std in (True, False):
        options = {"norm_adv_by_std_in_grpo": by_std}
        advantages, _ = core_algos.compute_grpo_passk_outcome_advantage(
            rewards, mask, batch.group, config=AlgoConfig(**options)
        )
        yield Case(
            name=f"verl/pass_at_k/{'std' if by_std else 'no_std'}",
            function=f"{CORE}.compute_grpo_passk_outcome_advantage",
            batch="equal",
            options=options,
            outputs={"advantages": to_numpy(advantages)},
        )
    advantages, _ = core_algos.compute_remax_outcome_advantage(rewards, to_torch(batch.greedy_reward), mask)
    yield Case(
        name="verl/remax",
        function=f"{CORE}.compute_remax_outcome_advantage",
        batch="equal",
        outputs={"advantages": to_numpy(advantages)},
    )
    weights = [1.0, 0.5]
    keys = [f"part{index}" for index in range(batch.parts.shape[1])]
    advantages, _ = core_algos.compute_gdpo_outcome_advantage(
        rewards,
        mask,
        batch.group,
        config={"gdpo_reward_keys": keys, "gdpo_reward_weights": weights},
        non_tensor_batch={key: batch.parts[:, index] for index, key in enumerate(keys)},
        batch={
            "prompts": torch.zeros(len(mask), 3),
            "attention_mask": torch.ones(len(mask), 3 + mask.shape[1], dtype=torch.long),
        },
    )
    yield Case(
        name="verl/gdpo_two_rewards",
        function=f"{CORE}.compute_gdpo_outcome_advantage",
        batch="equal",
        options={"weights": weights},
        outputs={"advantages": to_numpy(advantages)},
    )


def _token_advantages(batch: Batch) -> Iterator[Case]:
    mask, rewards = to_torch(batch.mask), to_torch(token_rewards(batch, turn_rewards=True))
    seen = torch.arange(mask.shape[1]) < to_torch(batch.length)[:, None]
    for gamma, lam in ((1.0, 1.0), (0.9, 0.8), (0.9, 0.0)):
        for over, where in (("actions", mask), ("observations", seen.to(torch.float64))):
            advantages, returns = core_algos.compute_gae_advantage_return(
                rewards, to_torch(batch.values), where, gamma, lam
            )
            yield Case(
                name=f"verl/gae_over_{over}/{gamma}_{lam}",
                function=f"{CORE}.compute_gae_advantage_return",
                batch="ragged",
                options={"gamma": gamma, "lam": lam, "mask": over},
                outputs={"whitened": to_numpy(advantages * where), "returns": to_numpy(returns * where)},
            )
    outcome = to_torch(token_rewards(batch, turn_rewards=False))
    old, reference = to_torch(batch.behavior_logprobs), to_torch(batch.reference_logprobs)
    for gamma, kl_ratio in ((1.0, 0.0), (0.9, 0.0), (1.0, 0.05)):
        penalised = core_algos.compute_rewards(outcome, old, reference, kl_ratio) * mask
        config = SimpleNamespace(gamma=gamma)
        advantages, returns = core_algos.compute_reinforce_plus_plus_outcome_advantage(penalised, mask, config)
        yield Case(
            name=f"verl/reinforce_pp/gamma_{gamma}_kl_{kl_ratio}",
            function=f"{CORE}.compute_reinforce_plus_plus_outcome_advantage",
            batch="ragged",
            options={"gamma": gamma, "kl_ratio": kl_ratio},
            outputs={"advantages": to_numpy(advantages), "returns": to_numpy(returns)},
        )


POLICY_LOSSES: tuple[tuple[str, str, str, dict[str, object]], ...] = (
    ("vanilla", "ppo", "token", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": NO_DUAL_CLIP}),
    ("vanilla", "clip_higher", "token", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": NO_DUAL_CLIP}),
    ("vanilla", "dual_clip", "token", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 1.5}),
    (
        "dppo_tv",
        "dppo_tv",
        "token",
        {"clip_ratio": 0.05, "clip_ratio_low": 0.05, "clip_ratio_high": 0.05, "clip_ratio_c": 1.6},
    ),
    (
        "dppo_kl",
        "dppo_kl",
        "token",
        {"clip_ratio": 0.01, "clip_ratio_low": 0.01, "clip_ratio_high": 0.01, "clip_ratio_c": 1.6},
    ),
    ("gspo", "gspo", "row", {"clip_ratio_low": 0.03, "clip_ratio_high": 0.04}),
    ("gspo", "gspo_token", "token", {"clip_ratio_low": 0.03, "clip_ratio_high": 0.04}),
    ("sapo", "sapo", "token", {"tau_pos": 1.0, "tau_neg": 1.05}),
    ("gpg", "gpg", "token", {}),
    ("clip_cov", "clip_cov", "row", {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.1, "clip_cov_ub": 1.0}),
    ("kl_cov", "kl_cov", "row", {"kl_cov_ratio": 0.2, "ppo_kl_coef": 1.0}),
    ("geo_mean", "gmpo", "row", {"clip_ratio_low": 0.1, "clip_ratio_high": 0.1}),
    ("dro", "dro", "token", {"dro_beta": 0.3}),
    ("cispo", "cispo", "token", {"clip_ratio_low": 10.0, "clip_ratio_high": 0.2}),
    ("cispo", "cispo_two_sided", "token", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2}),
)
"""verl's name, ours, per-token or per-row advantages, options. Clip ranges are narrow so that every branch is taken."""


def _actor_config(options: Mapping[str, object]) -> ActorConfig:
    actor_options = {key: value for key, value in options.items() if key.startswith(("clip_ratio", "tau"))}
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **actor_options)
    for key, value in options.items():
        if key not in actor_options:
            object.__setattr__(config.policy_loss, key, value)
    return config


BOUNDED_LOSSES = ("ppo", "dual_clip", "sapo", "cispo")
"""Whose log-ratio verl bounds by 20 in both directions, as ours does."""


def _policy_losses(batch: Batch, batch_name: str) -> Iterator[Case]:
    """Per call: the token mean and its gradient; and each token's loss, read off as the gradient of the token sum with
    respect to the correction weights, which multiply it (`geo_mean` averages them and `sapo` fixes its aggregation:
    there it means less)."""
    mask, old = to_torch(batch.mask), to_torch(batch.old_logprobs)
    for verl_name, name, level, options in POLICY_LOSSES:
        if batch_name == "extreme" and name not in BOUNDED_LOSSES:
            continue
        function = core_algos.get_policy_loss_fn(verl_name)
        advantages = to_torch(
            batch.token_advantages if level == "token" else np.repeat(batch.advantages[:, None], mask.shape[1], 1)
        )
        logprobs = to_torch(batch.policy_logprobs).requires_grad_()
        arguments = {"advantages": advantages, "response_mask": mask, "config": _actor_config(options)}
        value, _ = function(old_log_prob=old, log_prob=logprobs, loss_agg_mode="token-mean", **arguments)
        (gradient,) = torch.autograd.grad(value, logprobs)
        outputs = {"value": to_numpy(value), "gradient": to_numpy(gradient)}
        if verl_name not in ("geo_mean", "sapo"):
            ones = torch.ones_like(mask, requires_grad=True)
            total, _ = function(
                old_log_prob=old,
                log_prob=logprobs.detach(),
                loss_agg_mode="token-sum",
                rollout_is_weights=ones,
                **arguments,
            )
            outputs["losses"] = to_numpy(torch.autograd.grad(total, ones)[0])
        path, prefix = f"{CORE}.{function.__name__}", "loss" if batch_name == "ragged" else f"loss_{batch_name}"
        recorded = {**options, "advantages": level}
        yield Case(name=f"verl/{prefix}/{name}", function=path, batch=batch_name, options=recorded, outputs=outputs)


def _policy_losses_off_policy(batch: Batch) -> Iterator[Case]:
    """Three policies: the sampler's, the proximal one, the current one."""
    mask, old, behavior = to_torch(batch.mask), to_torch(batch.old_logprobs), to_torch(batch.behavior_logprobs)
    advantages = to_torch(batch.token_advantages)
    weights = (old - behavior).exp()
    for cap in (2.0, 1.2):
        config = _actor_config({"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": NO_DUAL_CLIP})
        logprobs = to_torch(batch.policy_logprobs).requires_grad_()
        value, _ = core_algos.compute_policy_loss_vanilla(
            old, logprobs, advantages, mask, "token-mean", config, rollout_is_weights=weights.clamp(max=cap)
        )
        yield Case(
            name=f"verl/loss/decoupled_ppo/cap_{cap}",
            function=f"{CORE}.compute_policy_loss_vanilla",
            batch="ragged",
            options={"clip_ratio": 0.2, "rollout_is_weights": f"old/behavior, at most {cap}"},
            outputs={"value": to_numpy(value), "gradient": to_numpy(torch.autograd.grad(value, logprobs)[0])},
        )
    logprobs = to_torch(batch.policy_logprobs).requires_grad_()
    config = _actor_config({})
    value, _ = core_algos.compute_policy_loss_reinforce(behavior, logprobs, advantages, mask, "token-mean", config)
    yield Case(
        name="verl/loss/reinforce",
        function=f"{CORE}.compute_policy_loss_reinforce",
        batch="ragged",
        outputs={"value": to_numpy(value), "gradient": to_numpy(torch.autograd.grad(value, logprobs)[0])},
    )


def _aggregation(batch: Batch) -> Iterator[Case]:
    """The gradient with respect to the per-token losses is the weight of each token. One row is masked throughout."""
    mask = to_torch(batch.mask)
    mask[2] = 0.0
    for mode in ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"):
        losses = to_torch(batch.token_advantages).requires_grad_()
        value = core_algos.agg_loss(losses, mask, mode, loss_scale_factor=40 if mode.endswith("norm") else None)
        yield Case(
            name=f"verl/aggregate/{mode}",
            function=f"{CORE}.agg_loss",
            batch="ragged",
            options={"loss_agg_mode": mode, "loss_scale_factor": 40, "masked_row": 2},
            outputs={"value": to_numpy(value), "weights": to_numpy(torch.autograd.grad(value, losses)[0])},
        )


def _divergences(batch: Batch) -> Iterator[Case]:
    mask, reference = to_torch(batch.mask), to_torch(batch.reference_logprobs)
    for kind in ("k1", "k2", "k3", "k3+"):
        logprobs = to_torch(batch.policy_logprobs).requires_grad_()
        losses = core_algos.kl_penalty(logprobs, reference, kind) * mask
        (gradient,) = torch.autograd.grad(losses.sum(), logprobs)
        yield Case(
            name=f"verl/kl/{kind}",
            function=f"{CORE}.kl_penalty",
            batch="ragged",
            options={"kl_penalty": kind},
            outputs={"losses": to_numpy(losses), "gradient": to_numpy(gradient)},
        )
    controller = core_algos.AdaptiveKLController(init_kl_coef=0.2, target_kl=6.0, horizon=1000)
    coefficients = []
    observed = [3.0, 5.9, 6.0, 6.5, 60.0]
    for kl in observed:
        controller.update(kl, 64)
        coefficients.append(controller.value)
    yield Case(
        name="verl/kl/adaptive",
        function=f"{CORE}.AdaptiveKLController.update",
        batch=None,
        options={"init_kl_coef": 0.2, "target_kl": 6.0, "horizon": 1000, "n_steps": 64},
        inputs={"kl": observed},
        outputs={"coefficients": np.array(coefficients)},
    )


def _corrections(batch: Batch) -> Iterator[Case]:
    mask = to_torch(batch.mask)
    log_ratio = to_torch(batch.old_logprobs - batch.behavior_logprobs)
    path = "verl.trainer.ppo.rollout_corr_helper"
    for level in ("token", "sequence"):
        for threshold in ("1.5", "0.5_1.5"):
            weights, _ = rollout_corr_helper.compute_rollout_correction_weights(log_ratio, mask, level, threshold)
            yield Case(
                name=f"verl/correction/{level}_{threshold}",
                function=f"{path}.compute_rollout_correction_weights",
                batch="ragged",
                options={"rollout_is": level, "rollout_is_threshold": threshold},
                outputs={"weights": to_numpy(weights * mask)},
            )
    for option, threshold in (("token_k1", "0.6_1.4"), ("seq_sum_k1", "0.5_1.5"), ("seq_mean_k1", "0.9_1.1")):
        kept, _ = rollout_corr_helper.compute_rollout_rejection_mask(log_ratio, mask, option, threshold)
        yield Case(
            name=f"verl/rejection/{option}",
            function=f"{path}.compute_rollout_rejection_mask",
            batch="ragged",
            options={"rollout_rs": option, "rollout_rs_threshold": threshold},
            outputs={"kept": to_numpy(kept)},
        )


def _critic(batch: Batch) -> Iterator[Case]:
    values = to_torch(batch.new_values).requires_grad_()
    value, _ = core_algos.compute_value_loss(
        values, to_torch(batch.returns), to_torch(batch.values), to_torch(batch.mask), 0.5
    )
    yield Case(
        name="verl/value_loss",
        function=f"{CORE}.compute_value_loss",
        batch="ragged",
        options={"cliprange_value": 0.5},
        outputs={"value": to_numpy(value), "gradient": to_numpy(torch.autograd.grad(value, values)[0])},
    )


ANSWERS = [
    ("The Port Vessa!", ["port vessa"]),
    ("Port  Vessa, an island", ["Port Vessa island", "Vessa"]),
    ("Orin Vale", ["Port Vessa", "orin-vale"]),
    ("1,024", ["1024"]),
    ("", ["the"]),
    ("a theory", ["theory"]),
    ("a theory", ["the ory"]),
]
_WEATHER = {"name": "weather", "parameters": {"city": "Oslo", "day": 2}}
_MAIL = {"name": "mail", "parameters": {"to": "ann", "text": "hi", "copy": True}}
TOOL_CALLS: list[tuple[list[dict[str, object]], list[dict[str, object]]]] = [
    ([_WEATHER], [_WEATHER]),
    ([_WEATHER], [{"name": "weather", "parameters": {"city": "Rome", "day": 2}}]),
    ([_WEATHER], [{"name": "weather", "parameters": {"city": "Oslo"}}]),
    ([_WEATHER], [{"name": "weather", "parameters": {"city": "Oslo", "day": 2, "hour": 3}}]),
    ([_WEATHER, _MAIL], [_MAIL, _WEATHER]),
    ([_WEATHER, _MAIL], [_MAIL]),
    ([_WEATHER, _MAIL], [_WEATHER, _WEATHER]),
    ([_WEATHER, _WEATHER], [{"name": "weather", "parameters": {"city": "Oslo"}}, _WEATHER]),
    ([_WEATHER], [_MAIL]),
    ([_WEATHER], []),
    ([{"name": "now", "parameters": {}}], [{"name": "now", "parameters": {"zone": 1}}]),
    (
        [{"name": "now", "parameters": {}}, _MAIL],
        [{"name": "now", "parameters": {}}, {"name": "mail", "parameters": {"to": "bob"}}],
    ),
]


def _rewards() -> Iterator[Case]:
    yield Case(
        name="verl/reward/exact_match",
        function="verl.utils.reward_score.search_r1_like_qa_em.em_check",
        batch=None,
        inputs={"answers": ANSWERS},
        outputs={"rewards": np.array([float(search_r1_like_qa_em.em_check(*answer)) for answer in ANSWERS])},
    )
    rewards = [rlla.compute_tool_call_reward(gold, predicted, 3.0, -3.0, False) for gold, predicted in TOOL_CALLS]
    yield Case(
        name="verl/reward/tool_calls",
        function="verl.utils.reward_score.rlla.compute_tool_call_reward",
        batch=None,
        options={"max_possible_reward": 3.0, "min_possible_reward": -3.0},
        inputs={"calls": TOOL_CALLS},
        outputs={"rewards": np.array(rewards)},
    )
