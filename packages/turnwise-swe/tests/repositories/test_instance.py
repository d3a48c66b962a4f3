"""Instances are written and read in SWE-bench's field names, and what would make a grade worthless is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.errors import DataError
from turnwise_swe.repositories.diffs import make_diff
from turnwise_swe.repositories.instance import Instance, load_instances, read_instance, write_instances

BUG = make_diff({"m.py": b"a = 1\n"}, {"m.py": b"a = 2\n"})
INSTANCE = Instance(
    instance_id="m-1",
    repository="m==1.0",
    patch=BUG,
    fail_to_pass=("test_m.py::test_a[x y]",),
    pass_to_pass=("test_m.py::test_b",),
    kind=("constant",),
    issue="a is wrong",
    difficulty="easy",
)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "instances.jsonl"
    second = replace(INSTANCE, instance_id="m-2", issue="é\u2028\ud800", kind=())
    write_instances(path, [INSTANCE, second])
    assert load_instances(path) == (INSTANCE, second)


def test_a_row_has_the_gold_patch_where_swe_bench_has_it() -> None:
    row = INSTANCE.to_row()
    assert (row["repo"], row["version"], row["problem_statement"]) == ("m", "1.0", "a is wrong")
    assert "-a = 2\n+a = 1\n" in row["patch"]
    assert row["patch"] == INSTANCE.gold


def test_lists_of_tests_may_be_json_texts() -> None:
    row = INSTANCE.to_row()
    assert read_instance(row | {"FAIL_TO_PASS": json.dumps(row["FAIL_TO_PASS"])}) == INSTANCE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"FAIL_TO_PASS": []}, "no FAIL_TO_PASS test, so every patch would resolve it"),
        ({"FAIL_TO_PASS": "[]"}, "no FAIL_TO_PASS test"),
        ({"FAIL_TO_PASS": "a b"}, "FAIL_TO_PASS that is not a list"),
        ({"PASS_TO_PASS": [1]}, "PASS_TO_PASS that is not a list"),
        ({"PASS_TO_PASS": ["test_m.py::test_a[x y]"]}, "in FAIL_TO_PASS and in PASS_TO_PASS"),
        ({"patch": ""}, "without a hunk"),
        ({"patch": 3}, "patch = 3; it must be text"),
        ({"patch": "--- a/m\n+++ b/m\n@@ -1,9 +1 @@\n-x\n"}, "not have the number of lines"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "instances.jsonl"
    path.write_text(json.dumps(INSTANCE.to_row() | change) + "\n")
    with pytest.raises(DataError, match=message) as error:
        load_instances(path)
    assert "line 1" in str(error.value)
    assert "m-1" in str(error.value)


def test_a_missing_field_a_second_id_and_an_empty_file_are_named(tmp_path: Path) -> None:
    row = INSTANCE.to_row()
    path = tmp_path / "instances.jsonl"
    for text, message in (
        (json.dumps({key: row[key] for key in row if key != "version"}), "lacks the field version"),
        (f"{json.dumps(row)}\n{json.dumps(row)}", "line 2: instance 'm-1' appears twice"),
        ("\n", "has no instance"),
        ("[1]", "line 1 is not a JSON object"),
        ("{", "line 1 is not JSON"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            load_instances(path)
