"""Choose a micro-batch with which a run fits the machine's memory, or refuse the run with a value that fits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace

from turnwise.core.errors import ConfigError
from turnwise.forecast.activations import MAX_MICRO_BATCH_TOKENS
from turnwise.forecast.held import Shapes, read_shapes
from turnwise.forecast.memory import LIBRARY_BYTES, plan_memory
from turnwise.forecast.settings import ForecastSettings

MEMORY_SHARE = 0.8
"""Share of the memory that a chosen micro-batch may fill: the plan is up to 20% off, and other programs need some."""
MICRO_BATCH_STEP = 256
"""A chosen micro-batch is a multiple of this many tokens."""


Predict = Callable[[ForecastSettings], int]
"""Peak memory of a recipe with all libraries, in bytes; 0 if the sizes of the model are unknown."""


def fit_memory(
    settings: ForecastSettings, *, memory_bytes: int, shapes: Shapes | None = None, device: str = "cpu"
) -> int:
    """Return `train.micro_batch_tokens`, chosen for a machine with `memory_bytes` if it is 0.

    The largest multiple of 256 up to 16384 is chosen with which engine and trainer together are predicted to fill at
    most 80% of the memory of `device` ("cpu" or "cuda"); 16384 if the sizes of the model are unknown. A value of the
    recipe's own is kept if the prediction fits the whole memory.
    `shapes` as for `plan_memory`.
    Raises ConfigError with a value that fits if the recipe's own does not, or if no micro-batch does.
    """
    shapes = shapes or read_shapes(settings)

    def predict(changed: ForecastSettings) -> int:
        plan = None if shapes is None else plan_memory(changed, shapes=shapes, device=device)
        return 0 if plan is None else plan.peak + LIBRARY_BYTES

    tokens = settings.train.micro_batch_tokens
    if tokens == 0:
        fitting = _find_micro_batch(settings, memory_bytes, predict)
        if fitting is not None:
            return fitting
        needed = predict(_with_micro_batch(settings, MICRO_BATCH_STEP))
        lead = f"no train.micro_batch_tokens fits: even {MICRO_BATCH_STEP} needs"
    else:
        needed = predict(settings)
        if needed <= memory_bytes:
            return tokens
        lead = f"train.micro_batch_tokens={tokens} does not fit: the run needs"
    raise ConfigError(
        f"{lead} {_gib(needed)}, but a run may use only {_gib(int(MEMORY_SHARE * memory_bytes))} of the "
        f"{_gib(memory_bytes)} of this machine ({device}); {_find_remedy(settings, memory_bytes, predict)}"
    )


def fit_concurrency(
    settings: ForecastSettings, *, memory_bytes: int, shapes: Shapes | None = None, device: str = "cpu"
) -> int:
    """Return how many conversations of `engine.max_context` tokens can be open at the same time where a model is only
    served: at most `engine.max_concurrency`, and as many as fit 80% of the memory.

    Raises ConfigError if not even one fits.
    """
    shapes = shapes or read_shapes(settings)

    def predict(max_concurrency: int) -> int:
        engine = settings.engine.model_copy(update={"max_concurrency": max_concurrency})
        plan = None if shapes is None else plan_memory(replace(settings, engine=engine), shapes=shapes, device=device)
        if plan is None:
            return 0
        return plan.weights + plan.packed + plan.cache + plan.staged + plan.libraries + plan.sampling + LIBRARY_BYTES

    allowed = int(MEMORY_SHARE * memory_bytes)
    fitting = bisect_right(range(1, settings.engine.max_concurrency + 1), allowed, key=predict)
    if not fitting:
        raise ConfigError(
            f"one conversation of {settings.engine.max_context} tokens needs {_gib(predict(1))}, but a server may use "
            f"only {_gib(allowed)} of the {_gib(memory_bytes)} of this machine ({device}); lower --context, or use a "
            "smaller model"
        )
    return fitting


def _find_micro_batch(settings: ForecastSettings, memory_bytes: int, predict: Predict) -> int | None:
    """The largest micro-batch that fits, in tokens; None if none does."""
    # Not by bisection: the prediction falls where arrays get large enough for the C library to give them back.
    for tokens in range(MAX_MICRO_BATCH_TOKENS, 0, -MICRO_BATCH_STEP):
        if predict(_with_micro_batch(settings, tokens)) <= MEMORY_SHARE * memory_bytes:
            return tokens
    return None


def _find_remedy(settings: ForecastSettings, memory_bytes: int, predict: Predict) -> str:
    """Say which change makes the recipe fit: a smaller micro-batch, else fewer conversations, else a smaller model."""
    tokens = _find_micro_batch(settings, memory_bytes, predict)
    if tokens is not None:
        return f"use train.micro_batch_tokens={tokens}, or 0 to have it chosen"
    smallest = _with_micro_batch(settings, MICRO_BATCH_STEP)

    def predict_open(max_concurrency: int) -> int:
        engine = smallest.engine.model_copy(update={"max_concurrency": max_concurrency})
        return predict(replace(smallest, engine=engine))

    counts = range(1, settings.engine.max_concurrency + 1)
    fitting = bisect_right(counts, int(MEMORY_SHARE * memory_bytes), key=predict_open)
    if fitting:
        return f"use engine.max_concurrency={fitting} or less, or a lower engine.max_context"
    return "use a smaller model, a lower rollout.max_tokens or engine.max_context, or a machine with more memory"


def _with_micro_batch(settings: ForecastSettings, tokens: int) -> ForecastSettings:
    return replace(settings, train=settings.train.model_copy(update={"micro_batch_tokens": tokens}))


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:,.1f} GiB"
