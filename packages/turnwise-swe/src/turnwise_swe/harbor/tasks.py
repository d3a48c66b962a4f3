"""Harbor's task folders, read and written without its package.

    NAME/instruction.md       what the agent is told
    NAME/task.toml            limits and metadata; `metadata.category` is the row's kind
    NAME/environment/         a Dockerfile and what it needs
    NAME/tests/               test.sh writes the reward to /logs/verifier/reward.txt

A folder becomes a row whose column "harbor" holds its name and every other file, so that it can be written again. A
question with answers becomes a folder whose tests compare `/app/answer.txt` with the answers; such a folder is read as
the same question. Nothing of a folder is run here.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from turnwise.core.errors import DataError
from turnwise.core.types import text_message
from turnwise.exchange.task_rows import DEFAULT_KIND, TaskRow

MAX_TASK_BYTES = 64 << 20
"""Maximum bytes of all files of a folder together."""
QUESTION = "tests/question.json"
"""The file with the row of a folder that was written from a question."""
_BASE_NAMES = ("instruction.md", "task.toml")

_DOCKERFILE = "FROM python:3.12-slim\nWORKDIR /app\n"
_TEST = "#!/bin/sh\npython3 /tests/judge.py /app/answer.txt /tests/question.json > /logs/verifier/reward.txt\n"
_JUDGE = '''"""Print 1 if the answer file holds one of the accepted answers, else 0; case and spaces do not count."""

import json
import sys


def tidy(text):
    return " ".join(text.casefold().split())


try:
    with open(sys.argv[1], encoding="utf-8") as file:
        answer = tidy(file.read())
except (OSError, UnicodeDecodeError):
    answer = None
with open(sys.argv[2], encoding="utf-8") as file:
    accepted = json.load(file)["answers"]
print(int(answer in [tidy(each) for each in accepted]))
'''
_ANSWER_HERE = "\n\nWrite your answer, and nothing else, to /app/answer.txt.\n"

File = dict[str, Any]
"""`{"path", "text", "base64", "executable"}`; one of the two contents is ""."""


def find_tasks(folder: Path) -> list[Path]:
    """The task folders in a folder, or the folder itself if it is one. Raises DataError if there is none."""
    if (folder / "instruction.md").is_file():
        return [folder]
    tasks = sorted(path.parent for path in folder.glob("*/instruction.md"))
    if not tasks:
        raise DataError(f"{folder}: not a task folder; expected instruction.md in it or in its subfolders")
    return tasks


def read_task(folder: Path) -> TaskRow:
    """The row of a task folder. Raises DataError with the file that is missing or wrong."""
    for name in _BASE_NAMES:
        if not (folder / name).is_file():
            raise DataError(f"{folder / name}: missing; a Harbor task needs {' and '.join(_BASE_NAMES)}")
    files = _read_files(folder)
    instruction = _read_text(folder / "instruction.md")
    if not instruction.strip():
        raise DataError(f"{folder / 'instruction.md'}: empty; expected the instruction for the agent")
    question = next((file for file in files if file["path"] == QUESTION), None)
    if question is not None:
        task = _read_question(folder / QUESTION, question["text"])
        if (instruction, files) == (_write_instruction(task), _generate_files(task)):
            return task
    return TaskRow(
        prompt=(text_message("user", instruction),),
        answers=(),
        kind=_read_kind(folder / "task.toml"),
        extra={"harbor": {"name": folder.name, "files": files}},
    )


def write_task(folder: Path, number: int, task: TaskRow) -> Path:
    """Write a row as a task folder below `folder`, and return its path; `number` names it if the row has no name.

    Raises DataError for a prompt that is not one message of the user, a question without answers, columns that do not
    fit into a folder, a name or path that leaves the folder, a folder that exists, or a disk that refuses.
    """
    if len(task.prompt) != 1 or task.prompt[0].role != "user":
        roles = [message.role for message in task.prompt]
        raise DataError(f"the prompt has messages from {roles}; instruction.md can only contain one user message")
    if "harbor" in task.extra:
        name, files = _check_harbor(task.extra["harbor"])
        instruction = task.prompt[0].text
        lost = sorted(set(task.extra) - {"harbor"})
        if lost or task.answers:
            raise DataError(f"a Harbor task cannot store {['answers', *lost] if task.answers else lost}; remove it")
    elif task.answers:
        name, files, instruction = f"task_{number:06d}", _generate_files(task), _write_instruction(task)
    else:
        raise DataError('the row has neither answers nor a column "harbor" with tests; add one of them for scoring')
    place = folder / name
    try:
        place.mkdir(parents=True)
        (place / "instruction.md").write_bytes(instruction.encode("utf-8"))
        for file in files:
            path = place / file["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(file["base64"]) if file["base64"] else file["text"].encode())
            path.chmod(0o755 if file["executable"] else 0o644)
    except FileExistsError:
        raise DataError(f"{place} exists; name an empty folder") from None
    except (OSError, ValueError) as cause:
        raise DataError(f"cannot write {place}: {cause}") from cause
    return place


def _read_files(folder: Path) -> list[File]:
    """Every file except instruction.md, by path."""
    files: list[File] = []
    size = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise DataError(f"{path}: a link; a task folder must contain the files themselves")
        if path.is_dir() or name == "instruction.md":
            continue
        size += path.stat().st_size
        if size > MAX_TASK_BYTES:
            raise DataError(
                f"{folder}: more than {MAX_TASK_BYTES >> 20} MiB of files; build large data in environment/"
            )
        data = path.read_bytes()
        try:
            text, encoded = data.decode("utf-8"), ""
        except UnicodeDecodeError:
            text, encoded = "", base64.b64encode(data).decode()
        is_executable = bool(path.stat().st_mode & 0o100)
        files.append({"path": name, "text": text, "base64": encoded, "executable": is_executable})
    return files


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise DataError(f"{path}: not UTF-8 text ({cause})") from cause


def _read_kind(path: Path) -> str:
    try:
        metadata = tomllib.loads(_read_text(path)).get("metadata", {})
    except tomllib.TOMLDecodeError as cause:
        raise DataError(f"{path}: not TOML ({cause})") from cause
    category = metadata.get("category") if isinstance(metadata, dict) else None
    return category if isinstance(category, str) and category.strip() else DEFAULT_KIND


def _read_question(path: Path, text: str) -> TaskRow:
    try:
        row = json.loads(text)
        return TaskRow(
            prompt=(text_message("user", row["prompt"]),),
            answers=tuple(row["answers"]),
            kind=row["kind"],
            extra=row["extra"],
        )
    except (ValueError, KeyError, TypeError) as cause:
        raise DataError(f"{path}: not a question row ({type(cause).__name__}: {cause})") from cause


def _write_instruction(task: TaskRow) -> str:
    return task.prompt[0].text + _ANSWER_HERE


def _generate_files(task: TaskRow) -> list[File]:
    row = {
        "prompt": task.prompt[0].text,
        "answers": list(task.answers),
        "kind": task.kind,
        "extra": dict(task.extra),
    }
    texts = {
        "environment/Dockerfile": _DOCKERFILE,
        "task.toml": f'version = "1.0"\n\n[metadata]\ncategory = {_toml_string(task.kind)}\n\n[agent]\n'
        "timeout_sec = 600.0\n\n[verifier]\ntimeout_sec = 60.0\n",
        "tests/judge.py": _JUDGE,
        QUESTION: json.dumps(row, indent=1),
        "tests/test.sh": _TEST,
    }
    return [
        {"path": path, "text": text, "base64": "", "executable": path.endswith(".sh")}
        for path, text in sorted(texts.items(), key=lambda item: PurePosixPath(item[0]))
    ]


def _toml_string(text: str) -> str:
    """The text as a TOML string: the same as in JSON, except for one control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_harbor(value: object) -> tuple[str, list[File]]:
    """Name and files in the column "harbor"; none may lead out of the folder."""
    if not isinstance(value, Mapping) or not isinstance(value.get("files"), list):
        raise DataError('"harbor" is not an object with "name" and "files"; expected the content of a Harbor folder')
    name = value.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[\w\-][\w.\-]*", name):
        raise DataError(f'"harbor.name" is {name!r}; expected a folder name')
    for index, file in enumerate(value["files"]):
        kinds = {"path": str, "text": str, "base64": str, "executable": bool}
        if not isinstance(file, dict) or any(not isinstance(file.get(key), kind) for key, kind in kinds.items()):
            raise DataError(f'"harbor.files[{index}]" lacks one of {sorted(kinds)}')
        path = PurePosixPath(file["path"])
        if path.is_absolute() or ".." in path.parts or not path.parts or path.parts == ("instruction.md",):
            raise DataError(f'"harbor.files[{index}].path" is {file["path"]!r}; expected a path inside the task folder')
    return name, value["files"]
