"""Pictures in `turnwise ask`: kept in the question, and listed with their files."""

from pathlib import Path

import numpy as np
import pytest

from turnwise.config.load import load_config
from turnwise.core.messages import Message, TextPart, to_plain_text, without_pixels
from turnwise.core.protocols import Split
from turnwise.core.types import Draw, Episode, StopReason, Task
from turnwise.pictures.pixels import to_part
from turnwise.pictures.read import read_picture
from turnwise.pictures.store import open_pictures
from turnwise.runs.ask import list_pictures, question_task
from turnwise.runs.tasks import iterate_tasks
from turnwise.testing import make_trajectory, make_turn
from turnwise.testing.notes import NotesFamily

PAGE, CROP = (to_part(np.full((2, width, 3), width, np.uint8), label=f"{width} wide\x1b[31m") for width in (4, 3))
PROMPT = Message(role="user", content=(TextPart(text="page "), PAGE, TextPart(text=" who is red?")))


TASK = Task(environment="pages", prompt=(PROMPT,), payload={})


class OnePage(NotesFamily):
    """One task, which shows a page."""

    payload: dict[str, str]

    def task(self, split: Split, index: int) -> Task:
        return Task(environment="pages", prompt=(PROMPT,), payload=self.payload)


def ask(own: str, /, **payload: str) -> str:
    family = OnePage()
    family.payload = payload
    task = question_task(family, own, 0)
    assert task.prompt[0].images == (PAGE,)
    return to_plain_text(task.prompt[0]).replace(f"[picture 4x2 {PAGE.digest[:12]}]", "PAGE")


def test_a_question_of_ones_own_is_asked_about_the_same_picture() -> None:
    assert ask("who is blue?", question="who is red?") == "page PAGE who is blue?"
    assert ask("who is blue?") == "PAGEwho is blue?"


def test_pictures_are_listed_once_with_label_and_file(tmp_path: Path) -> None:
    store = open_pictures(tmp_path)
    store.put(PAGE)
    seen = without_pixels(Message(role="tool", content=(PAGE, CROP)))
    trajectory = make_trajectory(make_turn([1], [2], observations=(seen,)))
    episode = Episode(draw=Draw(index=0, task=TASK), member=0, trajectories=(trajectory,), stop=StopReason.DONE)
    first, second = list_pictures(episode, [PROMPT], store)
    assert first == f"[picture 4x2 {PAGE.digest[:12]}] 4 wide\ufffd[31m {store.find_path(PAGE.digest)}"
    assert second == f"[picture 3x2 {CROP.digest[:12]}] 3 wide\ufffd[31m which no prompt showed"


def test_tasks_are_printed_with_names_and_exported_with_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    family = OnePage()
    family.payload = {}
    monkeypatch.setattr("turnwise.runs.tasks.build_family", lambda config: family)
    [printed], [exported] = (
        list(iterate_tasks(load_config([], []), "heldout", 1, with_pictures=with_pictures))
        for with_pictures in (False, True)
    )
    assert printed["prompt"][0]["content"] == f"page [picture 4x2 {PAGE.digest[:12]}] who is red?"
    assert read_picture(exported["prompt"][0]["content"][1]) == PAGE
