"""The arithmetic of one step: copies pages, runs the model, draws tokens. Runs in the engine's executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.core.errors import EngineError, TurnwiseError, boundary
from turnwise.engines.paged.drawing import Drawn, draw_tokens
from turnwise.engines.paged.runner import Runner
from turnwise.engines.paged.scheduler import Item, Plan


@dataclass(frozen=True, slots=True)
class Computed:
    """Items that ran together."""

    items: Sequence[Item]
    drawn: list[list[Drawn]]
    """Drawn tokens of each item that samples, in order."""


@dataclass(frozen=True, slots=True)
class Failed:
    """An item that cannot run."""

    item: Item
    error: EngineError


def compute_step(runner: Runner, plan: Plan) -> list[Computed | Failed]:
    """Run the plan. Reads its requests and writes key-value memory; changes nothing else."""
    if plan.copies:
        runner.copy_pages(plan.copies)
    return _compute(runner, plan.items)


def _compute(runner: Runner, items: Sequence[Item]) -> list[Computed | Failed]:
    """Run items together; if they fail, run them again in halves, so that only the failing ones fail."""
    try:
        with boundary(EngineError, "the engine step failed"):
            logits = runner.run(items)
            return [Computed(items, draw_tokens([item for item in items if item.samples], logits))]
    except TurnwiseError as error:  # a StoreError, say: the picture of one request is missing
        if len(items) == 1:
            return [Failed(items[0], EngineError(str(error)))]
    return _compute(runner, items[: len(items) // 2]) + _compute(runner, items[len(items) // 2 :])
