"""Turnwise: reinforcement learning for language-model agents on multi-turn, tool-using tasks.

    import turnwise as tw
    run = tw.train(Guess, sft__steps=100)      # a class is an environment; `examples/facade.py`
    run.trajectories(step=3)                   # tables of what a run left; `tw.load_run(path)`

The other names below are the pieces: types, rendering, models, engines, rollouts, credit, losses, training, publishing
weights. `examples/rl_loop.py` puts them together.

Importing this package is cheap: a name is imported when it is first read, and torch, transformers and every optional
extra where they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnwise.algorithms.credit_table import build_credit
    from turnwise.algorithms.losses.table import build_loss
    from turnwise.api.environment import Environment, tool
    from turnwise.api.run import load_run
    from turnwise.api.training import train
    from turnwise.batching.samples import to_samples
    from turnwise.core.batch import TrainingBatch
    from turnwise.core.errors import ToolFailure, TurnwiseError
    from turnwise.core.protocols import EnvironmentFamily, StepResult
    from turnwise.core.types import (
        Draw,
        Invalid,
        Message,
        Scored,
        Task,
        ToolCall,
        Trajectory,
        TrajectoryGroup,
        text_message,
    )
    from turnwise.credit.assignment import compute_advantages, to_credit_trajectories
    from turnwise.engines.paged.engine import PagedEngine
    from turnwise.models.build import build_model, load_model
    from turnwise.rendering.chat import ChatRenderer
    from turnwise.rendering.tags import TagRenderer
    from turnwise.rollout.attempt import Sampling
    from turnwise.rollout.limits import Limits
    from turnwise.rollout.workers import GroupStream, RolloutWorker
    from turnwise.sync.publication import check_receipt
    from turnwise.sync.shared import SharedParameters
    from turnwise.training.local import LocalTrainer

__version__ = "0.1.0"

__all__ = [
    "ChatRenderer",
    "Draw",
    "Environment",
    "EnvironmentFamily",
    "GroupStream",
    "Invalid",
    "Limits",
    "LocalTrainer",
    "Message",
    "PagedEngine",
    "RolloutWorker",
    "Sampling",
    "Scored",
    "SharedParameters",
    "StepResult",
    "TagRenderer",
    "Task",
    "ToolCall",
    "ToolFailure",
    "TrainingBatch",
    "Trajectory",
    "TrajectoryGroup",
    "TurnwiseError",
    "build_credit",
    "build_loss",
    "build_model",
    "check_receipt",
    "compute_advantages",
    "load_model",
    "load_run",
    "text_message",
    "to_credit_trajectories",
    "to_samples",
    "tool",
    "train",
]

_MODULES = {
    "api.environment": ("Environment", "tool"),
    "api.run": ("load_run",),
    "api.training": ("train",),
    "algorithms.credit_table": ("build_credit",),
    "algorithms.losses.table": ("build_loss",),
    "batching.samples": ("to_samples",),
    "core.batch": ("TrainingBatch",),
    "core.errors": ("ToolFailure", "TurnwiseError"),
    "core.protocols": ("EnvironmentFamily", "StepResult"),
    "core.types": (
        "Draw",
        "Invalid",
        "Message",
        "Scored",
        "Task",
        "ToolCall",
        "Trajectory",
        "TrajectoryGroup",
        "text_message",
    ),
    "credit.assignment": ("compute_advantages", "to_credit_trajectories"),
    "engines.paged.engine": ("PagedEngine",),
    "models.build": ("build_model", "load_model"),
    "rendering.chat": ("ChatRenderer",),
    "rendering.tags": ("TagRenderer",),
    "rollout.limits": ("Limits",),
    "rollout.attempt": ("Sampling",),
    "rollout.workers": ("GroupStream", "RolloutWorker"),
    "sync.publication": ("check_receipt",),
    "sync.shared": ("SharedParameters",),
    "training.local": ("LocalTrainer",),
}
"""Where each name lives, as in the imports above."""
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name of the library when it is first read. Raises AttributeError for any other."""
    if name not in _HOMES:
        raise AttributeError(f"module 'turnwise' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"turnwise.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
