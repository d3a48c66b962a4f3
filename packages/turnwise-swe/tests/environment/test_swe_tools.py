"""What each tool gives, and what it does when the tree, the disk or the session does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from driving import CORE, RIGHT, SUBMIT, Call, bash, make_calls, open_episode, parts, play

from turnwise_swe.environment.family import Swe
from turnwise_swe.environment.output import ENDED
from turnwise_swe.environment.tools.test import split_ids, summarize
from turnwise_swe.repositories.outcome import Outcome
from turnwise_swe.repositories.testing import TestRun

DIFF = f"--- a/{CORE}\n+++ b/{CORE}\n@@ -3,3 +3,3 @@\n \n def add(a, b):\n-    return a - b\n+    return a + b\n"
"""Its line numbers are one off."""


@pytest.fixture(scope="module")
def hasty(arguments: dict[str, Any]) -> Swe:
    """A family whose commands have little time, and little disk."""
    return Swe(**{**arguments, "command_s": 5.0, "disk_mib": 1})


def test_bash_keeps_files_and_nothing_else(family: Swe) -> None:
    shown, _ = play(
        family,
        bash("pwd; cd src; export NAME=1; mkdir made; echo text > made/file; echo problem >&2; exit 3"),
        bash('cat src/made/file; pwd; echo "[$NAME]"; if'),
        bash("python3 -c 'import sums; print(sums.add(2, 1))'"),
        bash("true"),
    )
    assert shown[0].endswith("work\nproblem\n[exit status 3]")
    assert "text" not in shown[1]  # a command that cannot be parsed does not run
    assert "syntax error" in shown[1]
    assert shown[2] == "1"
    assert shown[3] == "(no output)"
    again, _ = play(family, bash("export NAME=1; cd src"), bash('pwd; echo "[$NAME]"'))
    assert again[1].endswith("work\n[]")


def test_a_long_output_loses_its_middle(arguments: dict[str, Any]) -> None:
    family = Swe(**{**arguments, "max_observation_chars": 100})
    shown, _ = play(family, bash("seq 1 1000"), bash("head -c 10000000 /dev/zero | tr '\\0' y"))
    first, cut, last = shown[0].partition("\n[... 3792 characters cut ...]\n")  # 9 + 180 + 2700 + 4 + 999 - 100
    assert cut
    assert first.startswith("1\n2\n3\n")
    assert last.endswith("999\n1000")
    assert len(first) == len(last) == 50
    assert shown[1].startswith("y" * 50 + "\n[... ")
    assert shown[1].endswith("[it printed more than 1048576 bytes and was interrupted]")


def test_view_shows_numbered_lines_and_folders(arguments: dict[str, Any]) -> None:
    family = Swe(**{**arguments, "view_lines": 3})
    shown, _ = play(
        family,
        ("view", {"path": "src"}),
        ("view", {"path": CORE, "first": 4, "last": 5}),
        ("view", {"path": CORE, "first": 3}),
        ("view", {"path": CORE, "first": 99}),
        ("view", {"path": "src/none.py"}),
        ("view", {"path": "../secret"}),
        ("view", {"path": "tests/conftest.py"}),
    )
    assert shown[:3] == [
        "sums/",
        "4 def add(a, b):\n5     return a - b\n[13 more lines]",
        "3 \n4 def add(a, b):\n5     return a - b\n[13 more lines]",
    ]
    assert shown[3] == f"error: there are no lines 99 to the end: {CORE} has 18"
    assert shown[4].startswith("error: cannot read 'src/none.py'")
    assert shown[5].startswith("error: '../secret' is no file of the tree")
    assert shown[6] == "(empty)"


def test_search_finds_lines(family: Swe) -> None:
    shown, _ = play(
        family,
        ("search", {"pattern": r"def \w+\(a"}),
        ("search", {"pattern": "def", "path": "tests"}),
        ("search", {"pattern": "nothing like this"}),
        ("search", {"pattern": "("}),
        ("search", {"pattern": "a", "path": "none"}),
        bash("for i in $(seq 60); do echo match $i; done > many.txt"),
        ("search", {"pattern": "match"}),
    )
    assert shown[0] == f"{CORE}:4: def add(a, b):\ntests/test_core.py:7: def test_add(a):"
    assert shown[1].count("tests/test_core.py:") == 4
    assert shown[2] == "no line matches"
    assert shown[3].startswith("error: the pattern is no regular expression")
    assert shown[4] == "error: there is no none"
    assert shown[6].count("\n") == 50
    assert shown[6].endswith("[10 more lines match]")


def test_edits_change_what_they_name_or_nothing(family: Swe) -> None:
    shown, _ = play(
        family,
        ("edit", {"path": CORE, "old": "return", "new": "x"}),
        ("edit", {"path": CORE, "old": "no such text", "new": "x"}),
        ("edit", {"path": CORE, "old": "", "new": "x"}),
        ("edit", {"path": "new/file.py", "old": "", "new": "x = 1\n"}),
        ("edit_lines", {"path": "new/file.py", "first": 2, "last": 1, "text": "y = 2"}),
        ("edit_lines", {"path": "new/file.py", "first": 1, "last": 0, "text": "w = 0\n"}),
        ("edit_lines", {"path": "new/file.py", "first": 2, "last": 2, "text": ""}),
        ("edit_lines", {"path": "new/file.py", "first": 4, "last": 4, "text": "z"}),
        bash("cat new/file.py; chmod +x new/file.py"),
        ("edit", {"path": "new/file.py", "old": "w = 0", "new": "w = 5"}),
        ("edit_diff", {"diff": DIFF}),
        ("edit_diff", {"diff": DIFF}),
        ("edit_diff", {"diff": "no diff"}),
        ("edit_diff", {"diff": DIFF.replace(CORE, "../outside")}),
        ("edit", {"path": CORE, "old": "def add", "new": "def add"}),
        bash(f"sed -n 5p {CORE}; cat new/file.py; ls -a | wc -l; [ -x new/file.py ] && echo executable"),
    )
    assert shown[0].startswith(f"error: the text occurs 3 times in {CORE}")
    assert shown[1].startswith(f"error: {CORE} does not have the text; copy it from a view")
    assert shown[2] == f"error: {CORE} exists; give the old text that the new one replaces"
    assert shown[3] == "made new/file.py"
    assert shown[7].startswith("error: there are no lines 4 to 4: new/file.py has 2")
    assert shown[8] == "w = 0\ny = 2"
    assert shown[9] == "changed new/file.py at line 1"
    assert shown[10] == f"changed {CORE}"
    assert [text.startswith("error: the diff does not apply") for text in shown[11:14]] == [True] * 3
    assert shown[14] == "error: the old and the new text are the same; nothing would change"
    assert shown[15] == "    return a + b\nw = 5\ny = 2\n6\nexecutable"  # ., .., new, pyproject.toml, src, tests


def test_edits_keep_the_line_ends_of_a_file(family: Swe) -> None:
    shown, _ = play(
        family,
        ("edit", {"path": "dos.py", "old": "", "new": "a = 1\r\nb = 2\r\nc = 3\r\n"}),
        ("edit", {"path": "unix.py", "old": "", "new": "a = 1\nb = 2\n"}),
        ("edit", {"path": "dos.py", "old": "a = 1\nb = 2\n", "new": "a = 5\nb = 6\n"}),
        ("edit", {"path": "dos.py", "old": "c = 3", "new": "c = 3\nd = 4"}),
        bash("sed 's/\\r/~/' dos.py"),
        ("edit_lines", {"path": "dos.py", "first": 1, "last": 2, "text": "x = 0\ny = 0"}),
        ("edit_lines", {"path": "dos.py", "first": 3, "last": 2, "text": "z = 0\r\n"}),
        bash("sed 's/\\r/~/' dos.py"),
        ("edit", {"path": "unix.py", "old": "a = 1\r\nb", "new": "b"}),
        bash("sed 's/\\r/~/' unix.py"),
        ("edit_diff", {"diff": "--- a/dos.py\n+++ b/dos.py\n@@ -1,3 +1,3 @@\n x = 0\n-y = 0\n+y = 1\n z = 0\n"}),
        bash("sed 's/\\r/~/' dos.py"),
    )
    assert shown[2:4] == ["changed dos.py at line 1", "changed dos.py at line 3"]
    assert shown[4] == "a = 5~\nb = 6~\nc = 3~\nd = 4~"
    assert shown[7] == "x = 0~\ny = 0~\nz = 0~\nc = 3~\nd = 4~"
    assert shown[9] == "b = 2"
    assert shown[10:] == ["changed dos.py", "x = 0~\ny = 1~\nz = 0~\nc = 3~\nd = 4~"]


def test_search_view_and_edit_number_lines_as_python_does(family: Swe) -> None:
    # A form feed, a line separator and a next-line character end no line; a carriage return does.
    text = "a = 1\f\nb = '\u2028\x85'\rc = 3\r\nwanted = 4\n"
    shown, _ = play(
        family,
        ("edit", {"path": "odd.py", "old": "", "new": text}),
        ("search", {"pattern": "wanted", "path": "odd.py"}),
        ("view", {"path": "odd.py", "first": 4}),
        ("edit", {"path": "odd.py", "old": "wanted = 4", "new": "wanted = 5"}),
        bash("python3 -c \"import ast; print(ast.parse(open('odd.py', 'rb').read()).body[-1].lineno)\""),
    )
    assert shown[1:] == ["odd.py:4: wanted = 4", "4 wanted = 4", "changed odd.py at line 4", "4"]


def test_python_imports_the_project(family: Swe) -> None:
    shown, _ = play(family, ("python", {"code": "import sums\nprint(sums.add(2, 1))\n1 / 0"}))
    assert shown[0].endswith("[exit status 1]")
    assert "ZeroDivisionError: division by zero" in shown[0]
    assert "\n1\n" in shown[0]


def test_test_says_what_fails_and_where(family: Swe) -> None:
    shown, reward = play(
        family,
        ("test", {"tests": "tests/test_core.py::test_add"}),
        ("test", {"tests": "tests/test_core.py::test_scale tests/none.py"}),
        ("test", {"tests": "tests/test_core.py::none"}),
        bash("echo 'def test_own(): assert 1 == 2' > tests/test_own.py; echo '(' > tests/test_broken.py"),
        ("test", {}),
    )
    lines = shown[0].splitlines()
    assert lines[:4] == [
        "2 of 2 fail",
        "tests/test_core.py::test_add[1]: assert 0 == (1 + 1)",
        "  tests/test_core.py:8 test_add",
        "    assert add(a, 1) == a + 1",
    ]
    assert shown[1] == "all pass: 1 tests"
    assert shown[2].startswith("error: there is no test 'tests/test_core.py::none'")
    assert shown[4].startswith("5 of 7 fail\n")
    assert "tests/test_own.py::test_own" in shown[4]
    assert "tests/test_broken.py" in shown[4]
    assert parts(reward)["tests"] == 4.0


def test_a_summary_shows_few_failures_and_no_address() -> None:
    frames = "/lib/a.py:1: in outer\n    x()\nsrc/a.py:2: in f\n    g()\nsrc/b.py:3: in g\n    h()\n"
    details = f"{frames}E   E1\nE   at 0x7f00aa11"
    outcome = Outcome(status="failed", message="bad at 0x7f00aa11", details=details)
    run = TestRun(outcomes={f"t.py::t{n}": outcome for n in range(12)} | {"t.py::ok": Outcome(status="skipped")})
    assert summarize(run).splitlines() == [
        "12 of 13 fail",
        *[
            line
            for n in range(3)
            for line in (
                f"t.py::t{n}: bad at 0x...",
                "  src/a.py:2 f",
                "    g()",
                "  src/b.py:3 g",
                "    h()",
                "  E   at 0x...",
            )
        ],
        *[f"t.py::t{n}" for n in range(3, 10)],
        "and 2 more",
    ]
    late = TestRun(outcomes={}, problem="the run took longer than its deadline", running="t.py::slow")
    assert summarize(late) == "the run stopped: the run took longer than its deadline; t.py::slow was running"


def test_ids_may_hold_blanks_in_brackets() -> None:
    assert split_ids(" a.py::t[x y-1]  b.py::C::t\nc.py ") == ["a.py::t[x y-1]", "b.py::C::t", "c.py"]


# ------------------------------------------------------------------------------------------------ pdb

SCRIPT: Call = bash("printf 'x = 1\\ny = x + 1\\nprint(y)\\n1 / 0\\n' > script.py")


def test_pdb_stays_at_its_place_and_writes_no_file(family: Swe) -> None:
    shown, _ = play(
        family,
        SCRIPT,
        ("pdb", {"command": "n"}),
        ("pdb", {"target": "script.py", "command": "n"}),
        bash("echo changed > script.py"),
        ("pdb", {"command": "p x"}),
        ("pdb", {"command": "c"}),
        ("pdb", {"command": "p y"}),
        ("pdb", {"command": "!open('written', 'w').write('')"}),
        ("pdb", {"command": "q"}),
        ("pdb", {"command": "n"}),
        bash("ls written"),
    )
    assert shown[1] == "error: no program is open in pdb; name a target"
    assert "-> x = 1" in shown[2]
    assert shown[2].endswith("-> y = x + 1\n(Pdb) ")
    assert shown[4] == "1\n(Pdb) "
    assert shown[5].startswith("2\nZeroDivisionError: division by zero\n")
    assert shown[6] == "2\n(Pdb) "
    assert shown[8] == "[the program ended with status 0]"
    assert shown[9] == "error: no program is open in pdb; name a target"
    assert "No such file" in shown[10]


@pytest.mark.slow
def test_pdb_that_hangs_is_ended(hasty: Swe) -> None:
    shown, _ = play(
        hasty,
        bash("echo pass > script.py"),
        ("pdb", {"target": "script.py"}),
        ("pdb", {"command": "while True: pass"}),
        ("pdb", {"command": "n"}),
        ("pdb", {"target": "script.py", "command": "!import os; os.kill(os.getppid(), 9)"}),
        ("pdb", {"target": "script.py"}),
    )
    assert shown[2] == "[it ran longer than 5 s; the debugger was ended]"
    assert shown[3] == "error: no program is open in pdb; name a target"
    assert shown[4].endswith("[the debugger was ended by the program]")
    assert "-> pass" in shown[5]


@pytest.mark.slow
def test_pdb_debugs_a_test(family: Swe) -> None:
    shown, _ = play(
        family,
        ("pdb", {"target": "tests/test_core.py::test_total"}),
        ("pdb", {"command": f"b {CORE}:5"}),
        ("pdb", {"command": "c"}),
        ("pdb", {"command": "p a, b"}),
        ("pdb", {"command": "q"}),
    )
    assert "-> assert Total().take(2).take(3).value == 5" in shown[0]
    assert shown[1].startswith("Breakpoint 1 at ")
    assert "-> return a - b" in shown[2]
    assert shown[3] == "(0, 2)\n(Pdb) "
    assert "[the program ended with status 0]" in shown[4]


# ------------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.slow
def test_a_command_that_hangs_is_interrupted_and_files_are_kept(hasty: Swe) -> None:
    stubborn = "trap '' INT TERM; touch b; while true; do :; done"
    shown, _ = play(hasty, bash("touch a; sleep 100"), bash(stubborn), bash("ls"))
    assert shown[0] == "[it ran longer than 5 s and was interrupted]"
    assert shown[1] == f"[it ran longer than 5 s and was interrupted; {ENDED}]"
    assert shown[2].split() == ["a", "b", "pyproject.toml", "src", "tests"]


def test_a_session_that_died_is_replaced_and_files_are_kept(family: Swe) -> None:
    shown, reward = play(
        family,
        RIGHT,
        bash("rm pyproject.toml; kill -9 $PPID"),
        bash("ls"),
        ("view", {"path": CORE, "first": 5, "last": 5}),
        bash("(sleep 0.3; kill -9 $PPID) & kill -9 $PPID"),
        ("edit", {"path": "note", "old": "", "new": "still here"}),
        SUBMIT,
    )
    assert shown[1] == f"[{ENDED}]"
    assert shown[2].split() == ["src", "tests"]
    assert shown[3].startswith("5     return a + b")
    assert shown[5] == "made note"
    assert parts(reward)["resolved"] == 1.0


def test_a_full_disk_loses_nothing(hasty: Swe) -> None:
    shown, reward = play(
        hasty,
        bash("head -c 3000000 /dev/zero > big; ls big"),
        ("edit", {"path": CORE, "old": "a - b", "new": "a + b" + " " * 8192}),
        bash(f"sed -n 5p {CORE}; ls -A"),
        bash("rm big"),
        RIGHT,
        SUBMIT,
    )
    assert shown[1] == f"error: cannot write '{CORE}': there is no room for it"
    assert shown[2].split("\n") == ["    return a - b", "big", "pyproject.toml", "src", "tests"]
    assert shown[4] == f"changed {CORE} at line 5"
    assert parts(reward)["resolved"] == 1.0


def test_sparse_files_beyond_the_quota_are_a_named_ending(hasty: Swe) -> None:
    shown, reward = play(hasty, bash("truncate -s 900k one two"), ("test", {}), SUBMIT)
    assert shown[1].startswith("error: the changes of the tree have more than 1048576 bytes")
    assert parts(reward).items() >= {"success": 0.0, "too_large": 1.0}.items(), shown


def test_what_was_left_running_ends_with_the_episode(family: Swe) -> None:
    async def run() -> dict[str, bytes | None]:
        environment = await open_episode(family)
        loop = f"(while true; do sed -i 's/a - b/a * b/' {CORE}; done) >/dev/null 2>&1 &"
        await make_calls(environment, [bash(loop), RIGHT, SUBMIT])
        assert environment._workspace is not None
        assert environment._workspace._session is None
        await environment.close()
        return dict(environment._submitted or {})

    assert CORE in asyncio.run(run())
