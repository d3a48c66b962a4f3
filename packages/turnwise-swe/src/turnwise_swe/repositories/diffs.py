"""Make, reverse, check and exactly apply unified diffs, as text.

Texts are decoded as UTF-8 with surrogates for other bytes, so that every file comes back as it was.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from turnwise.core.errors import DataError

NO_FILE = "/dev/null"
"""The name that a diff gives to a file that does not exist."""
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = "\\ No newline at end of file\n"
_ESCAPE = re.compile(r'\\([0-7]{1,3}|[abtnvfr"\\])')
_UNPLAIN = re.compile(r'[\x00-\x1f\x7f"\\]| $')
"""Characters for which git quotes a path, and a trailing blank, which `read_path` would otherwise take for part of
the line."""
_LINK = re.compile(r"(new file mode|old mode|new mode|deleted file mode) 1[26]0000|index \S+ 1[26]0000")
_BINARIES = re.compile(r"Binary files \S.* and \S.* differ\r?\n?")
_ESCAPED = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """One changed stretch. Each line is a mark (" ", "-" or "+") and the text with its line end."""

    old_start: int
    new_start: int
    lines: tuple[str, ...]

    def side(self, mark: str) -> list[str]:
        """The lines before ("-") or after ("+") the change."""
        return [line[1:] for line in self.lines if line[0] in (" ", mark)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """What a diff does to one file. A path is None where the file does not exist."""

    old_path: str | None
    new_path: str | None
    hunks: tuple[Hunk, ...]


def make_diff(before: Mapping[str, bytes | None], after: Mapping[str, bytes | None]) -> str:
    """The unified diff, in git's format with three lines of context, that turns `before` into `after`.

    Both map relative paths to contents; a path that is missing or None does not exist. Paths are sorted.
    """
    parts: list[str] = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old != new:
            parts += _diff_file(path, old, new)
    return "".join(parts)


def _diff_file(path: str, old: bytes | None, new: bytes | None) -> list[str]:
    lines = [f"diff --git {quote_path(f'a/{path}')} {quote_path(f'b/{path}')}\n"]
    if old is None:
        lines.append("new file mode 100644\n")
    if new is None:
        lines.append("deleted file mode 100644\n")
    from_name, to_name = (
        NO_FILE if each is None else quote_path(f"{side}/{path}") for side, each in (("a", old), ("b", new))
    )
    body = difflib.unified_diff(_split(_decode(old or b"")), _split(_decode(new or b"")), from_name, to_name, n=3)
    for line in body:
        lines.append(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}")
    return lines


def parse_diff(text: str) -> tuple[FileDiff, ...]:
    """The files of a unified diff, in its order. Text between files is skipped.

    Raises DataError naming the line of a hunk whose counts do not fit its lines.
    """
    lines = _split(text)
    files: list[FileDiff] = []
    at = 0
    while at < len(lines):
        if not (lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")):
            at += 1
            continue
        old, new = read_path(lines[at][4:]), read_path(lines[at + 1][4:])
        at += 2
        hunks: list[Hunk] = []
        while at < len(lines) and (header := _HUNK.match(lines[at])):
            hunk, at = _read_hunk(lines, at, header)
            hunks.append(hunk)
        files.append(FileDiff(old_path=strip_prefix(old), new_path=strip_prefix(new), hunks=tuple(hunks)))
    return tuple(files)


def _read_hunk(lines: list[str], at: int, header: re.Match[str]) -> tuple[Hunk, int]:
    old_left, new_left = (int(header[group] or 1) for group in (2, 4))
    start = at + 1
    body: list[str] = []
    at += 1
    while at < len(lines) and (old_left > 0 or new_left > 0 or lines[at] == _NO_NEWLINE):
        line = lines[at] if lines[at] != "\n" else " \n"  # a mail programme cut the blank of an empty line
        if line == _NO_NEWLINE:
            if not body:
                break
            body[-1] = body[-1].removesuffix("\n")
        elif line[0] in " -+":
            old_left -= line[0] != "+"
            new_left -= line[0] != "-"
            body.append(line)
        else:
            break
        at += 1
    if old_left or new_left or not body:
        raise DataError(
            f"the hunk at line {start} of the diff does not have the number of lines it states; create the diff again"
        )
    return Hunk(old_start=int(header[1]), new_start=int(header[3]), lines=tuple(body)), at


def apply_exactly(diff: str, files: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """The files that `diff` changes, with their new contents; None for a file that it deletes.

    Each hunk must fit at its own line. `files` maps relative paths to contents before the change. Raises DataError
    naming the file that does not fit.
    """
    changed: dict[str, bytes | None] = {}
    for file in parse_diff(diff):
        content = b"" if file.old_path is None else files.get(file.old_path)
        if content is None:
            raise DataError(f"the diff changes {file.old_path}, which is not in the tree")
        if file.old_path is not None and file.old_path != file.new_path:
            changed[file.old_path] = None
        if file.new_path is not None:
            changed[file.new_path] = _apply_hunks(file, _split(_decode(content)))
    return changed


def _apply_hunks(file: FileDiff, lines: list[str]) -> bytes:
    result: list[str] = []
    at = 0
    for hunk in file.hunks:
        old = hunk.side("-")
        start = hunk.old_start - 1 if old else hunk.old_start  # a hunk without old lines names the line before it
        if start < at or lines[start : start + len(old)] != old:
            raise DataError(
                f"the diff does not apply to {file.old_path} at line {hunk.old_start}: the text there is different"
            )
        result += [*lines[at:start], *hunk.side("+")]
        at = start + len(old)
    return _encode("".join([*result, *lines[at:]]))


def reverse_diff(diff: str) -> str:
    """The diff that undoes `diff`. Raises DataError as `parse_diff` does."""
    parts: list[str] = []
    for file in parse_diff(diff):
        old, new = file.new_path, file.old_path
        path, target = old or new, new or old
        parts.append(f"diff --git {quote_path(f'a/{path}')} {quote_path(f'b/{target}')}\n")
        if old is None:
            parts.append("new file mode 100644\n")
        if new is None:
            parts.append("deleted file mode 100644\n")
        names = [NO_FILE if each is None else quote_path(f"{side}/{each}") for side, each in (("a", old), ("b", new))]
        parts.append(f"--- {names[0]}\n+++ {names[1]}\n")
        for hunk in file.hunks:
            parts += _reverse_hunk(hunk)
    return "".join(parts)


def _reverse_hunk(hunk: Hunk) -> list[str]:
    """Within each run of changed lines the removed ones come first, as in every diff."""
    old, new = hunk.side("+"), hunk.side("-")
    lines: list[str] = []
    removed: list[str] = []
    added: list[str] = []
    for line in (*hunk.lines, " "):
        if line[0] == " ":
            lines += [*removed, *added, line]
            removed, added = [], []
        else:
            (added if line[0] == "-" else removed).append(("+" if line[0] == "-" else "-") + line[1:])
    body = [line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines[:-1]]
    return [f"@@ -{_range(hunk.new_start, len(old))} +{_range(hunk.old_start, len(new))} @@\n", *body]


def _range(start: int, count: int) -> str:
    return str(start) if count == 1 else f"{start},{count}"


def read_path(text: str) -> str:
    """The path in a `---` or `+++` line, without a time stamp and without git's quotes and escapes."""
    text = text.rstrip("\r\n")
    if not text.startswith('"'):
        return text.split("\t")[0].rstrip(" ")
    inner = text[1:].rsplit('"', 1)[0]
    characters = [
        bytes([int(code, 8) & 255 if code[0] in "01234567" else _ESCAPED[code]]) if odd else _encode(code)
        for odd, code in ((number % 2, part) for number, part in enumerate(_ESCAPE.split(inner)))
    ]
    return _decode(b"".join(characters))


def quote_path(path: str) -> str:
    """The path as a line of a diff spells it, in git's quotes where needed, so that `read_path` returns it
    unchanged."""
    if not _UNPLAIN.search(path):
        return path
    escapes = {chr(code): f"\\{letter}" for letter, code in _ESCAPED.items()}
    return '"' + _UNPLAIN.sub(lambda found: escapes.get(found[0]) or f"\\{ord(found[0]):03o}", path) + '"'


def strip_prefix(path: str) -> str | None:
    """The path below the tree: without git's `a/` or `b/`; None for no file."""
    if path == NO_FILE:
        return None
    return "/".join(PurePosixPath(path).parts[1:]) if path.startswith(("a/", "b/")) else path


def why_refused(diff: str) -> str | None:
    """Why a patch is refused before it is tried; None if it may be tried: text, paths inside the tree, no links.

    Reads every line outside hunks that may name a path or a kind of file, even those that programs skip.
    """
    if "\0" in diff:
        return "it contains NUL bytes; a patch is text"
    try:
        _encode(diff)
    except UnicodeEncodeError as cause:
        place = diff.count("\n", 0, cause.start) + 1
        return f"line {place} holds half of a surrogate pair; a patch is text in UTF-8"
    if diff.strip() and not without_empty_binaries(diff).strip():
        return "it only says that binary files differ; make it with git diff --binary"
    for number, line in _lines_outside_hunks(_split(diff)):
        if _LINK.match(line):
            return f"line {number} makes a link or a submodule; a patch changes plain files"
        for path in _named_paths(line):
            if path.startswith("/") or {"..", ".git"} & set(PurePosixPath(path).parts):
                return f"line {number} names {path}, which is not in the tree"
    return None


def to_crlf(diff: str, paths: Collection[str]) -> str:
    """The diff with CRLF at the ends of these files' lines, as the files themselves have it."""
    lines = _split(diff)
    outside = {number for number, _ in _lines_outside_hunks(lines)}
    path: str | None = None
    written = []
    for number, line in enumerate(lines, 1):
        if number in outside and line.startswith("--- "):
            path = strip_prefix(read_path(line[4:]))
        has_end = lines[number : number + 1] != [_NO_NEWLINE]
        is_text = number not in outside and line[0] in " -+\n" and has_end
        written.append(f"{line[:-1] or ' '}\r\n" if is_text and path in paths and line.endswith("\n") else line)
    return "".join(written).replace("\r\r\n", "\r\n")


def without_empty_binaries(diff: str) -> str:
    """The diff without the parts that only state that binary files differ, for which git refuses the whole diff and
    which patch skips. Binary contents (`git diff --binary`) stay."""
    lines = _split(diff)
    gone: set[int] = set()
    header: int | None = None
    previous = 0
    for number, line in _lines_outside_hunks(lines):
        if number != previous + 1 or line.startswith("--- "):
            header = None  # a hunk, or a text change of its own
        previous = number
        if line.startswith("diff --git "):
            header = number
        elif _BINARIES.fullmatch(line):
            gone.update(range(header or number, number + 1))
            header = None
    return "".join(line for number, line in enumerate(lines, 1) if number not in gone)


def _lines_outside_hunks(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Numbers and texts of the lines that no hunk's counts cover."""
    old_left = new_left = 0
    for number, line in enumerate(lines, 1):
        if (old_left > 0 or new_left > 0) and line[0] in " -+\n\\":
            old_left -= line[0] in " -\n"
            new_left -= line[0] in " +\n"
            continue
        old_left = new_left = 0
        if header := _HUNK.match(line):
            old_left, new_left = (int(header[group] or 1) for group in (2, 4))
        else:
            yield number, line


def _named_paths(line: str) -> list[str]:
    """The paths named in a header line."""
    for start in ("--- ", "+++ "):
        if line.startswith(start):
            path = read_path(line[4:])
            return [] if path == NO_FILE else [path]
    for start in ("rename from ", "rename to ", "copy from ", "copy to "):
        if line.startswith(start):
            return [read_path(line[len(start) :])]
    return [read_path(part) for part in line.split()[2:4]] if line.startswith("diff --git ") else []


def _split(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends a line."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def _decode(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
