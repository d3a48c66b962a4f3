"""Rows of files with pictures, as TRL, verl and others write them, become tasks that show them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from turnwise.core.errors import DataError, EnvironmentFault
from turnwise.core.messages import ImagePart, TextPart
from turnwise.core.protocols import Opening
from turnwise.core.types import Task
from turnwise.environments.classes.family import ClassFamily
from turnwise.environments.draws import LeftOut, try_task
from turnwise.environments.file_splits import load_splits
from turnwise.environments.math_code.family import MathCode
from turnwise.environments.search_qa.family import SearchQA
from turnwise.pictures.pixels import to_data_url, to_part, to_png
from turnwise.pictures.read import read_picture
from turnwise.store.rows import task_from_json, task_to_json

A, B = (to_part(np.full((2, 3, 3), shade, np.uint8)) for shade in (10, 20))
TRL = {"prompt": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How dark?"}]}]}


class Look:
    """Answers about a picture."""

    def reset(self, *, images: list[Image.Image], shade: int, **row: object) -> None:
        self.images, self.shade = images, shade

    def corner(self, x: int) -> Image.Image:
        """Show a column.

        Args:
            x: Which column.
        """
        return self.images[0].crop((x, 0, x + 1, 2))

    def get_reward(self) -> float:
        return float(np.asarray(self.images[0])[0, 0, 0] == self.shade)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    for name, part in (("a", A), ("b", B)):
        (tmp_path / "pictures" / f"{name}.png").write_bytes(to_png(part))
    return tmp_path


def write(path: Path, *rows: dict[str, Any]) -> str:
    if path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(list(rows)), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def open_task(family: ClassFamily, task: Task) -> tuple[Opening, Any]:
    async def run() -> tuple[Opening, Any]:
        environment = family.build_environment(task)
        try:
            return await environment.reset(task, 0), await environment.score((), "done")  # type: ignore[arg-type]
        finally:
            await environment.close()

    return asyncio.run(run())


@pytest.mark.parametrize("layout", ["paths", "data URLs", "bytes"])
def test_rows_of_trl_are_shown_and_given_to_reset(folder: Path, layout: str) -> None:
    cells: dict[str, Any] = {
        "paths": ["pictures/a.png", "pictures/b.png"],
        "data URLs": [to_data_url(A), to_data_url(B)],
        "bytes": [{"bytes": to_png(A), "path": None}, {"bytes": to_png(B), "path": None}],
    }
    rows = [{**TRL, "images": [cell], "shade": shade} for cell, shade in zip(cells[layout], (10, 20), strict=True)]
    path = write(folder / ("rows.parquet" if layout == "bytes" else "rows.jsonl"), *rows)
    family = ClassFamily(Look, path=path, heldout_path=path)
    tasks = [family.task("heldout", index) for index in range(2)]
    for task, part in zip(tasks, (A, B), strict=True):
        assert task.prompt[0].content == (part, TextPart(text="How dark?"))
        assert task.prompt[0].images[0].pixels == part.pixels
        opening, reward = open_task(family, task)
        assert opening.messages[0].images[0].pixels == part.pixels
        assert reward.total == 1.0
    assert tasks[0].id != tasks[1].id

    # A task from a run folder has no pixels; the family finds them by digest, in whatever process.
    stored = task_from_json(json.loads(json.dumps(task_to_json(tasks[1]))))
    opening, reward = open_task(ClassFamily(Look, path=path, heldout_path=path), stored)
    assert opening.messages[0].images[0].pixels == B.pixels
    assert reward.total == 1.0
    with pytest.raises(
        EnvironmentFault, match=r"picture .{12} of the task is in no row of Look; play it with the rows"
    ):
        open_task(ClassFamily(Look, rows=[{"images": [A], "shade": 1}] * 2), stored)


def test_equal_pictures_make_equal_tasks_whatever_their_files_are(folder: Path) -> None:
    named = ClassFamily(Look, rows=[{**TRL, "images": [folder / "pictures" / "a.png"], "shade": 1}] * 2)
    inline = ClassFamily(Look, rows=[{**TRL, "images": [read_picture(to_png(A), label="a.png")], "shade": 1}] * 2)
    other = ClassFamily(Look, rows=[{**TRL, "images": [folder / "pictures" / "b.png"], "shade": 1}] * 2)
    ids = [family.task("heldout", 0).payload["row"]["images"][0]["digest"] for family in (named, inline, other)]
    assert ids[0] == ids[1] != ids[2]
    assert named.task("heldout", 0).id == inline.task("heldout", 0).id != other.task("heldout", 0).id


def test_a_missing_picture_is_named_by_file_and_row(folder: Path) -> None:
    good = {**TRL, "images": ["pictures/a.png"], "shade": 1}
    bad = {**TRL, "images": ["pictures/c.png"], "shade": 1}
    path = write(folder / "rows.jsonl", good, bad)
    with pytest.raises(DataError) as raised:
        ClassFamily(Look, path=path, max_bad_rows=0)
    assert str(raised.value) == (
        f"{path}:2: picture 0 of images: there is no file '{folder}/pictures/c.png'; check the path; base64 needs "
        "data:image/png;base64, before it"
    )
    family = ClassFamily(Look, path=write(folder / "rows.jsonl", good, bad, good), max_bad_rows=0.5)
    assert family.notes[0].startswith(f"1 of 3 rows are left out: {path}:2: picture 0 of images: there is no file")
    (folder / "pictures" / "a.png").unlink()  # after the start: the task is left out, and named
    left_out = try_task(family, "train", 0)
    assert isinstance(left_out, LeftOut)
    assert left_out.why.startswith(f"task 0 of split 'train' ({path}:")
    assert "picture 0 of images: there is no file" in left_out.why


def test_rows_of_verl_are_problems_with_pictures(folder: Path) -> None:
    row = {
        "data_source": "geometry",
        "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": "<image>Find x."}],
        "images": [{"bytes": to_png(A), "path": None}],
        "reward_model": {"style": "rule", "ground_truth": "3"},
    }
    path = write(folder / "rows.parquet", row, {**row, "images": [{"bytes": to_png(B), "path": None}]})
    family = MathCode(mode="files", train_path=path, heldout_path=path, prompt="boxed")
    tasks = [family.task("heldout", index) for index in range(2)]
    assert tasks[0].id != tasks[1].id
    for task, part in zip(tasks, (A, B), strict=True):
        system, question = task.prompt
        assert system.text == "Think."
        shown, text = question.content
        assert shown == part
        assert isinstance(shown, ImagePart)
        assert shown.pixels == part.pixels
        assert isinstance(text, TextPart)
        assert text.text.startswith("Find x.\n\nWork it out step by step.")
        assert task.payload["question"] == "Find x."
    assert not [note for note in family.notes if "ask what an earlier row asks" in note]


def test_questions_in_a_column_show_their_pictures(folder: Path) -> None:
    row = {"question": "What is in <image>?", "images": ["pictures/b.png"], "answers": ["grey"]}
    path = write(folder / "rows.jsonl", row, {"question": "What is <image>?", "answers": ["text"]})
    problems = MathCode(mode="files", train_path=path, heldout_path=path, prompt="short")
    parts = (TextPart(text="What is in "), B, TextPart(text="?\n"))
    assert problems.task("heldout", 0).prompt[0].content == parts
    assert problems.task("heldout", 1).prompt[0].text == "What is <image>?\n"
    corpus = write(folder / "corpus.jsonl", {"id": "1", "title": "Grey", "text": "Grey is a colour."})
    questions = SearchQA(mode="files", train_path=path, heldout_path=path, corpus_path=corpus, prompt="short")
    assert questions.task("heldout", 0).prompt[0].content == (TextPart(text="Question: What is in "), *parts[1:])


def test_a_run_notices_that_a_picture_of_its_rows_is_another_one(folder: Path) -> None:
    path = write(folder / "rows.jsonl", *[{**TRL, "images": [f"pictures/{name}.png"], "shade": 1} for name in "ab"])
    before = ClassFamily(Look, path=path).data_files
    assert ClassFamily(Look, path=path).data_files == before
    (folder / "pictures" / "b.png").write_bytes(to_png(to_part(np.full((2, 3, 3), 30, np.uint8))))
    [old], [new] = before, ClassFamily(Look, path=path).data_files
    assert (old.path, old.num_rows) == (new.path, new.num_rows)
    assert old.pictures != new.pictures
    text = write(
        folder / "text.jsonl",
        {"prompt": "Go.", "images": [], "shade": 1},
        {"prompt": "Stop.", "images": [], "shade": 1},
    )
    assert ClassFamily(Look, path=text).data_files[0].pictures == ""


def test_families_that_show_no_pictures_refuse_rows_that_have_them(folder: Path) -> None:
    path = write(folder / "rows.jsonl", {"question": "Which?", "images": ["pictures/a.png"]})
    with pytest.raises(DataError) as raised:
        load_splits({"train": path, "heldout": path}, dict, 0, max_bad_rows=0)
    assert str(raised.value) == (
        f"{path}:1: 'images' has pictures, which are not shown here (docs/pictures.md says where they are); leave the "
        "column out if the text says enough"
    )
    path = write(folder / "rows.jsonl", {"question": "Which?", "images": [], "image": "ubuntu:24.04"})
    load_splits({"train": path, "heldout": path}, dict, 0)
