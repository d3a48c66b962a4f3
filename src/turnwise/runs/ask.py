"""A question to a trained run, shown turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from turnwise.core.errors import DataError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Scored, Task, text_message
from turnwise.rollout.loop import Attempt, run_trajectory
from turnwise.runs.build import set_threads
from turnwise.runs.evaluate import load_trained_system


def run_ask(
    run: Path, *, question: str | None, index: int, show: Callable[[str], None], device: str | None = None
) -> None:
    """Answer a held-out task, or `question` put in that task's world, and show every turn. `device` None is the run's
    own.

    Raises DataError when there is no such task, CheckpointError when the run holds no usable checkpoint.
    """
    _, system, step = load_trained_system(run, device=device)
    task = question_task(system.family, question, index)
    set_threads(system.config.engine.num_threads)
    worker = system.worker("evaluate")
    attempt = Attempt(task=task, group_id="ask", member=0)
    trajectory = asyncio.run(
        run_trajectory(
            attempt, worker.build_environment(), worker.engine, worker.renderer, worker.limits, worker.sampling
        )
    )
    show(f"checkpoint of step {step}")
    show("".join(m.text for m in task.prompt).strip())
    for turn in trajectory.turns:
        show(f"  model  {system.tokenizer.decode(turn.completion.token_ids.tolist()).strip()}")
        for observation in turn.observations:
            show("  tool   " + observation.text.strip().replace("\n", "\n         "))
    if question is None and isinstance(trajectory.reward, Scored):
        show(f"reward {trajectory.reward.total:g}, expected {task.payload.get('answers')}")
    elif trajectory.error is not None:
        show(f"failed: {trajectory.error}")


def question_task(family: EnvironmentFamily, question: str | None, index: int) -> Task:
    """The held-out task at `index`, its question replaced where one is given."""
    try:
        task = family.task("heldout", index)
    except IndexError:
        raise DataError(f"the held-out split has no task {index}; ask for a smaller one") from None
    if question is None:
        return task
    asked = str(task.payload.get("question", ""))
    prompt = tuple(
        text_message(m.role, m.text.replace(asked, question) if asked and asked in m.text else question)
        for m in task.prompt
    )
    return replace(task, id="", prompt=prompt, payload={**task.payload, "question": question})
