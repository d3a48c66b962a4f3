"""The public names of `turnwise` and the modules they live in: the one list, read by type checkers and at run time."""

from .algorithms.credit_table import build_credit
from .algorithms.losses.table import build_loss
from .api.environment import Environment, tool
from .api.run import load_run
from .api.training import train
from .batching.samples import to_samples
from .core.batch import TrainingBatch
from .core.errors import ToolFailure, TurnwiseError
from .core.protocols import EnvironmentFamily, StepResult
from .core.types import (
    Draw,
    ImagePart,
    Invalid,
    Message,
    Scored,
    Task,
    ToolCall,
    Trajectory,
    TrajectoryGroup,
    text_message,
)
from .credit.assignment import compute_advantages, to_credit_trajectories
from .engines.paged.engine import PagedEngine
from .models.build import build_model, load_model
from .pictures.read import read_picture
from .rendering.chat import ChatRenderer
from .rendering.tags import TagRenderer
from .rollout.attempt import Sampling
from .rollout.limits import Limits
from .rollout.workers import GroupStream, RolloutWorker
from .sync.publication import check_receipt
from .sync.shared import SharedParameters
from .training.local import LocalTrainer

__version__: str

__all__ = [
    "ChatRenderer",
    "Draw",
    "Environment",
    "EnvironmentFamily",
    "GroupStream",
    "ImagePart",
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
    "read_picture",
    "text_message",
    "to_credit_trajectories",
    "to_samples",
    "tool",
    "train",
]
