"""Diffs give back what they were made of, forwards and backwards, and name what makes them unfit."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import DataError
from turnwise_swe.repositories.diffs import (
    apply_exactly,
    make_diff,
    parse_diff,
    read_path,
    reverse_diff,
    to_crlf,
    why_refused,
    without_empty_binaries,
)

LINES = st.sampled_from(["a\n", "b\n", "\n", "c\r\n", "- x\n", "+ y\n", "@@\n", "-- z\n", "++ w\n", "\\ No\n"])
CONTENTS = st.one_of(
    st.none(),
    st.tuples(st.lists(LINES, max_size=20), st.sampled_from(["", "z"])).map(lambda t: ("".join(t[0]) + t[1]).encode()),
)


def existing(files: dict[str, bytes | None]) -> dict[str, bytes]:
    """The files that are there."""
    return {path: content for path, content in files.items() if content is not None}


def filled(files: dict[str, bytes | None]) -> dict[str, bytes]:
    """The files with content; a diff has no hunk for an empty one that comes or goes."""
    return {path: content for path, content in files.items() if content}


@given(CONTENTS, CONTENTS, CONTENTS, CONTENTS)
def test_a_diff_makes_the_new_texts_and_its_reverse_the_old(
    one: bytes | None, two: bytes | None, three: bytes | None, four: bytes | None
) -> None:
    before, after = {"x/p.py": one, "q": three}, {"x/p.py": two, "q": four}
    diff = make_diff(before, after)
    assert filled(before | apply_exactly(diff, existing(before))) == filled(after)
    assert filled(after | apply_exactly(reverse_diff(diff), existing(after))) == filled(before)


def test_the_text_of_a_diff() -> None:
    diff = make_diff({"m.py": b"a\nb\nc"}, {"m.py": b"a\nB\nc"})
    expected = "diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
    assert diff == expected + "\\ No newline at end of file\n"
    assert reverse_diff(diff) == diff.replace("-b\n+B", "-B\n+b")


@pytest.mark.parametrize(
    "path", ["a b.py", "a\tb.py", "a\nb.py", "a\r", "end ", '"q".py', "back\\n.py", "\x01\x7f", "é", "\udcff"]
)
def test_a_path_of_any_characters_is_the_same_forwards_and_backwards(path: str) -> None:
    before, after = {path: b"1\n", "\x7fz": b"1\n"}, {path: b"2\n", "\x7fz": b"2\n"}
    diff = make_diff(before, after)
    assert {file.old_path for file in parse_diff(diff)} == {path, "\x7fz"}
    assert apply_exactly(diff, before) == after
    assert apply_exactly(reverse_diff(diff), after) == before
    assert reverse_diff(reverse_diff(diff)) == diff


def test_a_path_is_quoted_as_git_quotes_it() -> None:
    """`git diff` of a file whose name holds a tab, a quotation mark and the byte 1."""
    assert '--- "a/x\\ty\\"\\001"\n+++ "b/x\\ty\\"\\001"\n' in make_diff({'x\ty"\x01': b"a\n"}, {'x\ty"\x01': b"b\n"})


def test_bytes_that_are_not_utf8_survive() -> None:
    diff = make_diff({"m": b"\xff\n"}, {"m": b"\xfe\n"})
    assert apply_exactly(diff, {"m": b"\xff\n"}) == {"m": b"\xfe\n"}


@pytest.mark.parametrize(
    ("diff", "files", "message"),
    [
        ("--- a/m\n+++ b/m\n@@ -1 +1 @@\n-x\n+y\n", {"m": b"z\n"}, "does not apply to m at line 1"),
        ("--- a/m\n+++ b/m\n@@ -1 +1 @@\n-x\n+y\n", {}, "m, which is not in the tree"),
        ("--- a/m\n+++ b/m\n@@ -1,3 +1 @@\n-x\n+y\n", {"m": b"x\n"}, "does not have the number of lines"),
    ],
)
def test_what_does_not_fit_is_named(diff: str, files: dict[str, bytes], message: str) -> None:
    with pytest.raises(DataError, match=message):
        apply_exactly(diff, files)


@pytest.mark.parametrize(
    ("diff", "reason"),
    [
        ("--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-x\n+y\n", "line 1 names /etc/passwd"),
        ("--- a/m\n+++ b/../m\n@@ -1 +1 @@\n-x\n+y\n", r"line 2 names b/\.\./m"),
        ('--- "a/\\056\\056/m"\n+++ b/m\n@@ -1 +1 @@\n-x\n+y\n', r"names a/\.\./m"),
        ("diff --git a/m b/.git/hooks/x\n", "names b/.git/hooks/x"),
        ("rename from m\nrename to ../m\n", r"line 2 names \.\./m"),
        ("new file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n", "line 1 makes a link"),
        ("new file mode 160000\n", "makes a link or a submodule"),
        ("index 1..2 120000\n", "makes a link"),
        ("Binary files a/m and b/m differ\n", "only says that binary files differ"),
        ("diff --git a/m b/m\nindex 1..2 100644\nBinary files a/m and b/m differ\n", "only says that binary files"),
        ("--- a/m\n+++ b/m\n@@ -1 +1 @@\n-x\n+\ud83d\n", "line 5 holds half of a surrogate pair"),
        ("--- a/\udfff\n", "line 1 holds half of a surrogate pair"),
        ("--- a/m\n+++ b/m\n@@ -1 +1 @@\n-x\n+\0\n", "NUL"),
        ("@@ -1 +1 @@\n-x\n+y\n--- /abs\n", "line 4 names /abs"),
    ],
)
def test_a_patch_that_leaves_the_tree_is_refused(diff: str, reason: str) -> None:
    assert (answer := why_refused(diff)) is not None
    assert re.search(reason, answer)


def test_text_inside_hunks_is_not_taken_for_paths() -> None:
    # A removed comment "-- /x" reads "--- /x", an added "++ /x" reads "+++ /x".
    diff = make_diff({"q.sql": b"-- /x\nBinary files\n"}, {"q.sql": b"++ /x\nGIT binary patch\n"})
    assert "--- /x\n" in diff
    assert why_refused(diff) is None
    assert len(parse_diff(diff)) == 1


def test_quoted_paths_are_read() -> None:
    assert read_path('"a/t\\303\\251 \\"x\\".py"\n') == 'a/té "x".py'
    assert read_path("a/m.py\t2024-01-01 00:00:00\n") == "a/m.py"


def test_parts_that_only_say_that_binary_files_differ_are_left_out() -> None:
    text = make_diff({"m.py": b"x\n"}, {"m.py": b"Binary files a and b differ\n"})
    for binary in (
        "diff --git a/p.png b/p.png\nindex 1..2 100644\nBinary files a/p.png and b/p.png differ\n",
        "diff --git a/p.png b/p.png\nnew file mode 100644\nindex 0..2\nBinary files /dev/null and b/p.png differ\n",
        "Binary files a/p.png and b/p.png differ\n",
    ):
        for whole in (binary + text, text + binary, binary + text + binary):
            assert why_refused(whole) is None
            assert without_empty_binaries(whole) == text
    assert without_empty_binaries(text) == text
    full = "diff --git a/p b/p\nindex 1..2\nGIT binary patch\nliteral 2\nJcmZQz00sa6\n\nliteral 0\nHcmV?d00001\n\n"
    assert why_refused(full + text) is None
    assert without_empty_binaries(full + text) == full + text
    commented = "Binary files are left out here\n" + text
    assert without_empty_binaries(commented) == commented


def test_a_diff_is_given_the_line_ends_of_its_files() -> None:
    old, new = (b"a\nb\n\nc\n", b"a\nx\n\nc")
    diff = make_diff({"m": old, "n": old}, {"m": new, "n": new})
    both = {"m": old.replace(b"\n", b"\r\n"), "n": old}
    assert apply_exactly(to_crlf(diff, {"m"}), both) == {"m": b"a\r\nx\r\n\r\nc", "n": new}
    assert to_crlf(diff, set()) == diff
    assert to_crlf(to_crlf(diff, {"m"}), {"m"}) == to_crlf(diff, {"m"})


@pytest.mark.parametrize("text", ["a\rb", "\r", "\x0c", "a\u2028b", "\x85", "\x1b\x17\x18R\r\x1bdoo", "\ufeffx"])
def test_characters_that_end_lines_elsewhere_are_part_of_a_line(text: str) -> None:
    before, after = ({"m": f"{first}\n{text}\nlast\n".encode()} for first in "xy")
    diff = make_diff(before, after)
    assert apply_exactly(diff, before) == after
    assert apply_exactly(reverse_diff(diff), after) == before
