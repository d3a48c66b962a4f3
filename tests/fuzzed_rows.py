"""Rows as nobody publishes them, through every reader of rows: `write_line` makes one, `try_line` reads it.

Half of the lines are rows of known layouts with pieces replaced, lost or added, the others are any JSON, and some are
damaged bytes.
"""

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from turnwise.core.errors import DataError
from turnwise.core.types import Task, text_message
from turnwise.environments.classes.contract import read_contract
from turnwise.environments.classes.rows import load_rows as load_class_rows
from turnwise.environments.data_rows import load_rows
from turnwise.environments.math_code.datasets import QUESTIONS as PROBLEMS
from turnwise.environments.math_code.datasets import to_math_row
from turnwise.environments.mcp.rows import take_pictures as take_served_pictures
from turnwise.environments.mcp.rows import to_row, write_prompt
from turnwise.environments.published_rows import take_pictures
from turnwise.environments.search_qa.files import QUESTIONS, to_passage, to_question
from turnwise.exchange.convert import convert
from turnwise.exchange.task_rows import LAYOUTS
from turnwise.pictures.rows import RowPictures

QUESTION = "What is 3 + 5?"
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
]
PICTURE = "data:image/gif;base64,R0lGODdhAQABAIEAAAAAAAAAAAAAAAAAACwAAAAAAQABAAAIBAABBAQAOw=="
"""One black pixel."""
KNOWN: list[dict[str, Any]] = [
    {"question": QUESTION, "answers": ["8"], "kind": "sums"},
    {"data_source": "x", "prompt": MESSAGES, "ability": "math", "reward_model": {"style": "rule", "ground_truth": "8"}},
    {"prompt": MESSAGES, "env_class": "x", "reward_spec": {"method": "rule", "ground_truth": {"target": ["8", 8]}}},
    {"prompt": [{"role": "user", "content": f"<image>{QUESTION}"}], "images": [{"bytes": None, "path": PICTURE}]},
    {
        "prompt": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}],
        "images": [PICTURE],
    },
    {"question": QUESTION, "image": {"type": "image_url", "image_url": {"url": PICTURE}}, "answer": "8"},
    {"problem": QUESTION, "solution": "It is $\\boxed{8}$.", "level": "Level 1", "type": "Prealgebra"},
    {"question": QUESTION, "answer": "3 + 5 = 8\n#### 8"},
    {"question": {"text": QUESTION}, "answer": ["8"], "golden_answers": ["8"]},
    {"messages": [*MESSAGES, {"role": "assistant", "content": "8", "tool_calls": None}]},
    {"prompt": QUESTION, "chosen": "8", "rejected": "9"},
    {"prompt": QUESTION, "completion": [{"role": "assistant", "content": "8"}]},
    {"id": 3, "title": "Sums", "text": "3 + 5 is 8."},
    {"problem": QUESTION, "tests": [{"input": "3 5", "output": "8"}, {"input": "1 1", "output": "2"}]},
    {"problem": QUESTION, "tests": json.dumps({"inputs": ["1", "2"], "outputs": ["1", "2"]}), "solutions": ["pass"]},
    {"question": QUESTION, "answer": "8", "setup": [["add", {"a": 3}]], "calls": [["add", {"b": 5}]], "bind": {"u": 1}},
    {
        "id": "simple_0",
        "question": [[{"role": "user", "content": QUESTION}]],
        "function": [{"name": "add", "parameters": {"type": "dict", "properties": {"a": {"type": "integer"}}}}],
        "ground_truth": [{"add": {"a": [3, ""]}}],
    },
    {
        "instance_id": "a-1",
        "repo": "a",
        "version": "1",
        "patch": "--- a/b.py\n+++ b/b.py\n@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n+y = 3\n",
        "problem_statement": "It fails.",
        "FAIL_TO_PASS": '["t.py::a"]',
        "PASS_TO_PASS": [],
    },
]
NAMES = sorted({name for row in KNOWN for name in row} | {"Answer", "Problem", "ground_truth", "solutions", "seed"})
TEXTS = (
    "",
    " ",
    "\u2028",
    "\x00",
    "\ud83d",
    "####",
    "\\boxed{",
    "\\boxed{}}",
    "Question:",
    "<answer>",
    "{question}",
    "<image>",
    "image",
    PICTURE,
    "[1, 2",
    "null",
    "Solve the following math problem step by step.",
    "a" * 3000,
    "\U0001f600",
)


class Anything:
    """A plain class whose `reset` takes every row."""

    def reset(self, **row: Any) -> str:
        return "Begin."

    def look(self) -> str:
        """Look around."""
        return "nothing"


def write_value(random: Random, depth: int = 3) -> Any:
    """Any JSON value, those that Python alone writes among them."""
    kind = random.randrange(12 if depth else 8)
    if kind < 3:
        return random.choice(TEXTS) + random.choice(("", "8", QUESTION))
    if kind < 8:
        special = (None, True, -1, 0.5, float("nan"), float("inf"), 10**400, -(2**63), 1e308, QUESTION)
        return random.choice(special)
    if kind < 10:
        return [write_value(random, depth - 1) for _ in range(random.randrange(4))]
    return {random.choice((*NAMES, *TEXTS)): write_value(random, depth - 1) for _ in range(random.randrange(4))}


def change(value: Any, random: Random) -> Any:
    """The value with about one piece in six replaced, lost or given a neighbour."""
    if random.random() < 0.1:
        return write_value(random, 2)
    if isinstance(value, dict):
        kept = {key: change(item, random) for key, item in value.items() if random.random() > 0.06}
        return kept | ({random.choice(NAMES): write_value(random, 1)} if random.random() < 0.06 else {})
    if isinstance(value, list):
        return [change(item, random) for item in value if random.random() > 0.06] + (
            [write_value(random, 1)] if random.random() < 0.06 else []
        )
    return value


def write_line(random: Random) -> bytes:
    """One line of a file, without its end."""
    shape = random.random()
    row = change(random.choice(KNOWN), random) if shape < 0.6 else write_value(random)
    line = json.dumps(row, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    if shape > 0.95:
        at = random.randrange(len(line) + 1)
        line = line[:at] + random.choice((b"", b"\xff", b"}", b"[" * 5000, b"\x0c", b"9" * 5000)) + line[at:]
    return line.replace(b"\n", b" ")


def list_readers(folder: Path) -> Mapping[str, Callable[[Path], object]]:
    """Every reader of rows by name; each makes of a file's first row what its users make of it."""

    def ask(row: Any) -> Task:
        prompt = (*row.before, text_message("user", row.question))
        return Task(environment="x", prompt=prompt, payload={"answers": list(row.answers), "kind": row.kind})

    def show(reader: Callable[[Any], Any], names: tuple[str, ...], row: Any) -> Any:
        """Read a row that may have pictures."""
        return reader(take_pictures(row, folder, names=names, pictures=RowPictures()))

    def show_served(row: Any) -> Any:
        pictures = RowPictures()
        made = to_row(take_served_pictures(row, folder, pictures=pictures), needs_answer=True)
        write_prompt("Look: {question}", made, pictures)
        return made

    def read(reader: Callable[[Any], Any], make: Callable[[Any], object], path: Path) -> object:
        return make(load_rows(path, reader)[0][1])

    def convert_all(name: str, target: str, path: Path) -> object:
        return convert(path, folder / "out.jsonl", source_format=name, target_format=target, columns={})

    def keep(row: Any) -> Task:
        return Task(environment="x", prompt=(), payload={"row": dict(row)})

    contract = read_contract(Anything)
    targets = dict(zip(LAYOUTS, [*LAYOUTS][1:] + [*LAYOUTS][:1], strict=True))
    return {
        "math_code": partial(read, partial(show, to_math_row, PROBLEMS), ask),
        "search_qa": partial(read, partial(show, to_question, QUESTIONS), ask),
        "passages": partial(read, to_passage, lambda passage: passage),
        **{name: partial(read, *reader) for name, reader in list_readers_of_packages().items()},
        "mcp": partial(read, show_served, lambda row: keep(row.model_dump(exclude_unset=True))),
        "classes": lambda path: keep(load_class_rows(path, contract, RowPictures(), max_bad_share=0.0).rows[0]),
        **{f"convert {name}": partial(convert_all, name, target) for name, target in targets.items()},
    }


def list_readers_of_packages() -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], object]]]:
    """Readers of rows of Turnwise's other packages, those that are installed, with what their users make of a row."""
    readers: dict[str, tuple[Callable[[Any], Any], Callable[[Any], object]]] = {}
    if find_spec("turnwise_swe"):
        from turnwise_swe.repositories.instance import read_instance

        readers["swe"] = (read_instance, lambda row: row.gold)
    if find_spec("turnwise_worlds"):
        from turnwise_worlds.coding.datasets import to_coding_row
        from turnwise_worlds.tool_calls.rows import to_allowed, to_call_row, to_spec

        def open_calls(row: Any) -> object:
            """What an episode makes of a row; its own example is right."""
            for call in to_allowed(row.calls, row.functions):
                assert call.is_fulfilled(call.name, call.example() or {})
            payload = {"functions": row.functions, "calls": row.calls}
            return [Task(environment="x", prompt=(), payload={"row": payload}).id, *map(to_spec, row.functions)]

        readers["coding"] = (to_coding_row, lambda row: row)
        readers["tool_calls"] = (partial(to_call_row, answers={}), open_calls)
    return readers


def try_line(line: bytes, path: Path, readers: Mapping[str, Callable[[Path], object]]) -> dict[str, float | None]:
    """Seconds of CPU by reader; None in the place of those of a reader that refuses the line.

    Raises AssertionError for a refusal that does not name file and line, and whatever else a reader raises.
    """
    path.write_bytes(b"\n" + line + b"\n")
    seconds: dict[str, float | None] = {}
    for name, reader in readers.items():
        began = time.process_time()
        try:
            reader(path)
            seconds[name] = time.process_time() - began
        except DataError as error:
            where = f"{path}: no rows" if not line.strip() else f"{path}:2: "
            if not str(error).startswith(where) or "\n" in str(error):
                raise AssertionError(f"{name} refuses a row without file and line, or in several: {error}") from error
            seconds[name] = None
        except Exception as error:
            error.add_note(f"reader {name}, line {line[:2000]!r}")
            raise
    return seconds
