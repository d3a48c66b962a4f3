"""What an audit and an explanation of credit read of a recipe."""

from __future__ import annotations

from turnwise.audit.materials import AuditedCredit, AuditSettings
from turnwise.building.credit import find_credit, read_penalty
from turnwise.config.run import RunConfig
from turnwise.config.train_algorithms.table import find_algorithm


def read_audit_settings(config: RunConfig) -> AuditSettings:
    """What the recipe says about what a run of it stores. Of its rows only that of credit is found, so that a run is
    audited without the package of its loss."""
    return AuditSettings(
        seed=config.run.seed,
        dtype=config.model.dtype,
        roles=config.roles,
        group_size=config.rollout.group_size,
        trajectory_timeout_s=config.rollout.trajectory_timeout_s,
        checkpoint_every=config.train.checkpoint_every,
        epochs=config.loss.epochs,
        credit=read_audited_credit(config),
    )


def read_audited_credit(config: RunConfig) -> AuditedCredit:
    """How a run of the recipe gets its advantages. Raises ConfigError where its credit method leads nowhere."""
    algorithm, teacher, penalty = find_algorithm(config.train.algorithm), config.loss.teacher, read_penalty(config.loss)
    credit = find_credit(config.credit) if algorithm.has_credit else None
    return AuditedCredit(
        method=config.credit.method,
        build=None if credit is None else lambda: credit.build(penalty),
        algorithm=algorithm.name,
        shaping=config.credit.shaping,
        rewards=config.rewards,
        train_truncated=config.rollout.train_truncated,
        train_members=config.rollout.train_members,
        has_critic=config.critic.kind != "none",
        holds_scores=penalty > 0 or (bool(teacher.path) and (teacher.kind == "sampled" or teacher.replace_credit)),
    )
