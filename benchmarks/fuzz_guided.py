"""Coverage-guided fuzzing of the code that reads text by models and strangers.

    python -m venv .venv-fuzz && .venv-fuzz/bin/python -m pip install -e '.[dev]' atheris
    .venv-fuzz/bin/python benchmarks/fuzz_guided.py --target calls --seconds 300

Atheris changes inputs wherever a change reaches new lines of Turnwise. A target uses the checks of `fuzz_calls.py` and
`fuzz_rows.py` if they have any for it. A failure does not end the run: each place that raises, and each kind of
problem, is kept once with its shortest input. Prints one line of JSON: executions, coverage counters (edges, and
libFuzzer's features) at the start and at the end, failures, the longest time of an input and the longest per byte of
inputs of 256 bytes or more, in CPU time under instrumentation. Exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

HERE = Path(__file__).parent
PACKAGES = {
    "calls": ["turnwise.rendering"],
    "arguments": ["turnwise.tools", "turnwise.rendering"],
    "rows": ["turnwise.environments", "turnwise.exchange", "turnwise_swe.repositories", "turnwise.rewards"],
    "diffs": ["turnwise_swe.repositories"],
    "answers": ["turnwise.rewards"],
}
"""Target to the packages whose coverage guides it."""
MIN_BYTES = 256
"""Length below which inputs say nothing about time per byte."""
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,3 @@ def f():\n a\n-b\n+c\n+d\n\\ No newline at end of file\n"
ANSWERS = (
    r"\boxed{\frac{1}{2}}",
    r"x = 3.50\%",
    r"\text{(A) } 5:30 PM",
    "1,234 km",
    r"2 \le x < 5",
    r"-3\sqrt{2} + 1",
    r"12_{7}",
    "seven",
    r"\{1, 2\}",
)


def build_target(name: str, folder: Path) -> tuple[Callable[[bytes], str], list[bytes]]:
    """The check of an input, which returns what went wrong or "", and the first inputs."""
    sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
    if name in ("calls", "arguments"):
        import fuzz_calls

        from turnwise.core.types import ToolCall
        from turnwise.rendering.call_texts import CALL_TEXTS

        if name == "arguments":
            return _check_arguments(fuzz_calls.check_arguments)
        call = ToolCall(id="c", name="a", arguments='{"x": "y"}')
        seeds = [form.write(call).encode() for form in CALL_TEXTS.values()]
        return lambda data: fuzz_calls.check_text(data.decode("utf-8", "replace")), seeds
    if name == "rows":
        import fuzzed_rows

        readers = fuzzed_rows.list_readers(folder)

        def read(data: bytes) -> str:
            fuzzed_rows.try_line(data.replace(b"\n", b" "), folder / "rows.jsonl", readers)
            return ""

        return read, [json.dumps(row).encode() for row in fuzzed_rows.KNOWN]
    if name == "diffs":
        return _check_diffs()
    return _check_answers()


def _check_arguments(
    check: Callable[[dict[str, Any], dict[str, Any]], str],
) -> tuple[Callable[[bytes], str], list[bytes]]:
    """Check an input made of a schema, a blank line and arguments."""

    def check_both(data: bytes) -> str:
        schema, _, arguments = data.partition(b"\n\n")
        try:
            read = json.loads(schema), json.loads(arguments)
        except (ValueError, RecursionError):
            return ""
        return check(*read) if isinstance(read[0], dict) and isinstance(read[1], dict) else ""

    schemas = [
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "enum": ["x", None]}}, "required": ["a"]},
        {
            "properties": {"a": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/A"}]}},
            "$defs": {"A": {"type": "array"}},
        },
        {
            "properties": {"a": {"type": "array", "items": {"type": "number", "minimum": 1}}},
            "additionalProperties": False,
        },
    ]
    return check_both, [json.dumps(schema).encode() + b'\n\n{"a": [3.0, 1]}' for schema in schemas]


def _check_diffs() -> tuple[Callable[[bytes], str], list[bytes]]:
    """Check that a diff is refused with a message, or that its reverse is a diff that can be reversed in turn."""
    from turnwise.core.errors import DataError
    from turnwise_swe.repositories import diffs

    def check(data: bytes) -> str:
        text = data.decode("utf-8", "surrogateescape")
        refused = diffs.why_refused(text)
        diffs.to_crlf(text, {"x.py"})
        diffs.without_empty_binaries(text)
        try:
            files, back = diffs.parse_diff(text), diffs.reverse_diff(text)
        except DataError as error:
            return "" if str(error) else "a refusal without a message"
        with contextlib.suppress(DataError):
            diffs.apply_exactly(text, {"x.py": b"a\nb\n"})
        paths = [path for file in files for path in (file.old_path, file.new_path) if path is not None]
        if refused is not None or not all(file.hunks for file in files):
            return ""
        if any(path != str(PurePosixPath(path)) for path in paths):
            return ""  # a path such as ./x//y, which reversing writes as x/y
        try:
            again = diffs.reverse_diff(diffs.reverse_diff(back))
        except DataError:
            return "its reverse is no diff"
        return "" if again == back else "reversed three times it is not what it is reversed once"

    return check, [
        DIFF.encode(),
        b"--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+a\n",
        b"diff --git a/x b/x\ndeleted file mode 100644\n",
    ]


def _check_answers() -> tuple[Callable[[bytes], str], list[bytes]]:
    """Check that answers are read without an exception, and that no answer is graded wrong against itself."""
    from turnwise.rewards import answers, boxes, math_answer, math_spelling

    def check(data: bytes) -> str:
        text = data.decode("utf-8", "replace")
        boxed = boxes.extract_boxed(text)
        if boxed is not None and len(boxed) > len(text):
            return "boxes that are longer than the text"
        math_answer.parse_integer(text)
        answers.extract_answer(text)
        math_spelling.is_bounded(text)
        math_spelling.drop_words(text)
        math_spelling.spell(text)
        answer, _, gold = text.partition("\n\n")
        math_spelling.decide(answer, gold)
        has_digit = any(character.isdigit() for character in answer)
        is_wrong = has_digit and math_spelling.decide(answer, answer) is False
        return "an answer is wrong by itself" if is_wrong else ""

    return check, [f"{answer}\n\n{answer}".encode() for answer in ANSWERS]


class Findings:
    """Stores failures and slow inputs on disk at once, because libFuzzer ends the process."""

    def __init__(self, path: Path) -> None:
        """`path` is a new file."""
        self._path = path
        self._kept: dict[str, dict[str, Any]] = {}
        self._slowest = {"seconds": 0.0, "bytes": 0}
        self._per_byte = {"microseconds": 0.0, "bytes": 0}

    def keep(self, place: str, data: bytes) -> None:
        """Keep the shortest input for a place."""
        known = self._kept.get(place)
        if known is None or len(data) < known["bytes"]:
            self._kept[place] = {"bytes": len(data), "input": base64.b64encode(data).decode()}
            self.write()

    def time(self, seconds: float, data: bytes) -> None:
        """Keep the longest times."""
        changed = False
        if seconds > self._slowest["seconds"] * 1.1:
            self._slowest, changed = {"seconds": round(seconds, 5), "bytes": len(data)}, True
        per_byte = 1e6 * seconds / max(len(data), 1)
        if len(data) >= MIN_BYTES and per_byte > self._per_byte["microseconds"] * 1.1:
            self._per_byte, changed = {"microseconds": round(per_byte, 3), "bytes": len(data)}, True
        if changed:
            self.write()

    def write(self) -> None:
        """Write everything to the file."""
        found = {"failures": self._kept, "slowest": self._slowest, "slowest_per_byte": self._per_byte}
        self._path.write_text(json.dumps(found), encoding="utf-8")


def run_guided(target: str, seconds: int, folder: Path, max_bytes: int) -> None:
    """Fuzz in this process, which ends with it."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=PACKAGES[target]):
        check, seeds = build_target(target, folder)
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds):
        (corpus / str(number)).write_bytes(seed)
    findings = Findings(folder / "findings.json")
    findings.write()

    def try_one(data: bytes) -> None:
        began = time.process_time()
        try:
            problem = check(data)
        except Exception as error:  # noqa: BLE001 - whatever a reader raises is a finding
            last = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        findings.time(time.process_time() - began, data)
        if problem:
            findings.keep(problem[:60], data)

    options = [f"-max_total_time={seconds}", f"-max_len={max_bytes}", "-len_control=20", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], try_one)
    atheris.Fuzz()


def main() -> int:
    """Run one target in a separate process and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=PACKAGES, required=True)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--max-bytes", type=int, default=2048)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.folder is not None:
        run_guided(chosen.target, chosen.seconds, chosen.folder, chosen.max_bytes)
        return 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        words = [sys.executable, __file__, *sys.argv[1:], "--folder", name]
        ran = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=chosen.seconds + 300)
        path = Path(name) / "findings.json"
        if not path.is_file():
            sys.stderr.write(ran.stderr)
            return 2
        found = json.loads(path.read_text(encoding="utf-8"))
    progress = re.findall(r"^#(\d+)\s+(\w+)\s+cov: (\d+) ft: (\d+)", ran.stderr, re.MULTILINE)
    begun = next((line for line in progress if line[1] == "INITED"), progress[0])
    summary = {
        "target": chosen.target,
        "seconds": chosen.seconds,
        "executions": int(progress[-1][0]),
        "edges": [int(begun[2]), int(progress[-1][2])],
        "features": [int(begun[3]), int(progress[-1][3])],
        "ended": "in time" if "DONE" in ran.stderr else ran.stderr[-500:],
        **found,
    }
    print(json.dumps(summary))
    return bool(found["failures"]) or summary["ended"] != "in time"


if __name__ == "__main__":
    sys.exit(main())
