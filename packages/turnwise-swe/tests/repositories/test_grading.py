"""Patches of the tiny repository: what resolves, what does not, and under which name."""

import functools
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tiny import ADDS, BUGGY, CORE, INSTANCE, SCALES, in_sandbox

from turnwise.core.errors import DataError
from turnwise_swe.repositories.diffs import make_diff
from turnwise_swe.repositories.grading import Grade, grade_all, grade_patch
from turnwise_swe.repositories.repository import Repository

PATH = "src/sums/core.py"
EMPTY_BINARY = "diff --git a/p.png b/p.png\nnew file mode 100644\nBinary files /dev/null and b/p.png differ\n"
FULL_BINARY = """diff --git a/p.bin b/p.bin
new file mode 100644
index 0000000000000000000000000000000000000000..8352675d67aed6625ece79af41c27fdb4ee2e867
GIT binary patch
literal 3
KcmZQzWC8#H2LJ>B

literal 0
HcmV?d00001

"""


def diff_of(**changes: str) -> str:
    """The diff that changes files of the tree with the bug; `core` is the module with the bug."""
    return make_diff({PATH: BUGGY.encode()}, {PATH: changes["core"].encode()})


def grade(sums: Repository, patches: Mapping[str, str]) -> dict[str, Grade]:
    """The grades of several patches of the one instance, by label."""
    instances = [replace(INSTANCE, instance_id=label) for label in patches]
    grades = in_sandbox(lambda sandbox: grade_all(sandbox, {"sums==1.0": sums}, instances, patches))
    return {grade.instance_id: grade for grade in grades}


def test_the_gold_patch_resolves_and_others_do_not(sums: Repository) -> None:
    gold = INSTANCE.gold
    shifted = gold.replace("@@ -4,7 +4,7 @@", "@@ -9,7 +9,7 @@")
    fuzzy = gold.replace(" def add(a, b):", " def add(a, b, c):").replace(' """Small sums."""', ' """Other."""')
    grades = grade(
        sums,
        {
            "gold": gold,
            "shifted": shifted,
            "empty": " \n",
            "comment": diff_of(core=BUGGY + "# a comment\n"),
            "half": diff_of(core=BUGGY.replace("return a - b", "return 2 if b == 1 == a else a - b")),
            "breaks": diff_of(core=CORE.replace("for value in values]", "for value in values[1:]]")),
            "syntax": diff_of(core=CORE + "def f(:\n"),
            "exits": diff_of(core=CORE + "import os\nos._exit(0)\n"),
            "stale": gold.replace("-    return a - b", "-    return a % b"),
            "link": "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n",
            "fuzzy": fuzzy,
            "beside a binary": f"{EMPTY_BINARY}{gold}",
            "with a binary": f"{gold}{FULL_BINARY}",
            "of CRLF": gold.replace("\n", "\r\n"),
            "without an end": gold.rstrip("\n"),
            "after prose": f"Here is the change:\n\n{gold}\nIt adds.\n",
            "surrogate": gold.replace("a + b", "a + b  # \ud83d"),
            "without prefixes": gold.replace("a/src", "src").replace("b/src", "src"),
            "of a parent folder": gold.replace("a/src", "a/sums/src").replace("b/src", "b/sums/src"),
            "of another form": "*** Begin Patch\n*** Update File: src/sums/core.py\n@@\n-a\n+b\n*** End Patch\n",
            "miscounted": re.sub(r"@@ -(\d+),\d+ \+(\d+),\d+ @@", r"@@ -\1,90 +\2,90 @@", gold),
            "makes what is there": "--- /dev/null\n+++ b/src/sums/core.py\n@@ -0,0 +1 @@\n+x = 1\n",
        },
    )
    assert {label: grade.ending for label, grade in grades.items()} == {
        "gold": "resolved",
        "shifted": "resolved",
        "empty": "no_patch",
        "comment": "unresolved",
        "half": "unresolved",
        "breaks": "unresolved",
        "syntax": "no_evidence",
        "exits": "crashed",
        "stale": "patch_failed",
        "link": "patch_refused",
        "beside a binary": "resolved",
        "with a binary": "resolved",
        "of CRLF": "resolved",
        "without an end": "resolved",
        "after prose": "resolved",
        "surrogate": "patch_refused",
        "fuzzy": "resolved",
        "without prefixes": "patch_failed",
        "of a parent folder": "patch_failed",
        "of another form": "patch_failed",
        "miscounted": "patch_failed",
        "makes what is there": "patch_failed",
    }
    assert "no hunk of a unified diff; write --- a/FILE" in grades["of another form"].reason
    assert "a hunk has other lines than its @@ counts" in grades["miscounted"].reason
    assert grades["makes what is there"].reason.startswith("it would make src/sums/core.py, which exists")
    assert grades["stale"].reason.startswith("src/sums/core.py does not have the lines that it names: 1 out of 1")
    assert "names src/sums/core.py, of which the first folder" in grades["without prefixes"].reason
    assert "git diff --default-prefix" in grades["without prefixes"].reason
    assert grades["of a parent folder"].reason == "it changes sums/src/sums/core.py, which is not in the tree"
    assert grades["gold"].way == "git apply"
    assert grades["fuzzy"].way == "patch --fuzz=5"
    assert all(grade.forgeable for grade in grades.values())
    half = grades["half"].resolution
    assert half is not None
    assert (half.verdict, half.fixed, half.not_fixed, half.kept) == ("partial", ADDS[:1], ADDS[1:], SCALES)
    breaks = grades["breaks"].resolution
    assert breaks is not None
    assert (breaks.verdict, breaks.broken) == ("no", SCALES[:1])


def test_a_repository_whose_tests_do_not_run_is_no_verdict(sums: Repository) -> None:
    broken = replace(sums, plugins=("no_such_plugin",))
    [grade] = in_sandbox(
        lambda sandbox: grade_all(sandbox, {"sums==1.0": broken}, [INSTANCE], {INSTANCE.instance_id: INSTANCE.gold})
    )
    assert (grade.ending, grade.score) == ("infrastructure", None)
    assert "no test runs without any bug either" in grade.reason


def test_an_instance_of_another_tree_is_refused(sums: Repository) -> None:
    for instance, message in (
        (replace(INSTANCE, repository="sums==2.0"), "belongs to sums==2.0"),
        (replace(INSTANCE, patch=INSTANCE.patch.replace("return a + b", "return a ^ b")), "does not apply to src/sums"),
        (replace(INSTANCE, fail_to_pass=("tests/test_core.py::other",)), "it has no such test"),
    ):
        with pytest.raises(DataError, match=message):
            in_sandbox(functools.partial(grade_patch, repository=sums, instance=instance, patch=INSTANCE.gold))
