"""One written row of every published layout of bugs in repositories, read whole or refused by line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from published_rows import ENDINGS, Layout, check_layout

from turnwise_swe.repositories.instance import read_instance


def read_bug(row: Any) -> Any:
    """A row of a bug in a repository: the tests that it breaks are the answers."""
    read = read_instance(row)
    return SimpleNamespace(before=(), question=read.issue, answers=read.fail_to_pass)


BUG = "--- a/sums.py\n+++ b/sums.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a + b\n+    return a - b\n"
SWE_BENCH: dict[str, Any] = {
    "instance_id": "sums-1",
    "repo": "sums",
    "version": "1.2",
    "base_commit": "",
    "patch": BUG,
    "test_patch": "",
    "problem_statement": "It fails.",
    "FAIL_TO_PASS": '["tests/test_sums.py::test_add"]',
    "PASS_TO_PASS": "[]",
}
SWE_SMITH: dict[str, Any] = {
    "instance_id": "a__b.9f2c.func__1",
    "patch": BUG,
    "FAIL_TO_PASS": ["tests/test_sums.py::test_add"],
    "PASS_TO_PASS": ["tests/test_sums.py::test_none"],
    "image_name": "swebench/swesmith.x86_64.a_1776_b.9f2c",
    "repo": "swesmith/a__b.9f2c",
    "problem_statement": "It fails.",
}
LAYOUTS = {
    "SWE-bench, of a package": Layout(
        reader=read_bug, row=SWE_BENCH, messages=(("user", "It fails."),), answers=("tests/test_sums.py::test_add",)
    ),
    "SWE-bench, of a commit": Layout(
        reader=read_bug,
        row={**SWE_BENCH, "repo": "a/b", "base_commit": "9f2c"},
        refused="repo = 'a/b'; it must be the name of a package",
    ),
    "SWE-smith": Layout(reader=read_bug, row=SWE_SMITH, refused="'a__b.9f2c.func__1' comes from SWE-smith"),
    "SWE-smith, with a version": Layout(
        reader=read_bug, row={**SWE_SMITH, "version": "1.2"}, refused="'a__b.9f2c.func__1' comes from SWE-smith"
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_published_bug_is_read_whole_or_refused_by_line(tmp_path: Path, name: str, ending: str) -> None:
    check_layout(LAYOUTS[name], tmp_path / f"rows{ending}")
