"""What the documents say about the code, as pure functions over texts: each returns what is wrong, `page: what`.

`Facts` is what is true; `test_documents.py` reads it from the code, and tries every rule on a planted mistake.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Pages = Mapping[str, str]
"""Markdown by path from the root of the repository."""
FILE_TYPES = (
    "cfg",
    "html",
    "json",
    "jsonl",
    "md",
    "model",
    "npz",
    "png",
    "py",
    "pyi",
    "safetensors",
    "sh",
    "toml",
    "txt",
)
NOT_PATHS = re.compile(r"[A-Z]{2,}|[*<>$ {}()=:]|\.\.\.|^\.|^/")
"""What stands for a name or is no path of the repository."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What documents are compared with."""

    options: Mapping[str, str] = field(default_factory=dict)
    """Default by option, as the page of options writes it."""
    refuse: Callable[[str, str], str] = lambda option, value: ""
    """What is wrong with the value of an option, empty where it may be had."""
    refused: Callable[[str], bool] = lambda name: False
    """Whether an option of others is known by name, and there is none of it here."""
    free: frozenset[str] = frozenset()
    """Options that hold a table of free keys."""
    commands: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Flags by command, such as "sandbox run"."""
    targets: frozenset[str] = frozenset()
    """Of the Makefile."""
    files: frozenset[str] = frozenset()
    """Paths from the root of the repository."""
    tests: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Names of tests by the name of their file."""
    modules: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Names that a module has, by its import path; "Class.name" for those of a class."""
    of_bad_input: frozenset[str] = frozenset()
    """Pages that quote what is refused."""
    groups: frozenset[str] = frozenset()
    """Entry-point groups, which look like modules."""
    produced: frozenset[str] = frozenset()
    """First folders of paths that a run or another program writes, and whole names of files."""
    foreign: frozenset[str] = frozenset()
    """Files and tests of other projects that a page names; of a file all its tests."""


def strip_fences(text: str) -> str:
    """The text without blocks of code."""
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)


def list_fences(text: str, language: str | None = None) -> list[str]:
    """Blocks of code, of one language or all."""
    found = re.findall(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", text, flags=re.MULTILINE | re.DOTALL)
    return [body for _, kind, body in found if language in (None, kind)]


def list_spans(text: str) -> list[str]:
    """What stands between backticks outside blocks of code, on one line or over two."""
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", strip_fences(text))]


def list_commands(text: str) -> list[str]:
    """Every `turnwise ...` of blocks and spans, with lines that a backslash joins, without its comment."""
    blocks = [block for language in ("", "sh", "bash") for block in list_fences(text, language)]
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
    found = [re.search(r"(?:^|[\s/(`])(turnwise (?!as |import )[a-z].*)", line) for line in [*lines, *list_spans(text)]]
    return [re.split(r"\s+#|\s*(?:&&|\||;|>)\s", match[1])[0] for match in found if match]


# ------------------------------------------------------------------------------------------------ options


def sections_of(facts: Facts) -> set[str]:
    return {name.split(".")[0] for name in facts.options}


def is_option(name: str, facts: Facts) -> bool:
    """Whether a dotted name is an option, a section, or a key of a table of free keys."""
    if name in facts.options or any(each.startswith(f"{name}.") for each in facts.options):
        return True
    parts = name.split(".")
    if any(".".join(parts[:length]) in facts.free for length in range(1, len(parts))):
        return True
    pattern = re.compile(r"\.".join(re.escape(part) for part in parts))
    return any(pattern.fullmatch(re.sub(r"\.LABEL\.", f".{part}.", each)) for part in parts for each in facts.options)


def find_options(text: str, facts: Facts) -> Iterator[str]:
    """Every dotted name below a section in spans, and every override of a command."""
    sections = "|".join(sorted(sections_of(facts)))
    for span in list_spans(text):
        for word in span.split() if "=" in span else [span]:
            if match := re.match(rf'"?((?:{sections})(?:\.\w+)+)(?=$|[\s="\'])', word):
                yield match[1]
    for command in list_commands(text):
        yield from re.findall(rf'(?<=[\s"])((?:{sections})(?:\.\w+)+)(?==)', command)


def check_options(pages: Pages, facts: Facts) -> list[str]:
    """Every `section.option` exists, also where a command sets it and in blocks of TOML that are recipes."""
    problems = []
    for page, text in pages.items():
        names = list(find_options(text, facts))
        for block in list_fences(text, "toml"):
            names += list_keys(block, facts)
        for name in dict.fromkeys(names):
            is_file = name.rpartition(".")[2] in FILE_TYPES and not any(name in each for each in facts.options)
            if not (is_file or is_option(name, facts) or has_module(name, facts) or facts.refused(name)):
                problems.append(f"{page}: there is no option {name}")
    return problems


def list_keys(block: str, facts: Facts) -> list[str]:
    """Dotted names of a recipe's options; empty for TOML that is no recipe."""
    try:
        table = tomllib.loads(block)
    except tomllib.TOMLDecodeError:
        return []

    def walk(part: Mapping[str, Any], prefix: str) -> Iterator[str]:
        for key, value in part.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping) and (
                prefix == "" or any(each.startswith(f"{name}.") for each in facts.options)
            ):
                yield from walk(value, f"{name}.")
            else:
                yield name

    return list(walk(table, "")) if set(table) <= sections_of(facts) else []


def check_values(pages: Pages, facts: Facts) -> list[str]:
    """Every value that a span or a command gives an option is of its type, or one of its few; capitals are names for
    one. A page of bad input quotes what is refused."""
    sections = "|".join(sorted(sections_of(facts)))
    given = re.compile(rf'((?:{sections})(?:\.\w+)+) ?= ?("[^"]*"|[^\s"\'{{}}\[\]]+)(?=[\s"]|$)')
    problems = []
    for page, text in pages.items():
        for option, value in given.findall("\n".join([*list_spans(text), *list_commands(text)])):
            if page in facts.of_bad_input or re.search(r"[A-Z]|\.\.\.", value) or option not in facts.options:
                continue
            if problem := facts.refuse(option, value):
                problems.append(f"{page}: {problem}")
    return problems


def to_plain(value: str) -> str:
    """A value as documents write it."""
    return value.strip().strip("`").strip("\"'").lower()


DEFAULTS = (
    re.compile(r"`(?P<option>[\w.]+) ?= ?(?P<value>[^`\s]+)`,? (?:is |\()?(?:the |its )?default\b"),
    re.compile(r"`(?P<option>[\w.]+)`[^`.|]{0,40}\(default:? (?P<value>`[^`]+`|[\w.-]+)\)"),
    re.compile(r"`(?P<option>[\w.]+)` \((?:the )?default(?P<value>)\)"),
    re.compile(r"default (?:of|for) `(?P<option>[\w.]+)` is (?P<value>`[^`]+`|[\w-]+(?:\.\d+)?)"),
)
"""Ways to say that a value is the default; without a value the option is said to be on."""


def check_defaults(pages: Pages, facts: Facts) -> list[str]:
    """Every value that is said to be an option's default is it, in sentences and in tables of options and defaults."""
    problems = []
    for page, text in pages.items():
        flat = " ".join(strip_fences(text).split())
        said = [(match["option"], match["value"] or "true") for way in DEFAULTS for match in way.finditer(flat)]
        said += list_default_rows(text, facts)
        for option, value in said:
            default = facts.options.get(option)
            if default is not None and to_plain(value) != to_plain(default):
                problems.append(f"{page}: the default of {option} is {default}, not {value}")
    return problems


def list_default_rows(text: str, facts: Facts) -> Iterator[tuple[str, str]]:
    """Rows of tables with the columns "option" and "default": names with the prefix that all of them share."""
    for table in list_tables(text):
        if table[0][:2] != ["option", "default"]:
            continue
        names = [row[0].strip("`") for row in table[1:]]
        [prefix] = {
            prefix
            for prefix in {each[: -len(names[0])] for each in facts.options if each.endswith(f".{names[0]}")} | {""}
            if all(f"{prefix}{name}" in facts.options for name in names)
        } or {"nothing."}
        yield from ((f"{prefix}{name}", row[1]) for name, row in zip(names, table[1:], strict=True) if "`" in row[1])


def list_tables(text: str) -> list[list[list[str]]]:
    """Tables as rows of cells, the head first."""
    tables: list[list[list[str]]] = []
    is_inside = False
    for line in strip_fences(text).splitlines():
        if not line.startswith("|"):
            is_inside = False
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if not is_inside:
            tables.append([])
        is_inside = True
        if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            tables[-1].append(cells)
    return tables


# ------------------------------------------------------------------------------------------------ commands


def check_commands(pages: Pages, facts: Facts) -> list[str]:
    """Every `turnwise COMMAND` exists and has its flags; every `make TARGET` exists."""
    problems = []
    for page, text in pages.items():
        for command in list_commands(text):
            words = command.split()[1:]
            name = " ".join(words[:2]) if " ".join(words[:2]) in facts.commands else words[0]
            if name not in facts.commands:
                problems.append(f"{page}: there is no command {command!r}")
                continue
            has_words = len(name.split()) == 1 and any(each.startswith(f"{name} ") for each in facts.commands)
            if has_words and len(words) > 1 and re.fullmatch(r"[a-z][a-z-]*", words[1]):
                problems.append(f"{page}: there is no command 'turnwise {name} {words[1]}'")
                continue
            for flag in re.findall(r"(?<=\s)--[a-z][\w-]*", command):
                if flag not in facts.commands[name]:
                    problems.append(f"{page}: `turnwise {name}` has no flag {flag}")
        lines = [line for block in list_fences(text) for line in block.splitlines()] + list_spans(text)
        for line in lines:
            match = re.match(r"make (?!\[)([a-z][\w-]*)", line)
            if match and match[1] not in facts.targets:
                problems.append(f"{page}: there is no target 'make {match[1]}'")
    return problems


# ------------------------------------------------------------------------------------------------ files and tests


def check_paths(pages: Pages, facts: Facts) -> list[str]:
    """Every path of a file or folder exists: from the root, or as the end of a path."""
    ends = {"/".join(path.split("/")[start:]) for path in facts.files for start in range(path.count("/") + 1)}
    folders = {"/".join(path.split("/")[:depth]) for path in ends for depth in range(1, path.count("/") + 1)}
    problems = []
    for page, text in pages.items():
        for span in list_spans(text):
            path = span.split("::")[0] if span.endswith(".py") or ".py::" in span else span
            if NOT_PATHS.search(path) or not re.fullmatch(r"[\w./-]+", path) or not is_path(path):
                continue
            if (
                path.split("/")[0] in facts.produced
                or path in facts.produced
                or path.rpartition("/")[2] in facts.produced
            ):
                continue
            if path in facts.foreign or path.rstrip("/") in (folders if path.endswith("/") else ends | folders):
                continue
            problems.append(f"{page}: there is no file or folder {path}")
    return problems


def is_path(span: str) -> bool:
    """Whether a span is written as a path: it ends with / or as a file of a known type does."""
    return span.endswith("/") or ("." in span and span.rpartition(".")[2] in FILE_TYPES and not span.startswith("."))


TEST = re.compile(r"(?:(?:[\w/]+/)?(?P<file>test_\w+\.py))?(?:::)?(?P<name>test_\w+)?(?P<cut>\.\.\.)?")


def check_tests(pages: Pages, facts: Facts) -> list[str]:
    """Every test exists: `test_name`, `file.py::test_name`, `::test_name` of any file; `...` may cut a name off."""
    every = {name for names in facts.tests.values() for name in names}
    problems = []
    for page, text in pages.items():
        for span in list_spans(text):
            match = re.fullmatch(
                r"(?:(?:[\w/]+/)?(?P<file>test_\w+\.py))?(?:::)?(?P<name>test_\w+)?(?P<cut>\.\.\.)?", span
            )
            if not match or not (match["file"] or match["name"]) or {span, span.split("::")[0]} & facts.foreign:
                continue
            names = facts.tests.get(match["file"], frozenset()) if match["file"] else every
            if match["file"] and match["file"] not in facts.tests:
                problems.append(f"{page}: there is no file of tests {match['file']}")
            elif match["name"] and not any(
                name.startswith(match["name"]) if match["cut"] else name == match["name"] for name in names
            ):
                problems.append(f"{page}: there is no test {span}")
    return problems


# ------------------------------------------------------------------------------------------------ imports


def has_module(path: str, facts: Facts) -> bool:
    """Whether an import path names a module, or something in one; the package may be left out."""
    for start in ("", "turnwise."):
        parts = (start + path).split(".")
        for length in range(len(parts), 0, -1):
            module, rest = ".".join(parts[:length]), ".".join(parts[length:])
            if module in facts.modules:
                return not rest or rest in facts.modules[module]
    return False


def check_imports(pages: Pages, facts: Facts) -> list[str]:
    """Every import path exists: in spans, with or without the package's name, and in blocks of Python."""
    packages = {module.split(".")[0] for module in facts.modules}
    rooms = {module.split(".")[1] for module in facts.modules if module.count(".")} - sections_of(facts)
    problems = []
    for page, text in pages.items():
        paths = [
            match[1].replace(":", ".")
            for span in list_spans(text)
            if (match := re.fullmatch(r"(\w+(?:\.\w+)+(?::\w+)?)(?:\(\))?", span))
            and (match[1].split(".")[0] in packages or (match[1].split(".")[0] in rooms and match[1].count(".") > 1))
        ]
        for block in list_fences(text, "python"):
            for module, names in re.findall(r"^[ \t]*from ([\w.]+) import (\([^)]+\)|[^\n#]+)", block, re.MULTILINE):
                if module.split(".")[0] in packages:
                    each = [name.split(" as ")[0].strip() for name in names.strip("()").split(",")]
                    paths += [f"{module}.{name}" for name in each if name]
            if re.search(r"^import turnwise as tw", block, re.MULTILINE):
                paths += [f"turnwise.{name}" for name in re.findall(r"\btw\.(\w+)", block)]
        for path in dict.fromkeys(paths):
            if path.rpartition(".")[2] not in FILE_TYPES and path not in facts.groups and not has_module(path, facts):
                problems.append(f"{page}: there is nothing to import at {path}")
    return problems


# ------------------------------------------------------------------------------------------------ links


def to_anchor(heading: str) -> str:
    """The anchor that a page's heading has."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def list_anchors(text: str) -> set[str]:
    """Anchors of a page; a heading that comes again gets a number."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+)$", strip_fences(text), re.MULTILINE):
        anchor = to_anchor(heading)
        count = 1
        while (found := anchor if count == 1 else f"{anchor}-{count - 1}") in anchors:
            count += 1
        anchors.add(found)
    return anchors


def check_links(pages: Pages, facts: Facts) -> list[str]:
    """Every link inside the repository leads to a file, and its anchor to a heading."""
    problems = []
    folders = {"/".join(path.split("/")[:depth]) for path in facts.files for depth in range(1, path.count("/") + 1)}
    for page, text in pages.items():
        plain = re.sub(r"`[^`\n]*`", "", strip_fences(text))
        for target in re.findall(r"\]\(([^)\s]+)\)", plain):
            if re.match(r"\w+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = resolve(page, path) if path else page
            if file not in facts.files and file not in folders:
                problems.append(f"{page}: the link {target} leads to no file")
            elif anchor and file in pages and anchor not in list_anchors(pages[file]):
                problems.append(f"{page}: the link {target} leads to no heading")
    return problems


def resolve(page: str, path: str) -> str:
    """The path of a link from the root of the repository."""
    parts = page.split("/")[:-1]
    for step in path.rstrip("/").split("/"):
        if step == "..":
            parts = parts[:-1]
        elif step != ".":
            parts.append(step)
    return "/".join(parts)


# ------------------------------------------------------------------------------------------------ lists and numbers


def check_list(page: str, what: str, listed: Iterable[str], known: Iterable[str]) -> list[str]:
    """A list of a page has exactly the known names."""
    missing, unknown = sorted(set(known) - set(listed)), sorted(set(listed) - set(known))
    problems = [f"{page}: {what} lack {', '.join(missing)}"] if missing else []
    return problems + ([f"{page}: {what} name {', '.join(unknown)}, which do not exist"] if unknown else [])


def list_column(text: str, head: str, column: int = 0) -> list[str]:
    """Names in backticks in the first cells of the tables whose first head is this one."""
    rows = [row for table in list_tables(text) if table[0][0] == head for row in table[1:]]
    return [name for row in rows for name in re.findall(r"`([\w-]+)`", row[column])]


def check_number(pages: Pages, page: str, sentence: str, number: int) -> list[str]:
    """A sentence, with (\\d+) for its number, stands on a page and has the right number."""
    found = re.findall(sentence, " ".join(pages[page].split()))
    if not found:
        return [f"{page}: does not say {sentence!r}"]
    return [f"{page}: says {each} in {sentence!r}; it is {number}" for each in found if int(each) != number]


RULES: Mapping[str, Callable[[Pages, Facts], list[str]]] = {
    "options": check_options,
    "values": check_values,
    "defaults": check_defaults,
    "commands": check_commands,
    "paths": check_paths,
    "tests": check_tests,
    "imports": check_imports,
    "links": check_links,
}
