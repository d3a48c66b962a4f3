"""Any row through every reader: it is read, or refused by file and line; `benchmarks/fuzz_rows.py` tries many more."""

import json
import time
from pathlib import Path
from random import Random

import pytest
from fuzzed_rows import list_readers, try_line, write_line
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)
COLUMNS = st.sampled_from(["question", "prompt", "messages", "answers", "answer", "reward_model", "solution", "kind"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**63))
def test_a_fuzzed_line_is_read_or_refused_by_file_and_line(tmp_path: Path, seed: int) -> None:
    try_line(write_line(Random(seed)), tmp_path / "rows.jsonl", list_readers(tmp_path))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(COLUMNS, VALUES, max_size=4))
def test_any_json_in_known_columns_is_read_or_refused(tmp_path: Path, row: dict[str, object]) -> None:
    try_line(json.dumps(row).encode(), tmp_path / "rows.jsonl", list_readers(tmp_path))


PIECES = ("\\boxed{", "\\boxed{}", "{", "####", "Question:", "\n\n", " ", "<answer>", '"', "\\")


@pytest.mark.parametrize("piece", PIECES)
def test_long_texts_take_no_quadratic_time(tmp_path: Path, piece: str) -> None:
    """4 s are a hundred times what a linear reader takes of 400,000 characters, and a tenth of a quadratic one."""
    text = piece * (400_000 // len(piece))
    began = time.process_time()
    for row in ({"question": text, "answer": text}, {"prompt": [{"role": "user", "content": text}], "solution": text}):
        try_line(json.dumps(row).encode(), tmp_path / "rows.jsonl", list_readers(tmp_path))
    assert time.process_time() - began < 4
