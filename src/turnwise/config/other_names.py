"""What other libraries call an option: verl, TRL, SkyRL, OpenRLHF, vLLM.

A name with dots is known by its end: "rollout.n" is `actor_rollout_ref.rollout.n` too. An entry never hides an option
of Turnwise; it is read where a recipe has a key that does not exist, and by `turnwise options`.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.config.options import list_options
from turnwise.config.run import RunConfig


@dataclass(frozen=True, slots=True)
class OtherName:
    """What stands for an option of another library."""

    option: str
    """The option here; "" where there is none."""
    note: str = ""
    """How it differs, or why there is none."""

    def describe(self) -> str:
        """A clause for a message."""
        if not self.option:
            return self.note
        return f"here it is {self.option!r}" + (f": {self.note}" if self.note else "")


WHOLE_DISTRIBUTION = (
    "training samples from the whole distribution, because the trainer scores that; remove it (evaluations have "
    "evaluate.{})"
)
_PENALTIES = (
    "training samples from the whole distribution, because the trainer scores that, and evaluations have no penalties "
    "either; remove it"
)
_RANKS_CUT = (
    "a layer split between ranks gets only the gradient of its own heads for the norms of queries and keys; "
    "train.ranks splits every model between ranks without that problem"
)
_MICRO_BATCH = "rows are packed by tokens, and gradients do not depend on the split; 0 chooses what fits"
_UPDATES = "a number of updates, tasks_per_step * group_size / that size"
_LENGTHS = "one limit for prompt, replies and observations together; rollout.max_turn_tokens limits one reply"
_REPLY_ENDS = (
    "the renderer ends a reply at the model's own end of a message, or at the end of a call or an answer "
    "(docs/renderers.md); remove it"
)
_CACHE = "MiB for an engine in a separate process; the engine in this process allocates what its conversations need"

_OPTIONS: dict[str, tuple[str, ...]] = {
    "rollout.group_size": (
        "rollout.n",
        "num_generations",
        "n_samples_per_prompt",
        "num_samples_per_prompt",
        "n_generations",
        "num_return_sequences",
        "group_n",
        "num_rollouts",
        "rollouts_per_example",
        "samples_per_prompt",
    ),
    "rollout.tasks_per_step": (
        "rollout_batch_size",
        "gen_batch_size",
        "prompts_per_step",
        "num_prompts_per_step",
        "n_prompts",
    ),
    "rollout.max_turns": (
        "max_assistant_turns",
        "max_user_turns",
        "multi_turn.max_turns",
        "max_env_steps",
        "max_steps_per_episode",
        "max_tool_calling_iterations",
        "max_tool_calls",
        "max_iterations",
        "num_turns",
    ),
    "rollout.max_turn_tokens": ("max_new_tokens", "max_generate_length", "sampling_params.max_tokens"),
    "rollout.temperature": ("temperature",),
    "rollout.max_open": ("max_parallel_agents", "max_num_seqs", "num_concurrent_rollouts"),
    "rollout.num_workers": ("agent.num_workers", "num_rollout_workers"),
    "engine.options.num_workers": ("num_engines", "num_inference_engines", "vllm_num_engines", "data_parallel_size"),
    "rollout.train_truncated": ("mask_truncated_completions", "overlong_filtering", "apply_overlong_filtering"),
    "rollout.dynamic_sampling.metric": ("filter_groups.metric", "dynamic_filtering", "filter_groups.enable"),
    "rollout.dynamic_sampling.max_batches": ("max_num_gen_batches", "dynamic_sampling.max_sample_batches"),
    "environment.tool_timeout_s": ("tool_timeout", "tool_call_timeout"),
    "environment.max_observation_chars": ("max_tool_response_length", "max_obs_length"),
    "environment.args": (
        "train_files",
        "val_files",
        "data.train_files",
        "dataset_name",
        "prompt_data",
        "train_data",
        "data_path",
        "eval_dataset",
        "input_key",
        "prompt_key",
        "label_key",
    ),
    "environment.name": ("env_name", "env_class", "environment_id", "env_id"),
    "model.path": (
        "model_name_or_path",
        "model_name",
        "pretrain",
        "actor_model_path",
        "policy.model.path",
        "base_model",
    ),
    "model.dtype": ("torch_dtype", "bf16", "fp16", "param_dtype", "mixed_precision", "precision", "model_dtype"),
    "model.trust_remote_code": ("trust_remote_code",),
    "model.lora": ("use_peft", "peft_config", "use_lora"),
    "model.lora.rank": ("lora_r", "lora_rank", "lora.r"),
    "model.lora.alpha": ("lora_alpha",),
    "model.lora.dropout": ("lora_dropout",),
    "model.lora.target_modules": ("lora_target_modules", "target_modules"),
    "engine.kind": ("use_vllm", "vllm_mode", "rollout.name", "inference_engine", "generator.backend"),
    "engine.max_context": ("max_model_len", "vllm_max_model_length", "context_length", "max_seq_len"),
    "engine.options.urls": ("vllm_server_base_url", "vllm_server_host", "remote_urls"),
    "schedule.max_staleness": (
        "async_level",
        "max_async_level",
        "max_head_offpolicyness",
        "staleness_threshold",
        "off_policy_steps",
        "max_off_policy_steps",
        "max_staleness_steps",
    ),
    "schedule.interrupt": ("partial_rollout",),
    "credit.method": ("adv_estimator", "advantage_estimator", "algorithm.type"),
    "credit.options.deviation": ("norm_adv_by_std_in_grpo", "scale_rewards", "std_normalization"),
    "credit.options.gamma": ("algorithm.gamma", "gamma"),
    "credit.options.gae_lambda": ("algorithm.lam", "lambd", "gae_lambda", "lam"),
    "credit.options.whitening": ("whiten_rewards", "advantage_whitening", "whiten_advantages"),
    "credit.shaping.max_tokens": ("overlong_buffer.enable", "soft_max_length", "max_resp_len"),
    "credit.shaping.buffer": ("overlong_buffer.len", "soft_punish_cache", "overlong_buffer_len"),
    "critic.epochs": ("critic.ppo_epochs",),
    "critic.lr": ("critic.optim.lr", "critic_learning_rate"),
    "critic.clip": ("cliprange_value", "value_clip"),
    "critic.coefficient": ("vf_coef", "value_loss_coef"),
    "loss.method": ("loss_type", "policy_loss_type", "policy_loss.loss_mode", "loss_mode", "importance_sampling_level"),
    "loss.options.clip_low": (
        "epsilon",
        "clip_ratio_low",
        "eps_clip_low",
        "clip_range",
        "cliprange",
        "clip_ratio",
        "eps_clip",
        "clip_eps",
    ),
    "loss.options.clip_high": ("epsilon_high", "clip_ratio_high", "eps_clip_high"),
    "loss.options.dual_clip": ("clip_ratio_c", "dual_clip", "delta"),
    "loss.aggregation": ("loss_agg_mode", "loss_reduction", "loss_norm_type"),
    "loss.kl.coefficient": (
        "kl_coef",
        "kl_loss_coef",
        "init_kl_coef",
        "kl_ctrl.kl_coef",
        "use_kl_loss",
        "kl_coeff",
        "kl_penalty_coef",
    ),
    "loss.kl.kind": ("kl_loss_type", "kl_penalty", "kl_estimator", "kl_estimator_type", "use_kl_estimator_k3"),
    "loss.kl.place": ("use_kl_in_reward",),
    "loss.kl.target": ("kl_target", "target_kl"),
    "loss.kl.horizon": ("kl_horizon",),
    "loss.entropy_coefficient": ("entropy_coeff", "entropy_coef", "entropy_loss_coef", "ent_coef"),
    "loss.correction.mode": (
        "rollout_is",
        "vllm_importance_sampling_correction",
        "tis_imp_ratio_cap",
        "use_tis",
        "rollout_correction",
        "enable_vllm_is_correction",
    ),
    "loss.correction.high": ("rollout_is_threshold", "vllm_importance_sampling_cap", "imp_ratio_cap"),
    "loss.recompute_old": ("use_rollout_log_probs", "bypass_mode", "recompute_logprob"),
    "loss.mask_observations": ("state_masking", "mask_tool_outputs", "mask_env_responses"),
    "loss.teacher.path": ("teacher_model", "teacher_model_path", "teacher_model_name_or_path"),
    "loss.epochs": (
        "ppo_epochs",
        "num_iterations",
        "update_epochs_per_batch",
        "num_ppo_epochs",
        "max_epochs",
        "noptepochs",
    ),
    "sft.steps": ("num_sft_steps", "warm_up_sft_steps"),
    "train.lr": ("learning_rate", "optim.lr", "actor_learning_rate", "optimizer_config.lr"),
    "train.warmup_steps": ("lr_warmup_steps", "num_warmup_steps"),
    "train.warmup_ratio": ("warmup_ratio", "lr_warmup_steps_ratio", "lr_warmup_ratio"),
    "train.decay": ("lr_scheduler_type", "warmup_style", "lr_scheduler", "lr_schedule"),
    "train.min_lr_ratio": ("min_lr", "lr_min_ratio"),
    "train.optimizer": ("optim", "optimizer_type", "optim.optimizer"),
    "train.optimizer_options": ("optim_args", "adam_epsilon", "optimizer_params"),
    "train.weight_decay": ("l2",),
    "train.beta1": ("adam_beta1",),
    "train.beta2": ("adam_beta2",),
    "train.max_grad_norm": ("grad_clip", "max_norm", "clip_grad", "gradient_clipping", "clip_grad_norm"),
    "train.ranks": (
        "n_gpus_per_node",
        "num_processes",
        "nnodes",
        "actor_num_gpus_per_node",
        "fsdp_size",
        "num_gpus",
        "num_training_gpus",
        "trainer_num_gpus",
    ),
    "train.recompute_activations": ("gradient_checkpointing", "enable_gradient_checkpointing"),
    "train.offload_to_cpu": (
        "param_offload",
        "optimizer_offload",
        "cpu_offload",
        "adam_offload",
        "grad_offload",
        "offload_policy",
        "zero_stage",
    ),
    "train.steps": ("max_steps", "total_training_steps", "num_steps", "training_steps", "total_steps"),
    "train.checkpoint_every": ("save_freq", "save_steps", "ckpt_interval", "save_interval", "save_strategy"),
    "train.keep_checkpoints": (
        "save_total_limit",
        "max_ckpt_num",
        "max_actor_ckpt_to_keep",
        "max_ckpts_to_keep",
        "max_checkpoints",
        "max_ckpt_to_keep",
        "max_critic_ckpt_to_keep",
        "save_limit",
    ),
    "train.keep_best": ("load_best_model_at_end", "metric_for_best_model", "best_metric_key", "save_best"),
    "train.algorithm": ("rlhf_algorithm", "train_algorithm"),
    "evaluate.every": ("test_freq", "eval_steps", "eval_interval", "val_freq", "eval_freq"),
    "evaluate.tasks": ("val_batch_size", "eval_batch_size", "max_eval_samples", "num_eval_samples"),
    "train.patience": ("early_stopping_patience", "early_stop_patience", "patience"),
    "evaluate.samples": ("n_samples_per_eval_prompt", "num_generations_eval"),
    "run.name": ("experiment_name", "run_name", "wandb_run_name"),
    "run.output": ("output_dir", "default_local_dir", "save_path", "ckpt_path", "log_dir"),
    "run.seed": ("seed", "data_seed"),
    "trackers.names": ("report_to", "logger", "use_wandb", "logging_backend", "loggers"),
    "trackers.project": ("project_name", "wandb_project"),
    "trackers.wandb.entity": ("wandb_entity", "wandb_org", "wandb_team"),
    "trackers.mlflow.tracking_uri": ("mlflow_tracking_uri",),
    "trackers.transcripts": (
        "log_completions",
        "log_val_generations",
        "num_completions_to_print",
        "num_examples_to_log",
    ),
    "scale.ray": ("ray_address", "ray_init"),
}
"""Names of others that mean what one of our options means, by the option."""

OTHER_NAMES: dict[str, OtherName] = {
    **{name: OtherName(option) for option, names in _OPTIONS.items() for name in names},
    **{
        name: OtherName("loss.updates_per_step", _UPDATES)
        for name in (
            "ppo_mini_batch_size",
            "mini_batch_size",
            "policy_mini_batch_size",
            "steps_per_generation",
            "num_mini_batches",
            "generation_batch_size",
        )
    },
    **{
        name: OtherName("train.micro_batch_tokens", _MICRO_BATCH)
        for name in (
            "per_device_train_batch_size",
            "ppo_micro_batch_size",
            "ppo_micro_batch_size_per_gpu",
            "micro_train_batch_size",
            "gradient_accumulation_steps",
            "ppo_max_token_len_per_gpu",
            "max_token_len_per_gpu",
            "micro_batch_size",
            "micro_rollout_batch_size",
            "use_dynamic_bsz",
            "log_prob_micro_batch_size_per_gpu",
            "per_device_eval_batch_size",
        )
    },
    **{
        name: OtherName("rollout.max_tokens", _LENGTHS)
        for name in (
            "max_completion_length",
            "max_response_length",
            "max_prompt_length",
            "prompt_max_len",
            "generate_max_len",
            "max_len",
            "max_length",
            "response_length",
            "max_input_length",
        )
    },
    **{
        f"sft.{name}": OtherName("sft.warmup_steps", "a number of optimizer steps, that share of sft.steps")
        for name in ("warmup_ratio", "lr_warmup_steps_ratio", "lr_warmup_ratio")
    },
    **{
        f"sft.{name}": OtherName("sft.batch_size", "conversations of one optimizer step, however they are cut")
        for name in (
            "per_device_train_batch_size",
            "train_batch_size",
            "gradient_accumulation_steps",
            "micro_batch_size",
            "mini_batch_size",
            "micro_train_batch_size",
        )
    },
    **{
        f"sft.{name}": OtherName("", "the learning rate of the warm-up always decays to 0 as a cosine; remove it")
        for name in (
            "decay",
            "lr_scheduler_type",
            "lr_scheduler",
            "lr_schedule",
            "warmup_style",
            "min_lr",
            "min_lr_ratio",
            "lr_min_ratio",
        )
    },
    **{
        f"evaluate.{name}": OtherName("evaluate.samples")
        for name in (
            "n",
            "num_generations",
            "group_size",
            "n_samples_per_prompt",
            "num_return_sequences",
            "rollouts_per_example",
            "num_samples",
        )
    },
    "train_batch_size": OtherName(
        "rollout.tasks_per_step", "tasks; where it counts trajectories of an update, loss.updates_per_step"
    ),
    **{
        name: OtherName("environment.name", "an environment's `score` gives its reward (docs/extending.md)")
        for name in ("reward_funcs", "reward_model_path", "custom_reward_function", "reward_pretrain", "reward_fn")
    },
    **{
        name: OtherName("engine.options.cache_mib", _CACHE)
        for name in ("gpu_memory_utilization", "vllm_gpu_memory_utilization")
    },
    **{
        name: OtherName("train.steps", "training is counted in RL steps of rollout.tasks_per_step tasks")
        for name in ("num_train_epochs", "total_epochs", "num_episodes", "num_epochs")
    },
    **{name: OtherName("", WHOLE_DISTRIBUTION.format(name)) for name in ("top_p", "top_k", "min_p")},
    **{
        name: OtherName("", _REPLY_ENDS)
        for name in (
            "stop",
            "stop_strings",
            "stop_words",
            "stop_sequences",
            "stop_token_ids",
            "rollout_stop",
            "rollout_stop_token_ids",
            "ignore_eos",
            "include_stop_str_in_output",
        )
    },
    **{name: OtherName("", _PENALTIES) for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")},
    **{
        name: OtherName("", _RANKS_CUT)
        for name in (
            "tensor_parallel",
            "tensor_model_parallel_size",
            "tensor_parallel_size",
            "ds_tensor_parallel_size",
            "vllm_tensor_parallel_size",
            "inference_engine_tensor_parallel_size",
        )
    },
    **{
        name: OtherName(
            "",
            "torch cuts a sequence between GPUs only, and none of its rules knows a prefix tree; lower "
            "train.micro_batch_tokens, which computes fewer tokens at once",
        )
        for name in (
            "context_parallel",
            "ulysses_sequence_parallel_size",
            "context_parallel_size",
            "sequence_parallel_size",
            "ring_attn_size",
        )
    },
}
"""By what others call it."""

_OF_EVALUATIONS: dict[str, OtherName] = {
    **{name: OtherName(f"evaluate.{name}") for name in ("temperature", "top_p", "top_k", "min_p")},
    **{name: OtherName("evaluate.samples") for name in ("n", *_OPTIONS["rollout.group_size"])},
}
"""Names that mean something else in a table about evaluations (`val_kwargs.top_p`), or with its name before them
(`eval_top_p`)."""


def find_other_name(key: str) -> OtherName | None:
    """What a key of another library is here: known by its whole name or by its last parts, the longest first.

    In a section of Turnwise that has an option of that last name, it is that one: `sft.learning_rate` is `sft.lr`.
    """
    parts = key.strip().lstrip("+-~").casefold().replace("-", "_").split(".")
    bare = parts[-1].removeprefix("val_").removeprefix("eval_")
    if bare in _OF_EVALUATIONS and (bare != parts[-1] or any(_is_about_evaluations(part) for part in parts[:-1])):
        return _OF_EVALUATIONS[bare]
    ends = (".".join(parts[start:]) for start in range(len(parts)))
    end = next((end for end in ends if end in OTHER_NAMES), None)
    if end is None:
        return None
    other, section = OTHER_NAMES[end], ".".join(parts[:-1])
    near = f"{section}.{other.option.rpartition('.')[2]}"
    if section and "." not in end and near != other.option and near in list_options(RunConfig):
        return OtherName(near)
    return other


def _is_about_evaluations(table: str) -> bool:
    return table == "val" or table.startswith(("val_", "valid", "eval"))
