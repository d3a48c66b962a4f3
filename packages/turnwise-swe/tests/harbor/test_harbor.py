"""Harbor's task folders: written and read without loss, closed against paths that lead out, and judged by their own
tests."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import DataError
from turnwise.core.types import text_message
from turnwise.exchange.convert import convert
from turnwise.exchange.task_rows import TaskRow
from turnwise_swe.harbor.tasks import read_task, write_task

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip)
NAMES = st.text("abcdefgh_-.", min_size=1, max_size=8).filter(lambda name: set(name) != {"."})


def make_folder(path: Path, files: dict[str, bytes]) -> Path:
    files = {"instruction.md": b"Fix the bug.\n", "task.toml": b'version = "1.0"\n', **files}
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def files_of(folder: Path) -> dict[str, tuple[bytes, bool]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in folder.rglob("*")
        if path.is_file()
    }


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["environment", "tests", "solution"]), NAMES), st.binary(max_size=40), max_size=4
    )
)
def test_any_folder_is_written_as_it_was_read(
    tmp_path_factory: pytest.TempPathFactory, files: dict[tuple[str, str], bytes]
) -> None:
    folder = tmp_path_factory.mktemp("harbor")
    source = make_folder(folder / "in" / "fix-bug", {f"{a}/{b}": data for (a, b), data in files.items()})
    (source / "tests").mkdir(exist_ok=True)
    (source / "tests" / "test.sh").write_bytes(b"#!/bin/sh\r\nexit 0\n")
    (source / "tests" / "test.sh").chmod(0o755)
    task = read_task(source)
    row = json.loads(json.dumps({"answers": [], "prompt": task.prompt[0].text, "kind": task.kind, **task.extra}))
    assert row["harbor"]["name"] == "fix-bug"
    assert files_of(write_task(folder / "out", 1, task)) == files_of(source)


@settings(max_examples=25)
@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3), TEXTS)
def test_a_question_survives_a_folder(
    tmp_path_factory: pytest.TempPathFactory, question: str, answers: list[str], kind: str
) -> None:
    task = TaskRow(
        prompt=(text_message("user", question),), answers=tuple(answers), kind=kind, extra={"extra_info": {"index": 3}}
    )
    folder = write_task(tmp_path_factory.mktemp("harbor"), 12, task)
    assert folder.name == "task_000012"
    assert read_task(folder) == task


def test_a_folder_goes_through_jsonl_and_back(tmp_path: Path) -> None:
    make_folder(tmp_path / "in" / "one", {"tests/test.sh": b"exit 0\n", "environment/data.bin": b"\xff\x00"})
    make_folder(tmp_path / "in" / "two", {"task.toml": b'version = "1.0"\n[metadata]\ncategory = "games"\n'})
    rows, back = tmp_path / "rows.jsonl", tmp_path / "back"
    assert convert(tmp_path / "in", rows, source_format="harbor", target_format="turnwise", columns={}) == 2
    assert [json.loads(line)["kind"] for line in rows.read_text().splitlines()] == ["file", "games"]
    convert(rows, back, source_format="turnwise", target_format="harbor", columns={})
    assert files_of(back) == files_of(tmp_path / "in")
    with pytest.raises(DataError, match=r"one: the row has no answers"):
        convert(tmp_path / "in", tmp_path / "v.jsonl", source_format="harbor", target_format="verl", columns={})
    with pytest.raises(DataError, match="is not an empty folder"):
        convert(rows, back, source_format="turnwise", target_format="harbor", columns={})


def test_a_changed_question_folder_is_a_folder_of_its_own(tmp_path: Path) -> None:
    task = TaskRow(prompt=(text_message("user", "2 + 2?"),), answers=("4",))
    folder = write_task(tmp_path, 1, task)
    (folder / "environment" / "Dockerfile").write_text("FROM alpine\n")
    assert set(read_task(folder).extra) == {"harbor"}


@pytest.mark.parametrize(
    ("written", "reward"), [(" the  MOON\n", "1"), ("four", "1"), ("the sun", "0"), (None, "0"), (b"\xff", "0")]
)
def test_the_written_tests_judge_the_answer(tmp_path: Path, written: object, reward: str) -> None:
    task = TaskRow(prompt=(text_message("user", "?"),), answers=("The moon", "four"))
    folder = write_task(tmp_path, 1, task)
    answer = tmp_path / "answer.txt"
    if written is not None:
        answer.write_bytes(written if isinstance(written, bytes) else str(written).encode())
    command = [sys.executable, str(folder / "tests/judge.py"), str(answer), str(folder / "tests/question.json")]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == f"{reward}\n"
    assert (folder / "tests" / "test.sh").stat().st_mode & 0o100


def test_what_is_no_task_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not a task folder; expected instruction.md"):
        convert(tmp_path, tmp_path / "x.jsonl", source_format="harbor", target_format="turnwise", columns={})
    folder = make_folder(tmp_path / "a", {})
    (folder / "task.toml").unlink()
    with pytest.raises(DataError, match=r"a/task\.toml: missing"):
        read_task(folder)
    with pytest.raises(DataError, match=r"b/task\.toml: not TOML"):
        read_task(make_folder(tmp_path / "b", {"task.toml": b"= 1"}))
    with pytest.raises(DataError, match=r"c/instruction\.md: not UTF-8 text"):
        read_task(make_folder(tmp_path / "c", {"instruction.md": b"\xff"}))
    with pytest.raises(DataError, match=r"d/tests/question.json: not a question"):
        read_task(make_folder(tmp_path / "d", {"tests/question.json": b"[]"}))
    folder = make_folder(tmp_path / "e", {})
    (folder / "tests").symlink_to("/etc")
    with pytest.raises(DataError, match="e/tests: a link"):
        read_task(folder)


@pytest.mark.parametrize("path", ["../evil.sh", "/etc/evil", "tests/../../evil", "instruction.md", ""])
def test_a_path_that_leads_out_of_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    file = {"path": path, "text": "x", "base64": "", "executable": False}
    task = TaskRow(prompt=(text_message("user", "?"),), answers=(), extra={"harbor": {"name": "a", "files": [file]}})
    with pytest.raises(DataError, match="expected a path inside the task folder"):
        write_task(tmp_path / "out", 1, task)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"harbor": {"name": "../a", "files": []}}, "expected a folder"),
        ({"harbor": {"name": "a"}}, 'not an object with "name" and "files"'),
        ({"harbor": {"name": "a", "files": [{"path": "x"}]}}, r"harbor\.files\[0\]\" lacks one of"),
        ({"harbor": {"name": "a", "files": []}, "level": 1}, r"store \['level'\]"),
        ({}, "has neither answers nor a column"),
    ],
)
def test_a_row_that_is_no_task(tmp_path: Path, extra: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        write_task(tmp_path, 1, TaskRow(prompt=(text_message("user", "?"),), answers=(), extra=extra))


def test_a_system_prompt_has_no_place(tmp_path: Path) -> None:
    prompt = (text_message("system", "be brief"), text_message("user", "?"))
    with pytest.raises(DataError, match=r"messages from \['system', 'user'\]; instruction.md can only contain one"):
        write_task(tmp_path, 1, TaskRow(prompt=prompt, answers=("x",)))
