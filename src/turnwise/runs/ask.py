"""A question to a trained run, shown turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnwise.core.episodes import AGENT
from turnwise.core.messages import Message, TextPart, describe_part, list_images, to_plain_text
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Draw, Episode, Scored, Task, TrajectoryGroup
from turnwise.pictures.store import PictureStore, open_pictures
from turnwise.reporting.transcript import clean_for_terminal, draw_episode
from turnwise.rollout.attempt import Attempt
from turnwise.runs.build import System
from turnwise.runs.data_files import check_data_files
from turnwise.runs.evaluate import load_trained_system
from turnwise.runs.openings import take_task
from turnwise.store.trajectories import encode_groups, parse_rows


def run_ask(
    run: Path,
    *,
    question: str | None,
    index: int,
    show: Callable[[str], None],
    step: int | str | None = None,
    device: str | None = None,
    colour: bool = False,
) -> None:
    """Answer a held-out task, or `question` put in that task's world, and show every turn.

    `step` is the checkpoint's, or "best"; None for the latest. `device` None is the run's. `colour` is for a
    terminal that takes it. Raises DataError if there is no such task or a data file is another than the run's,
    CheckpointError if the run holds no such checkpoint or a damaged one.
    """
    folder, system, at = load_trained_system(run, step, device=device)
    check_data_files(folder.path, system.family)
    task = question_task(system.family, question, index)
    episode = asyncio.run(_answer(system, task))
    show(f"checkpoint of step {at}")
    # What the environment opened with: the prompt of a task may only name it.
    opened = next((each.messages for t in episode.trajectories for each in t.conversations[:1]), task.prompt)
    show(clean_for_terminal("".join(map(to_plain_text, opened))))
    for line in draw_episode(_to_rows(episode, system), colour=colour):
        show(line)
    for line in list_pictures(episode, opened, open_pictures(folder.path)):
        show(line)
    for trajectory in episode.trajectories:
        name = "" if trajectory.id.role == AGENT else f" of {trajectory.id.role}"
        if question is None and isinstance(trajectory.reward, Scored):
            expected = f", expected {task.payload['answers']}" if task.payload.get("answers") is not None else ""
            show(f"reward{name} {trajectory.reward.total:g}{expected}")
        elif trajectory.error is not None:
            show(f"failed: {trajectory.error}")


def list_pictures(episode: Episode, opened: Sequence[Message], store: PictureStore) -> Iterator[str]:
    """Iterate over the distinct pictures of an episode, each with its label and its file."""
    seen = [*opened, *(message for t in episode.trajectories for turn in t.turns for message in turn.observations)]
    for digest, part in {part.digest: part for part in list_images(seen)}.items():
        path = store.find_path(digest)
        place = path if path is not None and path.exists() else "which no prompt showed"
        yield " ".join([describe_part(part), *filter(None, [clean_for_terminal(part.label, joined=True)]), str(place)])


def _to_rows(episode: Episode, system: System) -> list[dict[str, Any]]:
    """The episode as it would be stored, with its texts."""
    group = TrajectoryGroup(draw=episode.draw, trajectories=episode.trajectories, role="")
    _, lines = encode_groups([group], decode=system.tokenizer.decode)
    return parse_rows(lines, source=Path("episode"))


async def _answer(system: System, task: Task) -> Episode:
    try:
        return await system.worker("evaluate").run_attempt(Attempt(draw=Draw(index=0, task=task), member=0))
    finally:
        await system.close()


def _replace_text(message: Message, old: str, new: str) -> Message:
    """Return the message with `old` replaced in its texts; its pictures stay where they are."""
    parts = (TextPart(text=p.text.replace(old, new)) if isinstance(p, TextPart) else p for p in message.content)
    return replace(message, content=tuple(parts))


def question_task(family: EnvironmentFamily, question: str | None, index: int) -> Task:
    """The held-out task at `index`, with its question replaced unless `question` is None."""
    task = take_task(family, "heldout", index, f"the held-out split has no task {index}; use a smaller index")
    if question is None:
        return task
    asked = str(task.payload.get("question", ""))
    *before, last = task.prompt
    prompt = (*before, replace(last, content=(*last.images, TextPart(text=question))))
    if asked and any(asked in message.text for message in task.prompt):
        prompt = tuple(_replace_text(message, asked, question) for message in task.prompt)
    return replace(task, id="", prompt=prompt, payload={**task.payload, "question": question})
