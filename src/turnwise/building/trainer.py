"""The recipe's trainer."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.batching.collate import Packing
from turnwise.building.objectives import build_pair_loss, build_policy_loss
from turnwise.building.optimizers import find_decay, find_optimizer
from turnwise.building.resolved import Resolved, resolve
from turnwise.config.catalog import find_model
from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.seeds import derive_seed
from turnwise.hosts.host import Host
from turnwise.models.build import load_model
from turnwise.models.rope import pin_length
from turnwise.models.vision.eyes import find_eyes, share_eyes
from turnwise.models.vision.sight import load_sight
from turnwise.models.vision.table import is_seeing
from turnwise.training.critic import build_critic
from turnwise.training.implicit_reward import build_implicit_reward
from turnwise.training.local import LocalTrainer, TrainerSettings
from turnwise.training.optimizer import Schedule
from turnwise.training.placement import WHOLE, Placement
from turnwise.training.ranks.trainer import RankedTrainer


def build_trainer(
    resolved: Resolved, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, host: Host | None = None
) -> LocalTrainer | RankedTrainer:
    """The recipe's trainer of `model`, which it changes in place; its ranks are on `host`, None is this machine.

    Raises ConfigError when a method, a combination or the teacher does not fit."""
    config, train = resolved.config, resolved.config.train
    if train.ranks == 1:
        return build_local_trainer(resolved, model, tokenizer)
    if config.scale.ray and model.device.type == "cuda":
        raise ConfigError(
            f"scale.ray={config.scale.ray!r} with train.ranks={train.ranks} on GPUs: the actors reserve cores but no "
            "GPUs; leave scale.ray empty, or use model.device='cpu'"
        )
    cores = config.scale.cpus if config.scale.ray else (os.cpu_count() or 1) // train.ranks
    return RankedTrainer(
        model,
        tokenizer,
        f"{__name__}:{build_for_rank.__name__}",
        dump_resolved(config),
        num_ranks=train.ranks,
        offloads=train.offload_to_cpu,
        num_threads=train.num_threads or max(1, int(cores)),
        host=host,
    )


def build_for_rank(recipe: Mapping[str, Any], model: PreTrainedModel, placement: Placement) -> LocalTrainer:
    """The trainer of one of several ranks, in its process, of a resolved recipe."""
    return build_local_trainer(resolve(RunConfig.model_validate(recipe)), model, None, placement)


def build_local_trainer(
    resolved: Resolved,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    placement: Placement = WHOLE,
) -> LocalTrainer:
    """The recipe's trainer in this process, also where that is one of several ranks; see `build_trainer`."""
    config, copies = resolved.config, resolved.copies
    train = config.train
    betas, build = (train.beta1, train.beta2), find_optimizer(config)
    settings = TrainerSettings(
        schedule=build_schedule(resolved),
        warmup=Schedule(
            base=config.sft.lr, warmup_steps=config.sft.warmup_steps, total_steps=config.sft.steps, decay="cosine"
        ),
        pretraining=Schedule(
            base=config.cpt.lr, warmup_steps=config.cpt.warmup_steps, total_steps=config.cpt.steps, decay="cosine"
        ),
        betas=betas,
        weight_decay=train.weight_decay,
        build_optimizer=build,
        max_grad_norm=train.max_grad_norm,
        packing=build_packing(config),
        temperature=config.rollout.temperature,
        recompute_activations=train.recompute_activations,
        critic_epochs=config.critic.epochs,
        seed=derive_seed(config.run.seed, "dropout"),
        needs_reference=copies.has_reference,
    )
    critic, implicit = config.critic, config.credit.implicit
    teacher = load_teacher(config, model) if copies.teacher else None
    return LocalTrainer(
        model,
        tokenizer,
        settings,
        loss=build_policy_loss(resolved) if resolved.algorithm.has_credit else None,
        pair_loss=build_pair_loss(resolved.algorithm, config.preference),
        build_critic=partial(
            build_critic,
            kind=copies.critic,
            lr=critic.lr,
            clip=critic.clip or None,
            coefficient=critic.coefficient,
            betas=betas,
            weight_decay=train.weight_decay,
            build=build,
        )
        if copies.critic != "none"
        else None,
        build_implicit=partial(
            build_implicit_reward,
            lr=implicit.lr,
            beta=implicit.beta,
            betas=betas,
            weight_decay=train.weight_decay,
            build=build,
        )
        if copies.learns_rewards
        else None,
        teacher=teacher and placement.place(teacher),
        placement=placement,
    )


def build_packing(config: RunConfig) -> Packing:
    """How the recipe's steps are cut into micro-batches."""
    return Packing(micro_batch_tokens=config.train.micro_batch_tokens, shared_prefix=config.train.shared_prefix)


def build_schedule(resolved: Resolved) -> Schedule:
    """Learning rates of the RL optimizer's steps."""
    config, train = resolved.config, resolved.config.train
    total_steps = train.steps * resolved.algorithm.steps_per_batch(config.loss, config.rejection)
    return Schedule(
        base=train.lr,
        warmup_steps=math.ceil(train.warmup_ratio * total_steps) if train.warmup_ratio else train.warmup_steps,
        total_steps=total_steps,
        decay=find_decay(config),
        min_ratio=train.min_lr_ratio,
    )


def load_teacher(config: RunConfig, student: PreTrainedModel) -> PreTrainedModel:
    """The teacher of `loss.teacher`, frozen; it sees what the student does. Raises ConfigError when its vocabulary has
    another size, or it does not read the student's pictures."""
    path = find_model(config.loss.teacher.path)
    teacher = load_model(path, dtype=config.model.dtype, device=student.device, source="loss.teacher.path")
    sizes = [model.config.get_text_config().vocab_size for model in (student, teacher)]
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"loss.teacher.path={config.loss.teacher.path!r} has a vocabulary of {sizes[1]} tokens, but the student's "
            f"has {sizes[0]}; use a teacher with the student's tokenizer"
        )
    where = f"loss.teacher.path={config.loss.teacher.path!r}"
    if (eyes := find_eyes(student)) is not None:
        share_eyes(teacher, eyes, load_sight(path, where) if is_seeing(teacher.config.model_type) else None, where)
    pin_length(teacher, config.engine.max_context)
    frozen: PreTrainedModel = teacher.requires_grad_(False)
    return frozen
