"""The exception tree. A message names the object, the value and the remedy.

    TurnwiseError
    ├── ConfigError        (ValueError)    a recipe or an override is wrong
    ├── DataError          (ValueError)    a data file is wrong: path, line, what was expected
    │   └── PictureError                   what was given as a picture cannot be read as one
    ├── RenderError        (ValueError)    messages and tokens do not fit together
    ├── EngineError        (RuntimeError)  the engine refused or failed one request
    ├── EnvironmentFault   (RuntimeError)  an environment broke its contract or crashed
    ├── ToolTimeout        (TimeoutError)  a tool call ran past its seconds
    ├── SandboxError       (RuntimeError)  the sandbox refused or failed one request
    ├── RewardError        (RuntimeError)  a reward raised, hung or returned a non-number
    ├── AnnotatorError     (RuntimeError)  an annotator raised, hung or returned another group
    ├── TrainingError      (RuntimeError)  a loss or gradient is not finite, or a step cannot be taken
    ├── CheckpointError    (RuntimeError)  a checkpoint is missing, truncated or of another model
    ├── TrackerError       (RuntimeError)  an experiment tracker failed; the run goes on
    └── StoreError         (OSError)       the run folder cannot be written or read

`ToolFailure` is not in the tree: a tool raises it on purpose to tell the *model* something (an observation).
"""

from __future__ import annotations

from types import TracebackType
from typing import Literal


class TurnwiseError(Exception):
    """Base class of all errors that a user may see without a traceback."""


class ConfigError(TurnwiseError, ValueError):
    """A recipe or an override is wrong."""


class DataError(TurnwiseError, ValueError):
    """A data file is wrong."""


class PictureError(DataError):
    """What was given as a picture cannot be read as one."""


class RenderError(TurnwiseError, ValueError):
    """Messages and tokens do not fit together."""


class EngineError(TurnwiseError, RuntimeError):
    """The engine refused or failed one request."""


class GrammarError(EngineError):
    """The engine cannot hold a reply to the grammar of its request."""


class EngineRefusal(EngineError):
    """The engine refuses to sample this model and says why."""


class RequestRefused(EngineError):
    """A server refuses one request as wrong; it would refuse it again."""


class EnvironmentFault(TurnwiseError, RuntimeError):
    """An environment broke its contract or crashed."""


class ToolTimeout(TurnwiseError, TimeoutError):
    """A tool call ran past its seconds."""


class SandboxError(TurnwiseError, RuntimeError):
    """The sandbox itself refused or failed one request."""


class RewardError(TurnwiseError, RuntimeError):
    """A reward raised, hung or returned something that is not a finite number."""


class AnnotatorError(TurnwiseError, RuntimeError):
    """An annotator raised, hung or returned another group."""


class TrainingError(TurnwiseError, RuntimeError):
    """A training step cannot be taken."""


class CheckpointError(TurnwiseError, RuntimeError):
    """A checkpoint is missing, truncated or belongs to another model."""


class TrackerError(TurnwiseError, RuntimeError):
    """An experiment tracker failed."""


class StoreError(TurnwiseError, OSError):
    """The run folder cannot be written or read."""


class ToolFailure(Exception):
    """Raised by a tool to tell the model what it did wrong; becomes an observation and is never an error of the run."""


class boundary:
    """Turn any exception that user code raises in the block into `error`, naming `what`, on one line. Turnwise's own
    errors pass unchanged.

    A class and no generator: `contextlib` lets a StopIteration pass where `error` is a RuntimeError. Besides this, only
    the rollout supervisor, the engine's step and the tool threads catch everything; each passes on what it caught."""

    def __init__(self, error: type[TurnwiseError], what: str) -> None:
        self._error, self._what = error, what

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, cause: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        if isinstance(cause, Exception) and not isinstance(cause, TurnwiseError | ToolFailure):
            text = " ".join(line.strip() for line in str(cause).splitlines() if line.strip())
            raise self._error(f"{self._what}: {type(cause).__name__}: {text}") from cause
        return False
